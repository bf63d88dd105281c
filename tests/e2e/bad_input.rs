//! Wrong configuration, taken ports, damaged files, a full disk: each ends in a clear message and an
//! exit code of its own, and nothing is lost. The codes are those of `saltern_base::exit::Exit`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::port::free_port;
use saltern_tests::process::{Run, run};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::small_disk::SmallDisk;
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};

use crate::durability::job_database;

const OURS: Server = Server::Saltern(Release::V3008);

const USAGE: i32 = 64;
/// A file whose content is damaged.
const DATA: i32 = 65;
const NO_INPUT: i32 = 66;
const UNAVAILABLE: i32 = 69;

/// Starts the master, which must refuse, and checks its exit code and each text of its message.
fn refused(site: &Site, code: i32, texts: &[&str]) -> Result<Run> {
    let run = run(&mut site.master_command(), SOON)?;
    run.expect_code(code)?;
    for text in texts {
        run.expect_text(text)?;
    }
    Ok(run)
}

#[test]
fn a_wrong_value_is_refused_with_file_and_line() -> TestResult {
    let wrong = |config: &mut Config| _ = config.set("worker_threads", "many");
    Site::prepared(OURS, wrong, |site| {
        let file = site.path("conf/master").display().to_string();
        refused(site, USAGE, &[&file, "worker_threads", "many"])?;
        let line = std::fs::read_to_string(&file)?
            .lines()
            .position(|line| line.starts_with("worker_threads"))
            .context("the option is in the file")?;
        refused(site, USAGE, &[&format!("{file}:{}", line + 1)])?;
        ensure!(
            !site.path("pki").exists(),
            "it wrote keys before it checked the configuration"
        );
        Ok(())
    })
}

#[test]
fn a_file_that_is_no_yaml_is_refused() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            std::fs::write(
                site.path("conf/master"),
                "interface: [127.0.0.1\nuser: root\n",
            )?;
            refused(site, USAGE, &["conf/master"])?;
            Ok(())
        },
    )
}

#[test]
fn check_config_suggests_the_right_name() -> TestResult {
    Site::prepared(
        OURS,
        |config| _ = config.set("worker_thread", 3),
        |site| {
            site.saltern(&["check-config"])?
                .expect_text("worker_thread")?
                .expect_text("worker_threads")?;
            Ok(())
        },
    )
}

#[test]
fn a_taken_port_is_named() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            for port in [site.ret_port(), site.publish_port()] {
                let holder = TcpListener::bind(("127.0.0.1", port))?;
                refused(site, UNAVAILABLE, &[&port.to_string(), "in use"])?;
                drop(holder);
            }
            Ok(())
        },
    )
}

#[test]
fn a_second_master_on_the_same_files_is_refused() -> TestResult {
    Site::run(
        OURS,
        |_| {},
        |site| {
            let run = refused(site, UNAVAILABLE, &[])?;
            ensure!(!run.stderr.is_empty(), "it said nothing\n{run}");
            site.step("with ports of its own too");
            let ports = ["ret_port", "publish_port"];
            let taken = [site.ret_port(), site.publish_port()];
            for name in ports {
                site.config().set(name, free_port());
            }
            site.write_config()?;
            refused(site, UNAVAILABLE, &["another master"])?;
            for (name, port) in ports.into_iter().zip(taken) {
                site.config().set(name, port);
            }
            site.write_config()?;
            site.step("and the first one is none the worse");
            site.bring_up(&[("m1", MinionKind::Native)])?;
            site.salt(&["-t", "60", "*", "test.ping"])?
                .expect_code(0)?
                .expect_stdout("m1:\n    True")?;
            Ok(())
        },
    )
}

#[test]
fn a_damaged_master_key_is_refused_and_kept() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            let key = site.path("pki/master.pem");
            std::fs::create_dir_all(site.path("pki"))?;
            chmod(&site.path("pki"), "700")?;
            std::fs::write(&key, "-----BEGIN RSA PRIVATE KEY-----\nnot a key\n")?;
            chmod(&key, "400")?;
            refused(site, NO_INPUT, &["master.pem"])?;
            ensure!(
                std::fs::read(&key)?.ends_with(b"not a key\n"),
                "the file was changed"
            );
            Ok(())
        },
    )
}

/// Root may read every file, so what cannot be read is not a file.
#[test]
fn an_unreadable_master_key_is_refused() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            std::fs::create_dir_all(site.path("pki/master.pem"))?;
            chmod(&site.path("pki"), "700")?;
            refused(site, NO_INPUT, &["master.pem"])?;
            Ok(())
        },
    )
}

fn chmod(path: &Path, mode: &str) -> Result<()> {
    run(Command::new("chmod").arg(mode).arg(path), SOON)?.expect_code(0)?;
    Ok(())
}

/// The job database of a master that has stopped, whole in its main file.
fn stopped_with_a_job(site: &mut Site) -> Result<PathBuf> {
    site.bring_up(&[("m1", MinionKind::Native)])?;
    site.salt(&["-t", "60", "*", "test.ping"])?.expect_code(0)?;
    site.kill_minion("m1");
    site.stop_master()?;
    let path = job_database(&site.path("cache"))?;
    // Pages in the write-ahead log would take the place of damaged ones.
    for log in ["-wal", "-shm"] {
        let mut name = path.clone().into_os_string();
        name.push(log);
        std::fs::remove_file(name).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(path)
}

#[test]
fn a_corrupt_job_database_is_set_aside_and_named() -> TestResult {
    Site::run(
        OURS,
        |_| {},
        |site| {
            let path = stopped_with_a_job(site)?;
            // Nothing of it can be read.
            std::fs::write(&path, vec![0x5a; 8192])?;
            site.announce("the damaged job database cannot be read at all");
            site.announce("the job database was damaged");
            site.start_master()?;
            let said = std::fs::read_to_string(site.path("log/master.out"))?;
            let directory = path.parent().context("it lies in a directory")?;
            let mut kept = None;
            for entry in std::fs::read_dir(directory)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name.contains(".damaged-") && said.contains(&format!("{name}\"")) {
                    kept = Some(directory.join(name));
                }
            }
            let kept = kept.context("the log names the file that was set aside")?;
            ensure!(
                std::fs::read(&kept)?.ends_with(&[0x5a; 4096]),
                "what was set aside is not what was there"
            );
            site.bring_up(&[("m2", MinionKind::Native)])?;
            site.salt(&["-t", "60", "m2", "test.ping"])?
                .expect_code(0)?;
            Ok(())
        },
    )
}

#[test]
fn a_job_database_of_a_newer_release_is_refused_and_kept() -> TestResult {
    Site::run(
        OURS,
        |_| {},
        |site| {
            let path = stopped_with_a_job(site)?;
            let mut bytes = std::fs::read(&path)?;
            // SQLite's `user_version`.
            let version = bytes.get_mut(60..64).context("a header")?;
            version.copy_from_slice(&99_u32.to_be_bytes());
            std::fs::write(&path, &bytes)?;
            let name = path.file_name().context("a file has a name")?;
            refused(site, DATA, &[&name.to_string_lossy(), "99"])?;
            ensure!(std::fs::read(&path)? == bytes, "the database was changed");
            Ok(())
        },
    )
}

/// Bytes of a disk that is soon full.
const SMALL: u64 = 12 << 20;

#[test]
fn a_full_disk_refuses_new_work_and_recovers_alone() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            let disk = SmallDisk::mount_unless_excused(&site.path("cache"), SMALL)?;
            let Some(disk) = disk else {
                return Ok(());
            };
            site.start_master()?;
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let first = site.salt(&["m1", "test.echo", "before", "--async"])?;
            let jid = first
                .expect_code(0)?
                .stdout
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or("")
                .to_owned();
            site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;

            let mut session = site.session_of("m1")?;
            session.send("with room")?;

            site.step("fill the disk");
            for text in ["disk", "full", "space", "store", "write", "job"] {
                site.announce(text);
            }
            // The last job that is taken may be one whose return is not.
            site.announce("a return was not taken");
            disk.fill()?;

            site.step("new work is refused with a clear error");
            // The database writes into room it has already, so a few jobs may still fit.
            let words = "words ".repeat(15_000);
            wait_until("a job to be refused", SOON, || {
                let run = site.salt(&["m1", "test.echo", &words]).ok()?;
                // Stock prints a refusal like this on standard output and ends with 0.
                run.stdout.contains("could not store the job").then_some(())
            })?;
            site.step("what needs no disk goes on");
            session.send("without room")?;
            site.events().tag("without room", SOON)?;
            site.saltern(&["metrics"])?.expect_code(0)?;

            site.step("room again: it recovers alone, and nothing was lost");
            disk.make_room()?;
            wait_until("the master to take jobs again", SOON, || {
                let run = site.salt(&["m1", "test.ping"]).ok()?;
                (run.code == Some(0) && run.stdout.trim() == "m1:\n    True").then_some(())
            })?;
            site.wait_until_mirrored(&jid, "m1")?;
            site.salt_run(&["jobs.lookup_jid", &jid])?
                .expect_text("before")?;
            // The mount must not be busy when it is taken away.
            site.kill_minion("m1");
            site.stop_master()?;
            Ok(())
        },
    )
}

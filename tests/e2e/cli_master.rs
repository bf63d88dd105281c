//! `salt-master` with stock's options: in the background, as a user, with a pid file of its own.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use saltern_tests::process::{Run, run};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{Failure, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

/// A master in the background, which ends with the test.
struct Background(Pid);

impl Background {
    fn of(pid_file: &Path) -> Result<Self> {
        let text = fs::read_to_string(pid_file)?;
        let pid = Pid::from_raw(text.trim().parse()?);
        Ok(Self(pid.context("a process id")?))
    }

    /// Ends it in order.
    fn stop(&self) -> Result<()> {
        kill_process(self.0, Signal::TERM)?;
        wait_until("the master to end", SOON, || {
            // Nobody but the first process of the system waits for it.
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.0));
            stat.map_or(Some(()), |stat| stat.contains(") Z ").then_some(()))
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn salt_master(site: &Site, words: &[&str]) -> Result<Run> {
    let mut command = Command::new(saltern_program());
    command.arg0("salt-master").arg("-c").arg(site.path("conf"));
    run(command.args(words), SOON)
}

#[test]
fn master_goes_into_the_background_and_serves() -> TestResult {
    let release = Release::V3008;
    Site::prepared(
        Server::Saltern(release),
        |_| {},
        |site| {
            site.step("it serves when the command ends");
            let pid_file = site.path("own.pid");
            let own = pid_file.display().to_string();
            let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
            let words = [
                "-d",
                "--pid-f",
                &own,
                "-u",
                user.trim(),
                "--disable-keepalive",
            ];
            let started = salt_master(site, &words)?;
            started.expect_code(0)?;
            ensure!(
                started.stdout.is_empty() && started.stderr.is_empty(),
                "{started}"
            );
            let master = Background::of(&pid_file)?;
            site.saltern(&["run", "manage.up"])?.expect_code(0)?;
            let stat = fs::read_to_string(format!("/proc/{}/stat", master.0))?;
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .split(' ')
                .collect();
            let session = fields.get(4).copied().unwrap_or_default();
            ensure!(
                session == master.0.to_string(),
                "it leads no session: {stat}"
            );
            let directory = fs::read_link(format!("/proc/{}/cwd", master.0))?;
            ensure!(
                directory == Path::new("/"),
                "it holds {}",
                directory.display()
            );

            site.step("a second one does not start, and says so");
            let second = salt_master(site, &["-d"])?;
            second
                .expect_code(69)?
                .expect_text("the master did not start")?;
            ensure!(test_kill_process(master.0).is_ok(), "the first one is gone");

            site.step("it ends in order");
            master.stop()?;
            ensure!(!pid_file.exists(), "the pid file stays");

            site.step("options as optparse takes them; what is wrong is said at once");
            salt_master(site, &["--versio"])?
                .expect_code(64)?
                .expect_text("salt-master: error: ambiguous option: --versio")?;
            salt_master(site, &["--version"])?
                .expect_code(0)?
                .expect_text("salt-master 3008")?;
            fs::write(site.path("conf/master"), "ret_port: [\n").map_err(anyhow::Error::from)?;
            salt_master(site, &["-d"])?.expect_code(64)?;
            Ok(())
        },
    )
    .map_err(Failure::into_error)?;
    Ok(())
}

//! Our master under a service manager: state notifications, socket activation and the watchdog. The
//! manager is `peers/service_manager.py`, so that no systemd has to run.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use saltern_tests::process::{Daemon, peer};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

/// The manager's notes, a line each.
const NOTES: &str = "log/notes";

/// Generous, for a busy machine: the watchdog must not fire, its precision is not tested.
const PATIENT: &str = "600";

/// Runs a scenario on a master with a watchdog timeout of `limit` seconds.
fn managed(limit: &str, scenario: impl FnOnce(&mut Site) -> Result<()>) -> TestResult {
    Site::prepared(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let python = site.server().release().program("python");
            let manager = peer("service_manager.py");
            let notes = site.path(NOTES);
            let ports = format!("{},{}", site.ret_port(), site.publish_port());
            let text = |path: &Path| path.display().to_string();
            site.start_master_by(&[
                &text(&python),
                &text(&manager),
                &text(&notes),
                limit,
                &ports,
            ]);
            site.start_master()?;
            noted(site, "READY=1", 1)?;
            scenario(site)
        },
    )
}

/// The program of the tests has fail points; stripped, it has no name of them any more.
#[test]
fn package_is_not_built_of_a_binary_with_fault_injection() -> TestResult {
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join("saltern");
    let strip = Command::new("strip")
        .args(["--strip-all", "-o"])
        .args([&stripped, &saltern_program()])
        .status()?;
    assert!(strip.success());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/deb/build.sh");
    let built = Command::new(script)
        .arg(&stripped)
        .arg(directory.path().join("deb"))
        .output()?;
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(!built.status.success(), "{said}");
    assert!(said.contains("fault-injection"), "{said}");
    Ok(())
}

/// Waits until the manager has noted this so many times.
fn noted(site: &Site, note: &str, times: usize) -> Result<()> {
    let what = format!("note \"{note}\" number {times}");
    wait_until(&what, SOON, || {
        let notes = std::fs::read_to_string(site.path(NOTES)).ok()?;
        let count = notes.lines().filter(|line| line.starts_with(note)).count();
        (count >= times).then_some(())
    })
}

#[test]
fn service_manager_is_notified_of_reload_and_holds_ports_over_restart() -> TestResult {
    managed(PATIENT, |site| {
        site.bring_up(&[("m3006", MinionKind::Stock(Release::V3006))])?;
        noted(site, "STATUS=serving on 127.0.0.1:", 1)?;

        site.master().signal(Signal::HUP)?;
        noted(site, "RELOADING=1", 1)?;
        noted(site, "MONOTONIC_USEC=", 1)?;
        noted(site, "READY=1", 2)?;

        site.master().signal(Signal::USR1)?;
        noted(site, "STOPPING=1", 1)?;
        noted(site, "STATUS=finishing", 1)?;
        noted(site, "exited 0", 1)?;
        let connect = |port| TcpStream::connect(("127.0.0.1", port));
        let early = [connect(site.ret_port())?, connect(site.publish_port())?];

        site.master().signal(Signal::USR2)?;
        // What the ports hold waits, but stock's command line gives up where no event socket is.
        let socket = site.path("run/master_event_pub.ipc");
        wait_until("the event socket", SOON, || {
            UnixStream::connect(&socket).ok()
        })?;
        let mut job = site.stock_command("salt", &["m3006", "test.ping", "-t", "60"]);
        let job = std::thread::spawn(move || saltern_tests::run(&mut job, SOON * 2));
        noted(site, "READY=1", 3)?;
        for mut connection in early {
            connection.set_read_timeout(Some(SOON))?;
            let mut greeting = [0];
            connection.read_exact(&mut greeting)?;
            ensure!(greeting == [0xff], "that is no greeting: {greeting:?}");
        }
        let job = job.join().expect("running a command does not panic")?;
        job.expect_code(0)?.expect_text("True")?;
        Ok(())
    })
}

/// A supervisor that sees a port of the master may signal it: a SIGHUP must not end it, and a
/// SIGTERM must let it finish.
#[test]
fn signal_to_master_that_only_just_serves_is_handled() -> TestResult {
    const STARTS: usize = 8;
    Site::prepared(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let port = ("127.0.0.1", site.ret_port());
            let output = site.path("log/master.out");
            for start in 0..STARTS {
                let master = Daemon::start("master", &mut site.master_command(), &output)?;
                // Without a pause between tries, so that the signal comes early.
                wait_until("the first connection", SOON, || {
                    (0..10_000).find_map(|_| TcpStream::connect(port).ok())
                })?;
                master.signal(Signal::HUP)?;
                let status = master.stop(SOON)?;
                ensure!(status.success(), "exit in start {start}: {status}");
            }
            Ok(())
        },
    )
}

#[test]
fn the_watchdog_is_fed_until_an_actor_is_stuck() -> TestResult {
    // Twice as long as a busy machine may keep the master from its work.
    managed("20", |site| {
        noted(site, "WATCHDOG=1", 2)?;
        site.saltern(&["debug", "stall", "job_tracker"])?
            .expect_code(0)?;
        noted(site, "silent", 1)?;
        noted(site, "exited -9", 1)?;
        noted(site, "READY=1", 2)?;
        noted(site, "WATCHDOG=1", 3)?;
        Ok(())
    })
}

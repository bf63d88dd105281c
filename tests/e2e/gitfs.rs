//! Orchestrations in gitfs: stock's `salt-run` reads clones of its own, which a master keeps fresh.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use saltern_tests::site::SOON;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

#[test]
fn salt_run_of_3006_finds_orchestrations_in_gitfs() -> TestResult {
    orchestrated(Release::V3006)
}

#[test]
fn salt_run_of_3008_finds_orchestrations_in_gitfs() -> TestResult {
    orchestrated(Release::V3008)
}

fn orchestrated(release: Release) -> TestResult {
    // The oracle first: the same steps, the same outcome.
    for server in [Server::Stock(release), Server::Saltern(release)] {
        Site::prepared(
            server,
            |config| {
                config.set("fileserver_backend", "[gitfs]");
                config.set("gitfs_update_interval", 1);
                if server.is_ours() {
                    config.set("python_bridge", release.program("python").display());
                }
            },
            |site| {
                // Its `salt-run` and the one of this test may meet in a clone: then it tries again.
                site.announce("stock's salt-run may not see what is new in gitfs");
                let repository = site.path("repo");
                std::fs::create_dir(&repository)?;
                git(&repository, &["init", "-q", "-b", "master"])?;
                commit(&repository, "first")?;
                let remotes = format!("[\"file://{}\"]", repository.display());
                site.config().set("gitfs_remotes", remotes);
                site.write_config()?;
                site.start_master()?;
                finds(site, "first")?;
                site.step("something new is committed");
                commit(&repository, "second")?;
                finds(site, "second")
            },
        )?;
    }
    Ok(())
}

/// Waits until stock's `salt-run` lists the file, and has it run.
fn finds(site: &Site, name: &str) -> Result<()> {
    wait_until("salt-run to see the file", SOON * 2, || {
        let listed = site.salt_run(&["fileserver.file_list", "backend=gitfs", "--out=json"]);
        let path = format!("orch/{name}.sls");
        listed.ok()?.stdout.contains(&path).then_some(())
    })?;
    let ran = site.salt_run(&["state.orchestrate", &format!("orch.{name}")])?;
    ensure!(
        ran.stdout.contains("Succeeded: 1"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    Ok(())
}

fn commit(repository: &Path, name: &str) -> Result<()> {
    let file = repository.join(format!("orch/{name}.sls"));
    std::fs::create_dir_all(repository.join("orch"))?;
    std::fs::write(
        file,
        format!("{name}:\n  test.succeed_without_changes: []\n"),
    )?;
    git(repository, &["add", "."])?;
    git(repository, &["commit", "-q", "-m", name])
}

fn git(repository: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(arguments)
        .current_dir(repository)
        .status()?;
    ensure!(status.success(), "git {arguments:?}: {status}");
    Ok(())
}

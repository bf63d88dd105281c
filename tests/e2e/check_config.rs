//! `saltern check-config` beside the start of the real program: the same answer, with its exit
//! code. The table of all kinds of mistakes is in `src/saltern/src/preflight/tests.rs`.

use anyhow::{Context, Result, ensure};
use saltern_tests::process::run;
use saltern_tests::site::SOON;
use saltern_tests::{Config, Release, Server, Site, TestResult};
use serde_json::Value;

const OURS: Server = Server::Saltern(Release::V3008);

/// With warnings, or with nothing worse than hints.
const WARNINGS: i32 = 1;
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const NO_PERMISSION: i32 = 77;

/// Output of `check-config --json`, with this exit code.
fn checked(site: &Site, code: i32) -> Result<Value> {
    let run = site.saltern(&["check-config", "--json"])?;
    run.expect_code(code)?;
    serde_json::from_str(&run.stdout).with_context(|| format!("no JSON: {run}"))
}

/// The severities of the findings about an option.
fn about(found: &Value, option: &str) -> Vec<String> {
    let findings = found["findings"].as_array().into_iter().flatten();
    let about = findings.filter(|finding| finding["option"] == option);
    let severities = about.filter_map(|finding| finding["severity"].as_str());
    severities.map(str::to_owned).collect()
}

#[test]
fn start_refusals_are_errors_with_the_same_text() -> TestResult {
    for (option, value, code) in [
        ("interface", "192.0.2.1", UNAVAILABLE),
        ("user", "nosuchuser", NO_PERMISSION),
        ("fileserver_backend", "[roots, hg]", USAGE),
        ("saltern_reactor_limits", "[x]", USAGE),
        ("tcp_keepalive_cnt", "1000", USAGE),
    ] {
        let configure = |config: &mut Config| {
            config.set(option, value).set("worker_thread", 3);
        };
        Site::prepared(OURS, configure, |site| {
            let found = checked(site, USAGE)?;
            ensure!(found["starts"] == false, "{found:#}");
            ensure!(
                about(&found, "worker_thread") == ["warning"],
                "an error hides a warning: {found:#}"
            );
            let run = run(&mut site.master_command(), SOON)?;
            run.expect_code(code)?;
            let errors = found["findings"].as_array().into_iter().flatten();
            let mut errors = errors.filter(|finding| finding["refuses_start"] == true);
            ensure!(
                errors.any(|finding| {
                    let message = finding["message"].as_str().unwrap_or("?");
                    run.stderr.contains(message)
                }),
                "{found:#}\n{run}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn lost_features_are_warnings_and_the_master_starts() -> TestResult {
    let configure = |config: &mut Config| {
        config
            .set("nodegroups", "{a: 'N@b', b: 'N@a'}")
            .set("reactor", "[{'salt/x': [/nowhere/x.sls]}]")
            .set("external_auth", "[pam]");
    };
    Site::prepared(OURS, configure, |site| {
        let found = checked(site, WARNINGS)?;
        for option in ["nodegroups", "reactor", "external_auth"] {
            let severities = about(&found, option);
            ensure!(
                severities.first().is_some_and(|it| it == "warning"),
                "{option}: {found:#}"
            );
        }
        ensure!(found["starts"] == true && found["errors"] == 0, "{found:#}");
        for option in ["nodegroups", "reactor", "external_auth"] {
            site.announce(&format!("{option}: "));
        }
        site.start_master()?;
        ensure!(site.stop_master()?.success());
        Ok(())
    })
}

#[test]
fn pillar_in_python_without_a_salt_is_an_error_and_the_master_starts() -> TestResult {
    let configure = |config: &mut Config| {
        config
            .set("ext_pillar", "[{of_the_site: x}]")
            .set("python_bridge", "/nowhere");
    };
    Site::prepared(OURS, configure, |site| {
        let found = checked(site, USAGE)?;
        ensure!(about(&found, "ext_pillar") == ["error"], "{found:#}");
        ensure!(found["starts"] == true, "{found:#}");
        site.announce("ext_pillar: \"of_the_site\" is not built in");
        site.start_master()?;
        ensure!(site.stop_master()?.success());
        Ok(())
    })
}

#[test]
fn options_are_explained_and_unknown_ones_are_refused() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            let explain = ["--explain", "gitfs_provider", "--explain", "worker_threads"];
            let run = site.saltern(&[&["check-config"], &explain[..]].concat())?;
            run.expect_code(0)?
                .expect_text("no effect")?
                .expect_text("honoured")?;
            let run = site.saltern(&["check-config", "--explain", "worker_thread"])?;
            run.expect_code(USAGE)?
                .expect_text("did you mean \"worker_threads\"?")?;
            Ok(())
        },
    )
}

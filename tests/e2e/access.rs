//! Users other than the master's own: stock's command lines of each line log in by file and by PAM,
//! get tokens, and run what their rules allow, against stock's master and against ours. What they
//! print and how they end is compared.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use saltern_tests::pam::{PamService, python_for_pam};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Release, Run, Server, Site, TestResult, run};

#[test]
fn users_of_3006_have_stocks_permissions() -> TestResult {
    Ok(compare(Release::V3006)?)
}

#[test]
fn users_of_3007_have_stocks_permissions() -> TestResult {
    Ok(compare(Release::V3007)?)
}

#[test]
fn users_of_3008_have_stocks_permissions() -> TestResult {
    Ok(compare(Release::V3008)?)
}

const ANA: &[&str] = &["-a", "file", "--username", "ana", "--password", "secret"];
const WRONG: &[&str] = &["-a", "file", "--username", "ana", "--password", "guess"];
const LIM: &[&str] = &["-a", "file", "--username", "lim", "--password", "limited"];
const NOBODY: &[&str] = &["-a", "file", "--username", "carl", "--password", "secret"];
const NO_BACKEND: &[&str] = &["-a", "auto", "--username", "ana", "--password", "secret"];
const PIA: &[&str] = &["-a", "pam", "--username", "pia", "--password", "secret"];
const PIA_WRONG: &[&str] = &["-a", "pam", "--username", "pia", "--password", "guess"];
/// A user that PAM knows, and whose account it does not let in.
const LOCKED: &[&str] = &["-a", "pam", "--username", "locked", "--password", "secret"];
const TOKEN: &[&str] = &["-T"];
/// For `salt-key`, whose `-a` accepts keys.
const KEY_ANA: &[&str] = &[
    "--eauth",
    "file",
    "--username",
    "ana",
    "--password",
    "secret",
];
const KEY_WRONG: &[&str] = &[
    "--eauth",
    "file",
    "--username",
    "ana",
    "--password",
    "guess",
];
const KEY_LIM: &[&str] = &[
    "--eauth",
    "file",
    "--username",
    "lim",
    "--password",
    "limited",
];
const KEY_PIA: &[&str] = &[
    "--eauth",
    "pam",
    "--username",
    "pia",
    "--password",
    "secret",
];

/// The program, who asks, and for what.
type Command = (
    &'static str,
    &'static [&'static [&'static str]],
    &'static [&'static str],
);

const COMMANDS: &[Command] = &[
    ("salt", &[ANA], &["m1", "test.ping"]),
    (
        "salt",
        &[ANA],
        &["m1", "test.ping,test.version", ",", "--out=json"],
    ),
    ("salt", &[ANA], &["m1", "grains.get", "id"]),
    ("salt", &[ANA], &["m1", "cmd.run", "id"]),
    ("salt", &[ANA], &["m1", "test.echo", "good"]),
    ("salt", &[ANA], &["nobody", "test.ping"]),
    ("salt", &[WRONG], &["m1", "test.ping"]),
    ("salt", &[NOBODY], &["m1", "test.ping"]),
    ("salt", &[NO_BACKEND], &["m1", "test.ping"]),
    ("salt", &[LIM], &["m1", "test.echo", "allowed"]),
    ("salt", &[LIM], &["m1", "test.echo", "other"]),
    ("salt", &[LIM], &["m1", "test.ping"]),
    ("salt", &[TOKEN, ANA], &["m1", "test.ping"]),
    ("salt", &[TOKEN, LIM], &["m1", "test.ping"]),
    ("salt", &[TOKEN, WRONG], &["m1", "test.ping"]),
    ("salt", &[PIA], &["m1", "test.ping"]),
    ("salt", &[PIA_WRONG], &["m1", "test.ping"]),
    ("salt", &[LOCKED], &["m1", "test.ping"]),
    (
        "salt-run",
        &[ANA],
        &["jobs.lookup_jid", "20200101000000000000"],
    ),
    (
        "salt-run",
        &[WRONG],
        &["jobs.lookup_jid", "20200101000000000000"],
    ),
    (
        "salt-run",
        &[LIM],
        &["jobs.lookup_jid", "20200101000000000000"],
    ),
    ("salt-key", &[KEY_ANA], &["--list", "all", "--out=json"]),
    ("salt-key", &[KEY_ANA], &["-y", "-r", "nobody"]),
    ("salt-key", &[KEY_ANA, TOKEN], &["-L"]),
    ("salt-key", &[KEY_WRONG], &["-L"]),
    ("salt-key", &[KEY_LIM], &["-L"]),
    ("salt-key", &[KEY_PIA], &["-L"]),
];

/// By `sudo`: the user, and for what. `publisher_acl` limits them with `sudo_acl`.
const BY_SUDO: &[(&str, &[&str])] = &[
    ("sue", &["m1", "test.ping"]),
    ("sue", &["m1", "grains.get", "id"]),
    ("stranger", &["m1", "test.ping"]),
];

/// Requests that must have been served.
const SERVED: &[&str] = &[
    "$ salt -a file --username ana --password secret m1 test.ping",
    "$ salt -a file --username lim --password limited m1 test.echo allowed",
    "$ salt -T -a file --username ana --password secret m1 test.ping",
    "$ salt -a pam --username pia --password secret m1 test.ping",
    "$ salt-run -a file --username ana --password secret jobs.lookup_jid",
    "$ salt-key --eauth file --username ana --password secret --list all",
    "$ sudo of sue: salt m1 test.ping",
];

fn compare(release: Release) -> Result<()> {
    let service = PamService::install()?;
    let mut transcripts = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        let configure = |config: &mut Config| {
            configure(config, release, &service);
            if !server.is_ours() {
                // Each round of stock's maintenance removes tokens that are being written at that moment.
                config.set("loop_interval", 3600);
            }
        };
        Site::run(server, configure, |site| {
            transcripts.push(transcript(site)?);
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    let [stock, ours] = <[Vec<String>; 2]>::try_from(transcripts)
        .map_err(|_| anyhow::anyhow!("two transcripts were made"))?;
    let pairs = stock.iter().zip(&ours);
    let different = pairs.filter(|(stock, ours)| stock != ours);
    let different: Vec<String> = different
        .map(|(stock, ours)| format!("===== stock\n{stock}\n===== ours\n{ours}"))
        .collect();
    ensure!(different.is_empty(), "{}", different.join("\n"));
    // So that two refusals of everything are not taken for agreement.
    for served in SERVED {
        let mut entries = ours.iter().filter(|entry| entry.starts_with(served));
        let is_served = entries.any(|entry| entry.contains("exit code Some(0)"));
        ensure!(is_served, "not served: {served}\n{}", ours.join("\n"));
    }
    service.remove()
}

fn configure(config: &mut Config, release: Release, service: &PamService) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let users = format!("{root}/users");
    std::fs::write(&users, "ana:secret\nlim:limited\n").expect("the site has a directory");
    let argument = "{test.echo: {args: ['^allowed$']}}";
    config
        // Everybody who is asked answers, however busy the machine is.
        .set("timeout", 60)
        .set("gather_job_timeout", 2)
        .set(
            "external_auth",
            format!(
                "{{file: {{'^filename': {users}, ana: ['test.*', '@runner', '@wheel'], \
                 lim: [{{'m*': [{argument}]}}]}}, pam: {{pia: ['test.*'], locked: ['.*']}}}}"
            ),
        )
        .set("publisher_acl", "{sue: ['test.*']}")
        .set("client_acl_verify", false)
        .set("sudo_acl", true)
        .set("publisher_acl_blacklist", "{modules: ['cmd.*']}")
        .set("auth.pam.service", &service.name)
        .set("auth.pam.python", python_for_pam(&root, release))
        .set("token_file", format!("{root}/token"));
}

/// Output and exit code of each command.
fn transcript(site: &mut Site) -> Result<Vec<String>> {
    // Every refusal is a line, as with stock.
    site.announce("request refused");
    site.bring_up(&[("m1", MinionKind::Stock(site.server().release()))])?;
    let mut out = Vec::new();
    for (program, who, what) in COMMANDS {
        let words = who.concat();
        let words = [words.as_slice(), what].concat();
        let done = run(&mut site.stock_command(program, &words), SOON * 2)?;
        out.push(shown(&done, &format!("{program} {}", words.join(" "))));
        tokens_are_private(&site.path("cache/tokens"))?;
    }
    for (user, what) in BY_SUDO {
        let mut command = site.stock_command("salt", what);
        let done = run(command.env("SUDO_USER", user), SOON * 2)?;
        out.push(shown(
            &done,
            &format!("sudo of {user}: salt {}", what.join(" ")),
        ));
    }
    Ok(out)
}

/// The tokens that there are lie in files of the master's user alone.
fn tokens_are_private(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        let mode = entry.metadata()?.permissions().mode() & 0o7777;
        ensure!(
            mode == 0o600,
            "{} has mode {mode:o}",
            entry.path().display()
        );
    }
    Ok(())
}

/// A command, without what differs from run to run: the remarks of Python about objects that were
/// not closed.
fn shown(run: &Run, command: &str) -> String {
    let plain = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("``destroy()``"));
        lines.collect::<Vec<_>>().join("\n")
    };
    format!(
        "$ {command}\nexit code {:?}\n{}\n--- stderr\n{}",
        run.code,
        plain(&run.stdout),
        plain(&run.stderr)
    )
}

//! Access rules: the verdicts of the command line are those of every endpoint.

use anyhow::{Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Run, Server, Site, TestResult, run};
use serde_json::{Value, json};

use super::{CLIENTS, Dialect, Interfaces};

/// A user: name, password, backend.
type User = (&'static str, &'static str, &'static str);

const ANA: User = ("ana", "secret", "file");
const LIM: User = ("lim", "limited", "file");
const ROY: User = ("roy", "runs", "file");
const WRONG: User = ("ana", "guess", "file");
const NOBODY: User = ("carl", "secret", "file");
const NO_BACKEND: User = ("ana", "secret", "auto");

/// Calls of minions: the user, the function and its arguments.
const OF_MINIONS: &[(User, &str, &[&str])] = &[
    (ANA, "test.ping", &[]),
    (ANA, "test.echo", &["good"]),
    (ANA, "grains.get", &["id"]),
    (ANA, "cmd.run", &["id"]),
    (LIM, "test.echo", &["allowed"]),
    (LIM, "test.echo", &["other"]),
    (LIM, "test.ping", &[]),
    (ROY, "test.ping", &[]),
    (WRONG, "test.ping", &[]),
    (NOBODY, "test.ping", &[]),
    (NO_BACKEND, "test.ping", &[]),
];

/// Call of the master: the user, the client, the function, and its arguments by name.
type OfTheMaster = (
    User,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const OF_THE_MASTER: &[OfTheMaster] = &[
    (
        ANA,
        "runner",
        "jobs.lookup_jid",
        &[("jid", "20200101000000000000")],
    ),
    (
        LIM,
        "runner",
        "jobs.lookup_jid",
        &[("jid", "20200101000000000000")],
    ),
    (
        ROY,
        "runner",
        "jobs.lookup_jid",
        &[("jid", "20200101000000000000")],
    ),
    (ROY, "runner", "test.arg", &[]),
    (
        WRONG,
        "runner",
        "jobs.lookup_jid",
        &[("jid", "20200101000000000000")],
    ),
    (ANA, "wheel", "key.finger", &[("match", "m1")]),
    (LIM, "wheel", "key.finger", &[("match", "m1")]),
    (ROY, "wheel", "key.finger", &[("match", "m1")]),
    (WRONG, "wheel", "key.finger", &[("match", "m1")]),
];

#[test]
fn every_endpoint_has_the_command_lines_verdicts() -> TestResult {
    for dialect in [Dialect::CherryPy, Dialect::Tornado] {
        let interfaces = Interfaces::new(&[dialect]);
        let server = Server::Saltern(Release::V3008);
        Site::run(
            server,
            |config| configure(config, dialect, interfaces.port()),
            |site| {
                site.announce("request refused");
                site.bring_up(&[("m1", MinionKind::Native)])?;
                interfaces.start(site)?;
                judge(site, dialect, interfaces.port())
            },
        )?;
    }
    Ok(())
}

fn configure(config: &mut Config, dialect: Dialect, port: u16) {
    let users = format!("{}/users", config.get("root_dir").unwrap_or_default());
    let known = "ana:secret\nlim:limited\nroy:runs\n";
    std::fs::write(&users, known).expect("the site has a directory");
    config
        .set(&dialect.section(), super::web(port))
        .set("netapi_enable_clients", CLIENTS)
        .set(
            "external_auth",
            format!(
                "{{file: {{'^filename': {users}, ana: ['test.*', '@runner', '@wheel'], \
                 lim: [{{'m*': [{{test.echo: {{args: ['^allowed$']}}}}]}}], \
                 roy: [{{'@runner': ['jobs.*']}}]}}}}"
            ),
        )
        .set("publisher_acl_blacklist", "{modules: ['cmd.*']}");
}

fn judge(site: &Site, dialect: Dialect, port: u16) -> Result<()> {
    let mut api = site.api_client(port)?;
    let mut wrong = Vec::new();
    let mut verdicts = [0, 0];
    for (user, fun, arguments) in OF_MINIONS {
        let words = [&["m1", fun], *arguments].concat();
        let expected = is_permitted_by_command(site, "salt", *user, &words)?;
        verdicts[usize::from(expected)] += 1;
        let chunk =
            |client: &str| json!({"client": client, "tgt": "m1", "fun": fun, "arg": arguments});
        let clients: &[&str] = match dialect {
            // Stock's rest_tornado has no others.
            Dialect::Tornado => &["local", "local_async"],
            // Not `local_subset`: as stock's, it calls `sys.list_functions` as the user first.
            _ => &["local", "local_async", "local_batch"],
        };
        for client in clients {
            compare(&mut api, *user, &chunk(client), expected, &mut wrong)?;
        }
    }
    for (user, client, fun, arguments) in OF_THE_MASTER {
        let (program, words) = match *client {
            "runner" => ("salt-run", words_of(fun, arguments)),
            _ => ("salt-key", vec!["-f".to_owned(), "m1".to_owned()]),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let expected = is_permitted_by_command(site, program, *user, &words)?;
        verdicts[usize::from(expected)] += 1;
        let mut chunk = json!({"client": client, "fun": fun});
        for (name, value) in *arguments {
            chunk[*name] = json!(value);
        }
        let has_wheel = dialect != Dialect::Tornado;
        if *client == "runner" || has_wheel {
            compare(&mut api, *user, &chunk, expected, &mut wrong)?;
            // Stock answers `wheel_async` with a jid whoever asks; its verdict is in the event.
            if *client == "runner" {
                chunk["client"] = json!("runner_async");
                compare(&mut api, *user, &chunk, expected, &mut wrong)?;
            }
        }
    }
    ensure!(wrong.is_empty(), "{dialect:?}:\n{}", wrong.join("\n"));
    // So that a door that is closed, or open, to all is seen.
    let [refused, permitted] = verdicts;
    ensure!(refused >= 8 && permitted >= 5, "{refused} and {permitted}");
    Ok(())
}

fn words_of(fun: &str, arguments: &[(&str, &str)]) -> Vec<String> {
    let arguments = arguments
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    std::iter::once(fun.to_owned()).chain(arguments).collect()
}

/// Whether stock's command lets a user have it.
fn is_permitted_by_command(site: &Site, program: &str, user: User, words: &[&str]) -> Result<bool> {
    let (name, password, eauth) = user;
    let option = if program == "salt-key" {
        "--eauth"
    } else {
        "-a"
    };
    let who = [option, eauth, "--username", name, "--password", password];
    let done: Run = run(
        &mut site.stock_command(program, &[&who, words].concat()),
        SOON * 2,
    )?;
    let text = format!("{}{}", done.stdout, done.stderr).to_lowercase();
    let refusals = [
        "authentication",
        "authorization",
        "not authorized",
        "denied",
    ];
    Ok(done.code == Some(0) && !refusals.iter().any(|refusal| text.contains(refusal)))
}

/// Notes where the endpoints differ from the verdict: a session at `/`, and credentials at `/run`.
fn compare(
    api: &mut Session,
    user: User,
    chunk: &Value,
    expected: bool,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let (name, password, eauth) = user;
    let credentials = json!({"username": name, "password": password, "eauth": eauth});
    let login = api.call(&json!({"method": "POST", "path": "/login", "json": credentials}))?;
    let at_root = if login["status"] == 200 {
        api.call(&json!({"method": "POST", "path": "/", "auth": true, "json": [chunk]}))?
    } else {
        login
    };
    let mut with_credentials = chunk.clone();
    for (name, value) in credentials.as_object().into_iter().flatten() {
        with_credentials[name] = value.clone();
    }
    let at_run =
        api.call(&json!({"method": "POST", "path": "/run", "json": [with_credentials]}))?;
    for (path, answer) in [("/", at_root), ("/run", at_run)] {
        if is_permitted(&answer) != expected {
            wrong.push(format!(
                "{path}: {user:?} {chunk}: the command line says {expected}, this {answer}"
            ));
        }
    }
    Ok(())
}

/// A status of success, and none of the refusals that stand in the body of one.
fn is_permitted(answer: &Value) -> bool {
    let text = answer["body"].to_string().to_lowercase();
    let refusals = ["failed to authenticate", "authentication", "authorization"];
    let is_refusal = refusals.iter().any(|refusal| text.contains(refusal));
    answer["status"].as_u64().is_some_and(|status| status < 300) && !is_refusal
}

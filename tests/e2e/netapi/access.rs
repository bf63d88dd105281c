//! Access rules: the verdicts of the command line are those of every endpoint.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Run, Server, Site, TestResult, run};
use serde_json::{Value, json};

use super::request::{Answer, Request};
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

/// Pages that read, and the command that reads the same.
const PAGES: &[(&str, &str, &[&str])] = &[
    ("/minions/m1", "salt", &["m1", "grains.items"]),
    ("/jobs", "salt-run", &["jobs.list_jobs"]),
    (
        "/jobs/20200101000000000000",
        "salt-run",
        &["jobs.list_job", "jid=20200101000000000000"],
    ),
    ("/keys", "salt-key", &["-l", "accepted"]),
    ("/keys/m1", "salt-key", &["-f", "m1"]),
];

/// The users who may log in, which is all that a hook asks for.
const LOG_INS: &[(User, bool)] = &[
    (ANA, true),
    (LIM, true),
    (ROY, true),
    (WRONG, false),
    (NOBODY, false),
    (NO_BACKEND, false),
];

#[test]
fn every_endpoint_has_the_command_lines_verdicts() -> TestResult {
    let interfaces = Interfaces::new(&[Dialect::CherryPy, Dialect::Tornado, Dialect::Wsgi]);
    Site::run(
        Server::Saltern(Release::V3008),
        |config| configure(config, &interfaces),
        |site| {
            site.announce("request refused");
            site.announce("a call of the API failed");
            site.bring_up(&[("m1", MinionKind::Native)])?;
            interfaces.start(site)?;
            judge(site, &interfaces)
        },
    )
}

fn configure(config: &mut Config, interfaces: &Interfaces) {
    let users = format!("{}/users", config.get("root_dir").unwrap_or_default());
    let known = "ana:secret\nlim:limited\nroy:runs\n";
    std::fs::write(&users, known).expect("the site has a directory");
    for (dialect, port) in &interfaces.0 {
        config.set(&dialect.section(), super::web(*port));
    }
    config
        .set("timeout", 60)
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

fn judge(site: &Site, interfaces: &Interfaces) -> Result<()> {
    let of = |(dialect, port): &(Dialect, u16)| Interface {
        dialect: *dialect,
        port: *port,
        sessions: BTreeMap::new(),
    };
    let mut judged = Judged {
        interfaces: interfaces.0.iter().map(of).collect(),
        wrong: Vec::new(),
        verdicts: [0, 0],
    };
    for (user, fun, arguments) in OF_MINIONS {
        let words = [&["m1", fun], *arguments].concat();
        let expected = is_permitted_by_command(site, "salt", *user, &words)?;
        let chunk = json!({"tgt": "m1", "fun": fun, "arg": arguments});
        // Not `local_subset`: as stock's, it calls `sys.list_functions` as the user first.
        for client in ["local", "local_async", "local_batch"] {
            judged.low(*user, client, &chunk, expected)?;
        }
        let started = Request::post("/minions", &json!([chunk]));
        judged.page(*user, started, "/minions", expected)?;
    }
    for (user, client, fun, arguments) in OF_THE_MASTER {
        let (program, words) = match *client {
            "runner" => ("salt-run", words_of(fun, arguments)),
            _ => ("salt-key", vec!["-f".to_owned(), "m1".to_owned()]),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let expected = is_permitted_by_command(site, program, *user, &words)?;
        let mut chunk = json!({"fun": fun});
        for (name, value) in *arguments {
            chunk[*name] = json!(value);
        }
        judged.low(*user, client, &chunk, expected)?;
        // Stock answers `wheel_async` with a jid whoever asks; its verdict is in the event.
        if *client == "runner" {
            judged.low(*user, "runner_async", &chunk, expected)?;
        }
    }
    for (path, program, words) in PAGES {
        for user in [ANA, LIM, ROY, WRONG] {
            let expected = is_permitted_by_command(site, program, user, words)?;
            judged.page(user, Request::get(path), path, expected)?;
        }
    }
    for (user, expected) in LOG_INS {
        let hook = Request::post("/hook/built", &json!({}));
        judged.page(*user, hook, "/hook/built", *expected)?;
    }
    judged.end()
}

/// One interface of the master, and the sessions of users who could log in.
struct Interface {
    dialect: Dialect,
    port: u16,
    sessions: BTreeMap<User, Option<String>>,
}

impl Interface {
    fn has(&self, client: &str) -> bool {
        // Stock's rest_tornado has no others.
        let of_tornado = ["local", "local_async", "runner", "runner_async"];
        self.dialect != Dialect::Tornado || of_tornado.contains(&client)
    }

    /// The token of the user's session, unless the user cannot log in.
    fn session(&mut self, user: User) -> Result<Option<String>> {
        if let Some(known) = self.sessions.get(&user) {
            return Ok(known.clone());
        }
        let answer = Request::post("/login", &credentials(user)).send(self.port)?;
        let token = match answer.status {
            200 => {
                let answer = answer.json()?;
                let token = answer["return"][0]["token"].as_str();
                Some(token.with_context(|| answer.to_string())?.to_owned())
            }
            _ => None,
        };
        self.sessions.insert(user, token.clone());
        Ok(token)
    }

    /// Sends a request with the user's session; none without one.
    fn with_session(&mut self, user: User, request: Request) -> Result<Option<Answer>> {
        match self.session(user)? {
            Some(token) => {
                let request = request.header("X-Auth-Token", &token);
                request.send(self.port).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// Findings about the interfaces.
struct Judged {
    interfaces: Vec<Interface>,
    wrong: Vec<String>,
    /// How many verdicts were refusals, and how many permissions.
    verdicts: [usize; 2],
}

impl Judged {
    /// A command at `/` with a session, and with credentials at `/run`.
    fn low(&mut self, user: User, client: &str, chunk: &Value, expected: bool) -> Result<()> {
        self.verdicts[usize::from(expected)] += 1;
        let mut chunk = chunk.clone();
        chunk["client"] = json!(client);
        let mut with_credentials = chunk.clone();
        for (name, value) in credentials(user).as_object().into_iter().flatten() {
            with_credentials[name] = value.clone();
        }
        for interface in &mut self.interfaces {
            if !interface.has(client) {
                continue;
            }
            let (port, is_wsgi) = (interface.port, interface.dialect == Dialect::Wsgi);
            // rest_wsgi has this page alone, and no sessions.
            let path = if is_wsgi { "/" } else { "/run" };
            let answer = Request::post(path, &json!([with_credentials])).send(port)?;
            let mut answers = vec![(path, Some(answer))];
            if !is_wsgi {
                let request = Request::post("/", &json!([chunk]));
                answers.push(("/", interface.with_session(user, request)?));
            }
            for (path, answer) in answers {
                if answer.as_ref().is_some_and(is_permitted) != expected {
                    self.wrong.push(format!(
                        "{:?} {path}: {user:?} {chunk}: {expected} is expected, not {answer:?}",
                        interface.dialect
                    ));
                }
            }
        }
        Ok(())
    }

    /// A page that takes a session.
    fn page(&mut self, user: User, request: Request, path: &str, expected: bool) -> Result<()> {
        self.verdicts[usize::from(expected)] += 1;
        for interface in &mut self.interfaces {
            let has_page = match interface.dialect {
                Dialect::CherryPy => true,
                Dialect::Tornado => !path.starts_with("/keys"),
                Dialect::Wsgi => false,
            };
            if !has_page {
                continue;
            }
            let answer = interface.with_session(user, request.clone())?;
            if answer.as_ref().is_some_and(is_permitted) != expected {
                self.wrong.push(format!(
                    "{:?} {path}: {user:?}: {expected} is expected, not {answer:?}",
                    interface.dialect
                ));
            }
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        ensure!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        // So that an interface that is closed, or open, to all is seen.
        let [refused, permitted] = self.verdicts;
        ensure!(
            refused >= 50 && permitted >= 20,
            "{refused} and {permitted}"
        );
        Ok(())
    }
}

fn credentials((name, password, eauth): User) -> Value {
    json!({"username": name, "password": password, "eauth": eauth})
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

/// A status of success, and none of the refusals that stand in the body of one.
fn is_permitted(answer: &Answer) -> bool {
    let text = answer.body.to_lowercase();
    let refusals = ["failed to authenticate", "authentication", "authorization"];
    let is_refusal = refusals.iter().any(|refusal| text.contains(refusal));
    answer.status < 300 && !is_refusal
}

//! Returners and modules of `external_auth` that are written in Python: what a site's own modules
//! are given by our master is what stock's master gives them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

/// Modules of a site's own. The returner writes what it is given as lines of JSON.
const MODULES: &[(&str, &str)] = &[
    (
        "ext/returners/site_lines.py",
        "import json, os\n\
         def write(*what):\n    \
             path = os.path.join(__opts__['root_dir'], 'lines')\n    \
             with open(path, 'a') as out:\n        \
                 out.write(json.dumps(what) + '\\n')\n\
         def event_return(events):\n    \
             for event in events:\n        \
                 write('event', event)\n",
    ),
    (
        "ext/returners/site_jobs.py",
        "import json, os, time\n\
         import salt.utils.jid\n\
         def path(name):\n    \
             return os.path.join(__opts__['root_dir'], name)\n\
         def write(*what):\n    \
             with open(path('lines'), 'a') as out:\n        \
                 out.write(json.dumps(what) + '\\n')\n\
         def keep(name, what):\n    \
             with open(path(name), 'w') as out:\n        \
                 json.dump(what, out)\n\
         def kept(name):\n    \
             try:\n        \
                 with open(path(name)) as what:\n            \
                     return json.load(what)\n    \
             except OSError:\n        \
                 return {}\n\
         def prep_jid(nocache=False, passed_jid=None):\n    \
             write('prep_jid', nocache)\n    \
             return passed_jid or salt.utils.jid.gen_jid(__opts__)\n\
         def save_load(jid, clear_load, minions=None):\n    \
             if os.path.exists(path('hang')):\n        \
                 keep('pid', os.getpid())\n        \
                 time.sleep(600)\n    \
             write('save_load', jid, clear_load, minions)\n    \
             if minions is not None:\n        \
                 keep('load_' + jid, clear_load)\n\
         def get_load(jid):\n    \
             return kept('load_' + jid)\n\
         def returner(load):\n    \
             write('returner', load)\n    \
             keep('job_' + load['jid'], {load['id']: {'return': load['return']}})\n\
         def get_jid(jid):\n    \
             return kept('job_' + jid)\n\
         def update_endtime(jid, time):\n    \
             write('update_endtime', jid, len(time))\n",
    ),
    (
        "ext/auth/site_auth.py",
        "def auth(username, password):\n    \
             if username == 'boom':\n        \
                 raise ValueError('the directory is away')\n    \
             return password == 'open ' + username\n\
         def groups(username, **kwargs):\n    \
             return ['ops'] if username == 'gus' else []\n",
    ),
    (
        "ext/auth/own_rules.py",
        "def auth(username, password):\n    \
             return password == 'open ' + username\n\
         def acl(username, **kwargs):\n    \
             return ['test.' + username, '@jobs']\n",
    ),
];

fn write_modules(site: &Site) -> Result<()> {
    for (name, text) in MODULES {
        let path = site.path(name);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Both masters with the same modules; ours with the Python of the release.
fn with_modules(config: &mut Config, server: Server) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    config
        .set("extension_modules", format!("{root}/ext"))
        .set("timeout", 60);
    if server.is_ours() {
        let python = server.release().program("python3");
        config.set("python_bridge", python.display());
    }
}

/// Results of the same scenario under both masters.
fn of_both<T>(
    release: Release,
    configure: impl Fn(&mut Config, Server),
    scenario: impl Fn(&mut Site) -> Result<T>,
) -> Result<[T; 2]> {
    let mut answers = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        let configure = |config: &mut Config| configure(config, server);
        Site::prepared(server, configure, |site| {
            write_modules(site)?;
            site.start_master()?;
            answers.push(scenario(site)?);
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    <[T; 2]>::try_from(answers).map_err(|_| anyhow::anyhow!("two masters were asked"))
}

/// The lines of a file of JSON, without what differs from run to run.
fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let line = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        Ok(plain(line))
    });
    lines.collect()
}

/// A value whose jids and times are all the same.
fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let is_jid = |word: &str| word.len() == 20 && word.parse::<u128>().is_ok();
            let words = text.split('/');
            let words: Vec<&str> = words
                .map(|word| if is_jid(word) { "JID" } else { word })
                .collect();
            Value::from(words.join("/"))
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(entries) => {
            let entries = entries
                .into_iter()
                .map(|(name, value)| match name.as_str() {
                    "_stamp" | "ts" => (name, Value::from("TIME")),
                    _ => (name, plain(value)),
                });
            Value::Object(entries.collect())
        }
        other => other,
    }
}

#[test]
fn returners_of_3006_get_the_events_that_stock_gives_them() -> TestResult {
    Ok(compare_events(Release::V3006)?)
}

#[test]
fn returners_of_3007_get_the_events_that_stock_gives_them() -> TestResult {
    Ok(compare_events(Release::V3007)?)
}

#[test]
fn returners_of_3008_get_the_events_that_stock_gives_them() -> TestResult {
    Ok(compare_events(Release::V3008)?)
}

/// The last event that is fired, which both returners get.
const LAST_TAG: &str = "site/not/44";

fn compare_events(release: Release) -> Result<()> {
    let configure = |config: &mut Config, server: Server| {
        with_modules(config, server);
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        let own = if server.is_ours() { "saltern, " } else { "" };
        config
            .set("event_return", format!("[{own}site_lines, rawfile_json]"))
            .set("event_return_whitelist", "['salt/job/*', 'site/*']")
            .set("event_return_blacklist", "['*/not/?']")
            .set("rawfile_json.filename", format!("{root}/raw"));
    };
    let [stock, ours] = of_both(release, configure, |site| {
        if site.server().is_ours() {
            site.announce("rawfile_json.filename: no such option");
        }
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        site.salt(&["m1", "test.echo", "grüße"])?.expect_code(0)?;
        for (tag, data) in [
            ("site/1", "{n: [1, 2.5, true, null]}"),
            ("site/not/2", "{}"),
            ("other", "{}"),
            ("site/3", "{text: größe}"),
            (LAST_TAG, "{}"),
        ] {
            let run = site.salt_run(&["event.send", tag, &format!("data={data}")])?;
            run.expect_code(0)?;
        }
        let written = ["lines", "raw"].map(|name| {
            wait_until("the lines of a returner", SOON, || {
                let mut lines = lines(&site.path(name)).ok()?;
                if !site.server().is_ours() {
                    // A minion sends a return once more whose answer is late, and stock's master fires it again.
                    lines.dedup();
                }
                let is_last = |line: &Value| line.to_string().contains(LAST_TAG);
                lines.iter().any(is_last).then_some(lines)
            })
        });
        let [own, raw] = written;
        let written = [own?, raw?];
        if site.server().is_ours() {
            kept_by_ourselves(site, &written)?;
        }
        Ok(written)
    })?;
    ensure!(stock == ours, "--- stock\n{stock:#?}\n--- ours\n{ours:#?}");
    Ok(())
}

/// `saltern events` prints the same events once more.
fn kept_by_ourselves(site: &Site, [own, _]: &[Vec<Value>; 2]) -> Result<()> {
    let kept = wait_until("the events in the job database", SOON, || {
        let run = site.saltern(&["events"]).ok()?;
        let lines: Vec<Value> = run
            .stdout
            .lines()
            .map_while(|line| serde_json::from_str(line).ok())
            .collect();
        (lines.len() >= own.len()).then_some(lines)
    })?;
    let tags = |lines: &[Value], of: fn(&Value) -> &Value| -> Vec<Value> {
        lines
            .iter()
            .map(|line| plain(of(line)["tag"].clone()))
            .collect()
    };
    let (kept, own) = (tags(&kept, |line| line), tags(own, |line| &line[1]));
    ensure!(kept == own, "--- kept\n{kept:#?}\n--- returned\n{own:#?}");
    let some = site.saltern(&["events", "--tag", "site/*", "--limit", "1"])?;
    let shown: Value = serde_json::from_str(&some.expect_code(0)?.stdout)?;
    ensure!(shown["tag"] == "site/not/44", "{shown}");
    Ok(())
}

#[test]
fn queued_events_reach_the_returner_before_the_stop() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    let configure = |config: &mut Config| {
        with_modules(config, server);
        config
            .set("event_return", "site_lines")
            .set("event_return_whitelist", "['site/*']")
            .set("event_return_queue", 1000);
    };
    Site::prepared(server, configure, |site| {
        write_modules(site)?;
        site.start_master()?;
        for tag in ["site/1", "site/2"] {
            site.salt_run(&["event.send", tag])?.expect_code(0)?;
            // Nobody answers what fires an event.
            site.events().tag(tag, SOON)?;
        }
        ensure!(
            lines(&site.path("lines"))?.is_empty(),
            "they wait for others"
        );
        let status = site.stop_master()?;
        ensure!(status.success(), "{status}");
        let tags: Vec<Value> = lines(&site.path("lines"))?
            .iter()
            .map(|line| line[1]["tag"].clone())
            .collect();
        ensure!(tags == ["site/1", "site/2"], "{tags:?}");
        Ok(())
    })
}

#[test]
fn without_a_python_the_returner_is_named_and_everything_else_works() -> TestResult {
    let release = Release::V3008;
    let configure = |config: &mut Config| {
        config
            .set("timeout", 60)
            .set("event_return", "[nowhere, saltern]")
            .set("python_bridge", false);
    };
    Site::prepared(Server::Saltern(release), configure, |site| {
        site.announce("event_return: \"nowhere\" is not built in");
        site.announce("the returner \"nowhere\" can only be run by Python");
        let check = site.saltern(&["check-config"])?;
        check
            .expect_text("\"nowhere\"")?
            .expect_text("python_bridge")?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        site.salt(&["m1", "test.ping"])?.expect_code(0)?;
        // The event goes to the command before it is in the database.
        wait_until("the event in the job database", SOON, || {
            let run = site
                .saltern(&["events", "--tag", "salt/job/*/ret/m1"])
                .ok()?;
            (run.code == Some(0) && run.stdout.contains("test.ping")).then_some(())
        })
    })
}

/// Users, the module of their log-in, and their requests.
const LOGINS: &[(&str, &str, &str, &[&str])] = &[
    ("site_auth", "ann", "open ann", &["test.echo", "hello"]),
    ("site_auth", "ann", "open ann", &["grains.get", "id"]),
    ("site_auth", "ann", "wrong", &["test.echo", "hello"]),
    ("site_auth", "gus", "open gus", &["grains.get", "id"]),
    ("site_auth", "boom", "open boom", &["test.echo", "hello"]),
    ("site_auth", "zoe", "open zoe", &["test.echo", "hello"]),
    ("own_rules", "echo", "open echo", &["test.echo", "hello"]),
    ("own_rules", "echo", "open echo", &["test.ping"]),
    ("no_such", "ann", "open ann", &["test.echo", "hello"]),
];

#[test]
fn eauth_modules_of_3006_admit_stocks_users() -> TestResult {
    Ok(compare_logins(Release::V3006)?)
}

#[test]
fn eauth_modules_of_3007_admit_stocks_users() -> TestResult {
    Ok(compare_logins(Release::V3007)?)
}

#[test]
fn eauth_modules_of_3008_admit_stocks_users() -> TestResult {
    Ok(compare_logins(Release::V3008)?)
}

fn compare_logins(release: Release) -> Result<()> {
    let configure = |config: &mut Config, server: Server| {
        with_modules(config, server);
        let rules = "{site_auth: {ann: ['test.*'], 'ops%': ['grains.*']}, own_rules: {x: []}}";
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        config
            .set("external_auth", rules)
            .set("token_file", format!("{root}/token"));
        if !server.is_ours() {
            // Each round of stock's maintenance removes tokens that are being written at that moment.
            config.set("loop_interval", 3600);
        }
    };
    let [stock, ours] = of_both(release, configure, |site| {
        site.announce("request refused");
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        let mut printed = Vec::new();
        for (eauth, user, password, what) in LOGINS {
            let who = [
                "-a",
                eauth,
                "--username",
                user,
                "--password",
                password,
                "m1",
            ];
            let run = site.salt(&[who.as_slice(), what].concat())?;
            printed.push((run.code, run.stdout.trim().to_owned()));
        }
        // A token has the rules of the module, which is not asked again.
        for what in ["test.echo", "test.ping"] {
            let who = [
                "-T",
                "-a",
                "own_rules",
                "--username",
                "echo",
                "--password",
                "open echo",
            ];
            let run = site.salt(&[who.as_slice(), &["m1", what, "x"]].concat())?;
            printed.push((run.code, run.stdout.trim().to_owned()));
        }
        Ok(printed)
    })?;
    ensure!(stock == ours, "--- stock\n{stock:#?}\n--- ours\n{ours:#?}");
    // So that refusals of everything are not taken for agreement.
    let served = ours.iter().filter(|(code, _)| *code == Some(0));
    ensure!(served.count() >= 4, "{ours:#?}");
    Ok(())
}

#[test]
fn job_cache_of_3006_gets_stocks_calls_and_serves_stock() -> TestResult {
    Ok(compare_jobs(Release::V3006)?)
}

#[test]
fn job_cache_of_3007_gets_stocks_calls_and_serves_stock() -> TestResult {
    Ok(compare_jobs(Release::V3007)?)
}

#[test]
fn job_cache_of_3008_gets_stocks_calls_and_serves_stock() -> TestResult {
    Ok(compare_jobs(Release::V3008)?)
}

fn compare_jobs(release: Release) -> Result<()> {
    let configure = |config: &mut Config, server: Server| {
        with_modules(config, server);
        config
            .set("master_job_cache", "site_jobs")
            .set("job_cache_store_endtime", true);
    };
    let [stock, ours] = of_both(release, configure, |site| {
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        // The client of a first job gives up after three seconds, in which the returner's Python may
        // not have started: its outcome does not count.
        let has_ended = |given: &[Value]| given.iter().any(|line| line[0] == "update_endtime");
        site.salt(&["m1", "test.ping"])?;
        let before = wait_until("the first job's end", SOON, || {
            let lines = lines(&site.path("lines")).ok()?;
            has_ended(&lines).then_some(lines.len())
        })?;
        let run = site.salt(&["m1", "test.echo", "grüße", "--show-jid"])?;
        run.expect_code(0)?.expect_text("grüße")?;
        let jid = run.jid()?.to_owned();
        let given = wait_until("the calls of the job cache", SOON, || {
            let mut lines = lines(&site.path("lines")).ok()?.split_off(before);
            // A minion sends a return once more whose answer is late, and stock's master stores it again: that of the
            // first job is before the second one, and that of the second one behind its end.
            let begin = lines.iter().position(|line| line[0] == "prep_jid")?;
            let mut lines = lines.split_off(begin);
            let end = lines.iter().position(|line| line[0] == "update_endtime")?;
            lines.truncate(end + 1);
            Some(lines)
        })?;
        let found = site.salt_run(&["jobs.lookup_jid", &jid, "--out=json"])?;
        let found: Value = serde_json::from_str(&found.expect_code(0)?.stdout)?;
        ensure!(found["m1"] == "grüße", "{found}");
        Ok((given, found))
    })?;
    ensure!(stock == ours, "--- stock\n{stock:#?}\n--- ours\n{ours:#?}");
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_when_the_python_of_a_job_cache_is_killed() -> TestResult {
    let release = Release::V3008;
    let server = Server::Saltern(release);
    let configure = |config: &mut Config| {
        with_modules(config, server);
        // Nothing but the test ends a call.
        config
            .set("master_job_cache", "site_jobs")
            .set("python_bridge_timeout", 600);
    };
    Site::prepared(server, configure, |site| {
        write_modules(site)?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        site.announce("the returner does not take jobs");
        fs::write(site.path("hang"), "")?;
        let mark = site.events().mark();
        // One after the other, as the minion runs each in a process of its own.
        for text in ["one", "two", "three"] {
            site.salt(&["m1", "test.echo", text, "--async"])?
                .expect_code(0)?;
            site.events().find_since(mark, "a return", SOON, |event| {
                let is_it = event.tag.ends_with("/ret/m1") && event.data["return"] == text;
                is_it.then_some(())
            })?;
        }
        let pid = wait_until("the returner to hang", SOON, || {
            let text = fs::read_to_string(site.path("pid")).ok()?;
            text.trim().parse::<i32>().ok()
        })?;
        // The master too: what it acknowledged it finds again in its database.
        fs::remove_file(site.path("hang"))?;
        let pid = rustix::process::Pid::from_raw(pid).context("a process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        site.kill_master();
        site.start_master()?;
        let returns = wait_until("all three at the returner", SOON, || {
            let lines = lines(&site.path("lines")).ok()?;
            let returns = lines.iter().filter(|line| line[0] == "returner");
            let returns = returns.filter(|line| line[1]["fun"] == "test.echo");
            let mut texts: Vec<Value> = returns.map(|line| line[1]["return"].clone()).collect();
            // A new Python may have had the first one before the master was killed, which gives it once more.
            texts.dedup();
            (texts.len() >= 3).then_some(texts)
        })?;
        ensure!(returns == ["one", "two", "three"], "{returns:?}");
        Ok(())
    })
}

//! `engines` under our master beside stock's: a script, webhooks, and an engine of the site's own.
//! Then what only ours promises: an engine that dies comes back, one that cannot work is given up
//! and harms no other, and nothing of them outlives the master.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use saltern_tests::authority::Authority;
use saltern_tests::port::free_port;
use saltern_tests::process::run;
use saltern_tests::site::{Failure, SOON};
use saltern_tests::{Config, Event, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

/// Fires an event with its identity in a loop; writes a file on `SIGTERM`.
const SITE_ENGINE: &str = "import os, time\n\
    import salt.utils.event\n\
    def start(greeting, path):\n    \
        bus = salt.utils.event.get_master_event(__opts__, __opts__['sock_dir'])\n    \
        status = {'greeting': greeting, 'echo': __salt__['test.echo']('e'), 'id': __opts__['id'],\n            \
                'runners': 'jobs.active' in __runners__, 'role': __opts__['__role']}\n    \
        try:\n        \
            while True:\n            \
                bus.fire_event(dict(status), 'site/engine')\n            \
                bus.fire_event({'pid': os.getpid()}, 'site/pid')\n            \
                time.sleep(0.2)\n    \
        finally:\n        \
            with open(path, 'w') as out:\n            \
                out.write('cleared up')\n";

/// Output of the script: events, a line that is none, and a line on standard error.
const LINES: &str = "echo '{\"tag\": \"site/one\", \"data\": {\"x\": [1, null, true, 2.5, \"ä\"]}}'\n\
    echo '{\"tag\": \"site/id\", \"data\": {\"id\": \"mine\", \"n\": {\"a\": {}}}}'\n\
    echo '{\"data\": {\"no\": \"tag\"}}'\n\
    echo '{\"tag\": \"site/error\", \"data\": {\"by\": \"errors\"}}' >&2\n\
    printf '{\"tag\": \"site/empty\"}'\n";

fn write(site: &Site, name: &str, text: &str) -> Result<()> {
    let path = site.path(name);
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    Ok(fs::write(path, text)?)
}

fn with_modules(config: &mut Config, server: Server) -> String {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    config.set("extension_modules", format!("{root}/ext"));
    if server.is_ours() {
        let python = server.release().program("python3");
        config.set("python_bridge", python.display());
    }
    root
}

#[test]
fn engines_fire_the_events_of_stocks_3006() -> TestResult {
    engines_fire_the_events_of_stocks(Release::V3006)
}

#[test]
fn engines_fire_the_events_of_stocks_3007() -> TestResult {
    engines_fire_the_events_of_stocks(Release::V3007)
}

#[test]
fn engines_fire_the_events_of_stocks_3008() -> TestResult {
    engines_fire_the_events_of_stocks(Release::V3008)
}

fn engines_fire_the_events_of_stocks(release: Release) -> TestResult {
    let stock = events_of(Server::Stock(release)).map_err(Failure::into_error)?;
    let ours = events_of(Server::Saltern(release)).map_err(Failure::into_error)?;
    if stock != ours {
        let version = release.version();
        Err(anyhow::anyhow!(
            "{version}\n--- stock\n{stock:#?}\n--- ours\n{ours:#?}"
        ))?;
    }
    Ok(())
}

/// The first event of each tag, without its time and the ports of this site.
fn events_of(server: Server) -> Result<BTreeMap<String, String>, Failure> {
    let ports = [free_port(), free_port()];
    let mut events = BTreeMap::new();
    let configure = |config: &mut Config| {
        let root = with_modules(config, server);
        let [plain, secure] = ports;
        config.set(
            "engines",
            format!(
                "\n  - script: {{cmd: /bin/sh {root}/lines.sh}}\
                 \n  - yaml: {{engine_module: script, cmd: \"echo '{{tag: site/yaml, data: {{a: 1}}}}'\", \
                      output: yaml, interval: 0.5}}\
                 \n  - webhook: {{address: 127.0.0.1, port: {plain}}}\
                 \n  - secure: {{engine_module: webhook, address: 127.0.0.1, port: {secure}, \
                      ssl_crt: {root}/tls/cert.pem, ssl_key: {root}/tls/key.pem}}\
                 \n  - site_engine: {{greeting: hello, path: {root}/ended}}\
                 \n  - test"
            ),
        );
    };
    Site::prepared(server, configure, |site| {
        write(site, "lines.sh", LINES)?;
        write(site, "ext/engines/site_engine.py", SITE_ENGINE)?;
        fs::create_dir_all(site.path("tls"))?;
        Authority::make(&site.path("tls"))?;
        site.start_master()?;
        let posted = post(site, ports)?;
        ensure!(
            posted == "200\n200\n200\n405\n200\n",
            "answers of webhooks: {posted}"
        );
        for tag in [
            "site/one",
            "site/id",
            "site/error",
            "site/empty",
            "site/yaml",
            "site/engine",
            "salt/engines/hook/form/a b",
            "salt/engines/hook/",
            "salt/engines/hook/json",
            "salt/engines/hook/secure",
        ] {
            let event = site.events().tag(tag, SOON)?;
            events.insert(tag.to_owned(), without_ports(event, ports));
        }
        Ok(())
    })?;
    Ok(events)
}

fn without_ports(mut event: Event, ports: [u16; 2]) -> String {
    if let Some(data) = event.data.as_object_mut() {
        data.remove("_stamp");
    }
    let text = event.data.to_string();
    ports
        .iter()
        .fold(text, |text, port| text.replace(&port.to_string(), "PORT"))
}

/// Posts to both webhooks, once they listen.
fn post(site: &Site, [plain, secure]: [u16; 2]) -> Result<String> {
    for port in [plain, secure] {
        let address = ("127.0.0.1", port);
        wait_until("a webhook to listen", SOON, || {
            std::net::TcpStream::connect(address).ok()
        })?;
    }
    let at = |path: &str| format!("http://127.0.0.1:{plain}/{path}");
    let form = json!({"Content-Type": "application/x-www-form-urlencoded", "X-twice-A": "b"});
    let calls = [
        json!({"url": at("form/a%20b?q=1"), "body": "a=1&b=%20", "headers": form}),
        json!({"url": at(""), "body": ""}),
        json!({"url": at("json"), "body": "{\"a\": [1, \"ä\"]}",
               "headers": {"Content-Type": "application/json"}}),
        json!({"url": at("get"), "method": "GET"}),
        json!({"url": format!("https://127.0.0.1:{secure}/secure"), "body": "s"}),
    ];
    let calls = calls.map(|call: Value| call.to_string());
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let mut command = site.stock_peer("post.py", &calls);
    Ok(run(&mut command, SOON)?.stdout)
}

#[test]
fn an_engine_that_dies_comes_back_and_one_that_cannot_work_is_given_up() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    let configure = |config: &mut Config| {
        let root = with_modules(config, server);
        config.set("saltern_engine_restarts", 2).set(
            "engines",
            format!(
                "\n  - site_engine: {{greeting: hello, path: {root}/ended}}\
                 \n  - broken: {{path: {root}/listening}}\
                 \n  - nowhere: {{engine_module: script, cmd: {root}/nothing}}\
                 \n  - endless: {{engine_module: script, cmd: /bin/sh {root}/endless.sh}}"
            ),
        );
    };
    Site::prepared(server, configure, |site| {
        write(site, "ext/engines/site_engine.py", SITE_ENGINE)?;
        // Not before somebody listens.
        let broken = "import os, time\n\
            def start(path):\n    \
                while not os.path.exists(path):\n        \
                    time.sleep(0.1)\n    \
                raise ValueError('it cannot be done')\n";
        write(site, "ext/engines/broken.py", broken)?;
        // A child that the shell waits for, and its number for the test.
        let child = site.path("child");
        let endless = format!("sleep 600 &\necho $! > {}\nwait\n", child.display());
        write(site, "endless.sh", &endless)?;
        site.announce("an engine has ended; it is started again");
        site.announce("an engine is given up");
        site.start_master()?;
        write(site, "listening", "")?;

        site.step("those that cannot work");
        let reason = site
            .events()
            .find("an engine to be given up", SOON, |event| {
                let is_it =
                    event.tag == "saltern/engine/given_up" && event.data["engine"] == "broken";
                is_it.then(|| event.data["reason"].to_string())
            })?;
        ensure!(
            reason.contains("it cannot be done"),
            "the reason is {reason}"
        );
        // The one without a program may have been given up before anybody listened.
        for name in ["broken", "nowhere"] {
            let mut counts = (0.0, 0.0);
            let given_up = wait_until(&format!("{name} to be given up"), SOON, || {
                let failures = site.metric("saltern_engine_failures_total", name).ok()?;
                let given_up = site.metric("saltern_engines_given_up_total", name).ok()?;
                counts = (failures, given_up);
                (counts == (3.0, 1.0)).then_some(())
            });
            given_up.with_context(|| format!("{name}: {counts:?}"))?;
        }

        site.step("one that is killed");
        let first = pid_of(&site.events().tag("site/pid", SOON)?)?;
        let mark = site.events().mark();
        kill_process(first, Signal::KILL)?;
        let second = site
            .events()
            .find_since(mark, "the engine to come back", SOON, |event| {
                let pid = (event.tag == "site/pid").then(|| pid_of(event).ok())??;
                (pid != first).then_some(pid)
            })?;

        site.step("all end with the master");
        let child = wait_until("the script to start its child", SOON, || {
            let number = fs::read_to_string(&child).ok()?.trim().parse().ok()?;
            Pid::from_raw(number)
        })?;
        let status = site.stop_master()?;
        ensure!(status.success(), "the master's exit was {status}");
        for pid in [second, child] {
            wait_until("a process to be gone", SOON, || is_gone(pid).then_some(()))?;
        }
        let ended = fs::read_to_string(site.path("ended")).context("it did not clear up")?;
        ensure!(ended == "cleared up", "it wrote {ended}");
        Ok(())
    })
}

fn pid_of(event: &Event) -> Result<Pid> {
    let pid = event.data["pid"].as_i64().context("no process id")?;
    Pid::from_raw(i32::try_from(pid)?).context("no process id")
}

/// Whether a process has ended, waited for or not.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn without_python_the_engine_and_the_option_are_named() -> TestResult {
    let configure = |config: &mut Config| {
        config
            .set("python_bridge", "false")
            .set("saltern_engine_restarts", 0)
            .set("engines", "[slack: {token: a secret}]");
    };
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        site.announce("is not built in, only");
        site.announce("an engine is given up");
        let log = site.master().output().to_owned();
        wait_until("the engine to be given up", SOON, || {
            let log = fs::read_to_string(&log).ok()?;
            log.lines()
                .find(|line| line.contains("given up"))
                .map(str::to_owned)
        })
        .and_then(|line| {
            let names = line.contains("slack") && line.contains("python_bridge");
            ensure!(names && !line.contains("a secret"), "{line}");
            Ok(())
        })
    })
}

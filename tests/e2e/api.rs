//! Stock's salt-api beside our master: both of its web interfaces, every client that it has but
//! `ssh`, logins, hooks and the stream of events. The same requests are made with stock's own
//! master behind the same salt-api, and status and body of every answer are compared.

use anyhow::{Context, Result, ensure};
use saltern_tests::pam::{PamService, python_for_pam};
use saltern_tests::port::free_port;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn the_api_of_3006_answers_as_with_stocks_master() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn the_api_of_3007_answers_as_with_stocks_master() -> TestResult {
    compare(Release::V3007)
}

#[test]
fn the_api_of_3008_answers_as_with_stocks_master() -> TestResult {
    compare(Release::V3008)
}

/// Interface of salt-api.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    CherryPy,
    Tornado,
}

const SECRET: &str = "a secret of this test";

fn compare(release: Release) -> TestResult {
    let service = PamService::install()?;
    let stock = answers(Server::Stock(release), &service)?;
    let ours = answers(Server::Saltern(release), &service)?;
    service.remove()?;
    let differs = |(stock, ours): &(&(String, Value), &(String, Value))| stock != ours;
    let differences: Vec<String> = stock
        .iter()
        .zip(&ours)
        .filter(differs)
        .map(|((call, stock), (_, ours))| format!("{call}\nstock: {stock}\nours:  {ours}"))
        .collect();
    if stock.len() != ours.len() || !differences.is_empty() {
        Err(anyhow::anyhow!("{}", differences.join("\n\n")))?;
    }
    Ok(())
}

/// Every request with its answer.
fn answers(server: Server, service: &PamService) -> Result<Vec<(String, Value)>> {
    let ports = [
        (Interface::CherryPy, free_port()),
        (Interface::Tornado, free_port()),
    ];
    let mut answers = Vec::new();
    let configure = |config: &mut saltern_tests::Config| {
        let [(_, cherrypy), (_, tornado)] = ports;
        let everything = "['.*', '@runner', '@wheel', '@jobs', '@events']";
        let limited = "[{m1: [test.ping]}]";
        let users = format!("{{ann: {everything}, bob: {limited}}}");
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        let known = format!("{root}/users");
        std::fs::write(&known, "flo:of the file\n").expect("the site has a directory");
        config
            .set("auth.pam.service", &service.name)
            .set("auth.pam.python", python_for_pam(&root, server.release()))
            .set("rest_cherrypy", web(cherrypy))
            // Ours would serve the same ports itself.
            .set("saltern_api", "stock")
            .set("rest_tornado", web(tornado))
            .set("netapi_enable_clients", CLIENTS)
            .set(
                "external_auth",
                format!(
                    "{{sharedsecret: {users}, auto: {users}, pam: {{pia: {limited}, locked: \
                     {everything}}}, file: {{'^filename': {known}, flo: {limited}}}}}"
                ),
            )
            .set("sharedsecret", SECRET)
            .set("timeout", 20);
        if server.is_ours() {
            // Or this master would serve these sections itself.
            config.set("saltern_api", "stock");
        } else {
            // Each round of stock's maintenance removes tokens that are being written at that moment.
            config.set("loop_interval", 3600);
        }
    };
    Site::run(server, configure, |site| {
        site.announce("request refused");
        site.bring_up(&[("m1", MinionKind::Stock(server.release()))])?;
        site.wait_until_returns("m1")?;
        let _api = site.start_api()?;
        for (interface, port) in ports {
            let mut of_this_one = Vec::new();
            ask(site, interface, port, &mut of_this_one)
                .with_context(|| format!("{interface:?}, after {:?}", of_this_one.last()))?;
            answers.extend(of_this_one);
        }
        Ok(())
    })
    .map_err(saltern_tests::site::Failure::into_error)?;
    Ok(answers)
}

const CLIENTS: &str = "[local, local_async, local_batch, local_subset, runner, runner_async, \
                       wheel, wheel_async]";

fn web(port: u16) -> String {
    format!("{{port: {port}, host: 127.0.0.1, address: 127.0.0.1, disable_ssl: true}}")
}

fn login(user: &str, secret: &str, eauth: &str) -> Value {
    json!({"username": user, "password": secret, "eauth": eauth})
}

fn ask(
    site: &Site,
    interface: Interface,
    port: u16,
    answers: &mut Vec<(String, Value)>,
) -> Result<()> {
    let mut client = site.api_client(port)?;
    let welcome = json!({"method": "GET", "path": "/"});
    wait_until("salt-api to answer", SOON, || {
        let answer = client.call(&welcome).ok()?;
        (answer["status"] != 0).then_some(())
    })?;
    let mark = site.events().mark();
    for call in requests(interface) {
        let mut answer = client.call(&call)?;
        ensure!(answer["status"] != 0, "{call}: {answer}");
        if NEVER_THE_SAME.iter().any(|path| call["path"] == *path) {
            answer["body"] = Value::Null;
        }
        answers.push((format!("{interface:?} {call}"), same_for_all(answer)));
    }
    let hook = site
        .events()
        .find_since(mark, "the event of the hook", SOON, |event| {
            (event.tag == "salt/netapi/hook/some/thing").then(|| event.clone())
        })?;
    let posted = same_for_all(hook.data["post"].clone());
    answers.push((format!("{interface:?}: the event of the hook"), posted));
    Ok(())
}

/// Pages about the jobs so far, and about salt-api itself: their status is compared.
const NEVER_THE_SAME: [&str; 2] = ["/jobs", "/stats"];

/// Requests, in order.
fn requests(interface: Interface) -> Vec<Value> {
    let low = |low: Value| json!({"method": "POST", "path": "/", "auth": true, "json": [low]});
    let get = |path: &str| json!({"method": "GET", "path": path, "auth": true});
    let log_in = |form: Value| json!({"method": "POST", "path": "/login", "json": form});
    let mut requests = vec![
        json!({"method": "GET", "path": "/"}),
        json!({"method": "POST", "path": "/", "json": [{"client": "local", "tgt": "*", "fun": "test.ping"}]}),
        log_in(login("ann", "wrong", "sharedsecret")),
        log_in(login("eve", SECRET, "sharedsecret")),
        log_in(login("bob", SECRET, "sharedsecret")),
        low(json!({"client": "local", "tgt": "m1", "fun": "test.ping"})),
        low(json!({"client": "local", "tgt": "m1", "fun": "cmd.run", "arg": ["id"]})),
        low(json!({"client": "runner", "fun": "manage.up"})),
        low(json!({"client": "wheel", "fun": "key.list_all"})),
        log_in(login("flo", "guess", "file")),
        log_in(login("flo", "of the file", "file")),
        low(json!({"client": "local", "tgt": "m1", "fun": "test.ping"})),
        low(json!({"client": "local", "tgt": "m1", "fun": "test.version"})),
        log_in(login("pia", "guess", "pam")),
        log_in(login("locked", "secret", "pam")),
        log_in(login("pia", "secret", "pam")),
        low(json!({"client": "local", "tgt": "m1", "fun": "test.ping"})),
        log_in(login("ann", "", "auto")),
        log_in(login("ann", SECRET, "sharedsecret")),
        low(json!({"client": "local", "tgt": "*", "fun": "test.ping"})),
        low(json!({"client": "local", "tgt": "m1", "fun": "test.echo", "arg": ["grüße"]})),
        low(json!({"client": "local", "tgt": "nobody", "fun": "test.ping"})),
        low(json!({"client": "local_async", "tgt": "*", "fun": "test.ping"})),
        low(json!({"client": "runner", "fun": "manage.up"})),
        low(json!({"client": "runner_async", "fun": "manage.up"})),
        get("/minions/m1"),
        get("/jobs"),
        get("/jobs/20200101000000000000"),
        json!({"method": "POST", "path": "/minions", "auth": true,
               "json": [{"tgt": "*", "fun": "test.ping"}]}),
        json!({"method": "POST", "path": "/run", "json": [
            {"client": "local", "tgt": "*", "fun": "test.ping", "username": "ann",
             "password": SECRET, "eauth": "sharedsecret"}]}),
        json!({"method": "POST", "path": "/run", "json": [
            {"client": "local", "tgt": "*", "fun": "test.ping", "username": "ann",
             "password": "wrong", "eauth": "sharedsecret"}]}),
        json!({"method": "POST", "path": "/hook/some/thing", "auth": true, "json": {"a": 1}}),
        json!({"method": "GET", "path": "/events", "auth": true, "until": "/ret/m1",
               "meanwhile": low(json!({"client": "local", "tgt": "m1", "fun": "test.ping"}))}),
    ];
    if interface == Interface::CherryPy {
        requests.extend([
            low(json!({"client": "local_batch", "tgt": "*", "fun": "test.ping", "batch": "1"})),
            low(json!({"client": "local_subset", "tgt": "*", "fun": "test.ping", "subset": 1})),
            low(json!({"client": "wheel", "fun": "key.list_all"})),
            low(json!({"client": "wheel_async", "fun": "key.list_all"})),
            get("/keys"),
            get("/keys/m1"),
            get("/minions"),
            get("/stats"),
            json!({"method": "POST", "path": "/keys", "auth": true,
                   "json": [{"mid": "new", "keysize": 2048}]}),
            get("/keys"),
            json!({"method": "POST", "path": "/token",
                   "json": [login("ann", SECRET, "sharedsecret")]}),
            json!({"method": "POST", "path": "/run", "token": true, "json": [
                {"client": "local", "tgt": "m1", "fun": "test.ping"}]}),
            json!({"method": "POST", "path": "/run", "json": [
                {"client": "local", "tgt": "m1", "fun": "test.ping", "token": "0".repeat(64)}]}),
            json!({"method": "POST", "path": "/logout", "auth": true}),
            low(json!({"client": "local", "tgt": "*", "fun": "test.ping"})),
        ]);
    }
    requests
}

/// The answer without what no two masters share: ids of jobs, tokens, times, grains of this moment.
fn same_for_all(answer: Value) -> Value {
    match answer {
        Value::String(text) => Value::String(masked(&text)),
        Value::Number(number) if number.as_f64().is_some_and(|number| number > 1e9) => {
            "TIME".into()
        }
        Value::Array(items) => items.into_iter().map(same_for_all).collect(),
        Value::Object(entries) => {
            if entries.contains_key("saltversion") {
                return "GRAINS".into();
            }
            let entries = entries.into_iter();
            entries
                .map(|(name, value)| match name.as_str() {
                    "_stamp" | "pid" => (name, "TIME".into()),
                    _ => (masked(&name), same_for_all(value)),
                })
                .collect()
        }
        other => other,
    }
}

/// Jids, and tokens and fingerprints in hexadecimal, under one name each.
fn masked(text: &str) -> String {
    let is_pair = |part: &str| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit());
    if text.len() > 40 && text.split(':').all(is_pair) {
        return "FINGERPRINT".to_owned();
    }
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut masked = text.to_owned();
    for word in text.split(|c| !is_word(c)) {
        let is_hex = word.chars().all(|c| c.is_ascii_hexdigit());
        match word.len() {
            20 if word.chars().all(|c| c.is_ascii_digit()) => masked = masked.replace(word, "JID"),
            length if length >= 32 && is_hex => masked = masked.replace(word, "TOKEN"),
            _ => {}
        }
    }
    masked
}

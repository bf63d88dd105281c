//! Texts that others choose run nothing in a browser, on any page, even without the content security
//! policy: it is switched off here, so that escaping alone has to hold.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::sizes::size;
use saltern_tests::{Site, TestResult, wait_until};
use serde_json::{Value, json};

use super::{ANN, Console, with_users};

/// Texts that run a script where they are not escaped.
const PAYLOADS: [&str; 50] = include!("../../../src/console/src/tests/payloads.in");

/// Counts what is run, in every document before its own scripts.
const COUNT: &str = "window.ran = 0;
    for (const name of ['alert', 'confirm', 'prompt', 'print']) window[name] = () => { window.ran += 1; };";

/// Parts of a page that only a payload can have put there.
const INJECTED: &str = "
    const found = [];
    if (window.ran) found.push(`${window.ran} scripts were run`);
    for (const node of document.querySelectorAll('*')) {
        for (const {name, value} of node.attributes) {
            if (name.startsWith('on') || /^\\s*javascript:/i.test(value) && name !== 'title' && name !== 'value'
                && !name.startsWith('data-') && name !== 'aria-label' && name !== 'datetime')
                found.push(`${node.nodeName} has ${name}=${value}`);
        }
    }
    const own = 'script[type=module][src^=\"/console/assets/\"]';
    for (const node of document.querySelectorAll('script, iframe, object, embed, base, marquee, math, video, audio, style, [http-equiv]'))
        if (!node.matches(own)) found.push(node.outerHTML.slice(0, 200));
    return found";

#[test]
fn payloads_run_nothing_on_any_page() -> TestResult {
    // A name with a colon cannot stand in the file of users.
    let names: Vec<&str> = PAYLOADS
        .iter()
        .copied()
        .filter(|name| is_user(name))
        .collect();
    let users: Vec<(&str, &str)> = Vec::new();
    with_users(
        &users,
        |config, _| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            write_users(&root, &names);
            write_pillar(&root);
            let everybody = "['.*', '@runner', '@wheel', '@jobs', '@events']";
            write_automation(&root);
            config
                .set("reactor", format!("{root}/rules"))
                .set("schedule", schedule())
                .set("pillar_roots", format!("{{base: [{root}/pillar]}}"))
                .set(
                    "external_auth",
                    format!("{{file: {{'^filename': {root}/users, '*': {everybody}}}}}"),
                );
        },
        |site, console| {
            fill(site, console)?;
            let browser = console.logged_in(site, ANN)?;
            watch(&browser)?;
            control(&browser, console)?;
            let seen = look_at_pages(&browser, console)?;
            ensure!(seen == PAYLOADS.len(), "only {seen} payloads were seen");
            Ok(())
        },
    )
}

fn is_user(name: &str) -> bool {
    !name.contains([':', '\n', '\r', '\\'])
}

fn write_users(root: &str, names: &[&str]) {
    let known = format!("{root}/users");
    let mut lines = std::fs::read_to_string(&known).expect("the console has users");
    lines.extend(
        names
            .iter()
            .map(|name| format!("{name}:{}\n", super::PASSWORD)),
    );
    std::fs::write(known, lines).expect("the site has a directory");
}

fn write_pillar(root: &str) {
    let pillar = format!("{root}/pillar");
    std::fs::create_dir_all(&pillar).expect("the site has a directory");
    std::fs::write(format!("{pillar}/top.sls"), "base:\n  '*':\n    - all\n")
        .expect("it can be written");
    let values: serde_json::Map<String, Value> =
        texts().map(|text| (text.clone(), json!(text))).collect();
    // JSON is YAML; Jinja is not asked.
    let sls = format!("#!yaml\n{}\n", json!(values));
    std::fs::write(format!("{pillar}/all.sls"), sls).expect("it can be written");
}

/// A rule for each payload as a tag and a file; each event of [`fill`] leads to a dead letter.
fn write_automation(root: &str) {
    let rules: Vec<Value> = texts()
        .map(|text| json!({format!("inject/{text}"): [format!("{root}/{text}.sls")]}))
        .collect();
    let all = json!({"inject/*": [format!("{root}/none.sls")]});
    let rules: Vec<Value> = rules.into_iter().chain([all]).collect();
    std::fs::write(format!("{root}/rules"), json!(rules).to_string()).expect("it can be written");
}

/// A job for each payload, which is its name, its function and its argument.
fn schedule() -> Value {
    let jobs = texts().map(|text| {
        let job = json!({"function": text, "args": [text], "hours": 1, "run_on_start": true});
        (text, job)
    });
    Value::Object(jobs.collect())
}

/// The payloads as a document can hold them.
fn texts() -> impl Iterator<Item = String> {
    PAYLOADS.iter().map(|text| (*text).to_owned())
}

/// A minion whose grains are payloads, keys whose minions are, and for each payload a job and an event.
fn fill(site: &mut Site, console: Console) -> Result<()> {
    let grains: serde_json::Map<String, Value> =
        texts().map(|text| (text.clone(), json!(text))).collect();
    site.accept_beforehand("alfa")?;
    site.prepare_minion("alfa", MinionKind::Native, |config| {
        config.set("grains", json!(grains));
    })?;
    site.accept_beforehand("alfa")?;
    site.start_prepared_minion("alfa")?;
    site.wait_started("alfa")?;
    let key = std::fs::read(site.path("pki/minions/alfa"))?;
    for name in PAYLOADS.iter().filter(|name| !name.contains(['/', '\0'])) {
        std::fs::write(site.path("pki/minions_pre").join(name), &key)?;
    }
    for refused in [
        "request refused",
        "a call of the API failed",
        "no valid id",
        "key",
        "a reaction failed",
        "a scheduled job failed",
        "is no runner function of Salt",
        "reactor",
    ] {
        site.announce(refused);
    }
    for payload in PAYLOADS {
        let user = if is_user(payload) { payload } else { ANN };
        let chunk = json!({"client": "local_async", "tgt": ["alfa", payload], "tgt_type": "list",
            "fun": payload, "arg": [payload, {"__kwarg__": true, "name": payload}]});
        let job = console.call(user, chunk)?;
        ensure!(
            job["jid"].is_string(),
            "the job of {payload} was not published: {job}"
        );
        console.send_event(&format!("inject/{payload}"), &json!({payload: payload}))?;
    }
    let returned = || {
        let count = site.metric("saltern_returns_total", "").ok()?;
        (count >= PAYLOADS.len() as f64).then_some(())
    };
    wait_until("all jobs to be returned", SOON, returned)
}

/// From now on no policy protects the pages, and what is run is counted.
fn watch(browser: &Browser) -> Result<()> {
    browser.devtools("Page.setBypassCSP", &json!({"enabled": true}))?;
    browser.devtools(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({"source": COUNT}),
    )?;
    Ok(())
}

/// A payload that is not escaped is counted.
fn control(browser: &Browser, console: Console) -> Result<()> {
    browser.open(&console.url("/console/"))?;
    let insert = "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')";
    browser.script(insert, &[])?;
    browser.wait("window.ran === 1")?;
    let found = browser.script(INJECTED, &[])?;
    ensure!(
        found.as_array().is_some_and(|found| found.len() == 2),
        "found {found}"
    );
    Ok(())
}

/// Pages that show what their address has, with its fields.
const FORMS: [(&str, &[&str]); 4] = [
    ("run", &["tgt", "fun", "args", "batch"]),
    ("audit", &["user", "function", "since"]),
    ("drift", &["verdict", "group"]),
    ("minions", &["target", "grains"]),
];

/// One in how many of the forms gets each payload: another one for each, so that all forms get some. Where the
/// whole table is run is said in `tests/run.sh`; each payload on each page without a browser is a test of the
/// console's crate.
fn share() -> Result<usize> {
    Ok(size("SALTERN_PAYLOAD_SHARE", 1)?.max(1))
}

/// Looks at every page, and returns how many payloads the pages of jobs showed as text.
fn look_at_pages(browser: &Browser, console: Console) -> Result<usize> {
    let pages = [
        "",
        "minions",
        "minions/alfa",
        "minions?grains=role",
        "keys",
        "events",
        "events?tag=inject",
        "batches",
        "drift",
        "drift?verdict=unknown",
        "audit",
        "audit?door=console",
        "minions?grains=role,last_job,highstate",
        "orchestrations",
        "reactor",
        "schedule",
        "jobs",
        "jobs?state=failed",
    ];
    for page in pages {
        look(browser, console, &format!("/console/{page}"))?;
    }
    let share = share()?;
    for (number, payload) in PAYLOADS.into_iter().enumerate() {
        let forms = FORMS.iter().enumerate();
        for (_, (page, fields)) in forms.filter(|(form, _)| (number + form) % share == 0) {
            let fields: Vec<_> = fields.iter().map(|name| (*name, payload)).collect();
            let query = console_query(&fields);
            look(browser, console, &format!("/console/{page}?{query}"))?;
        }
    }
    let mut jobs = links(browser, console, "/console/jobs", "#jobs [data-jid] a")?;
    while let Some(older) = browser
        .script(
            "return document.querySelector('#older')?.getAttribute('href') ?? null",
            &[],
        )?
        .as_str()
    {
        jobs.extend(links(browser, console, older, "#jobs [data-jid] a")?);
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for job in jobs {
        look(browser, console, &job)?;
        let text = browser.script("return document.body.textContent", &[])?;
        let text = squeezed(text.as_str().unwrap_or_default());
        seen.extend(
            PAYLOADS
                .iter()
                .filter(|payload| text.contains(&squeezed(payload))),
        );
    }
    for event in links(
        browser,
        console,
        "/console/events?tag=inject",
        "#event-rows a:first-child",
    )? {
        look(browser, console, &event)?;
    }
    Ok(seen.len())
}

fn links(browser: &Browser, console: Console, path: &str, css: &str) -> Result<Vec<String>> {
    look(browser, console, path)?;
    let links = "return [...document.querySelectorAll(arguments[0])].map((link) => link.getAttribute('href'))";
    let links = browser.script(links, &[json!(css)])?;
    Ok(serde_json::from_value(links)?)
}

/// Opens a page and gives what is in it the time to run: errors of images come after the document.
fn look(browser: &Browser, console: Console, path: &str) -> Result<()> {
    browser.open(&console.url(path))?;
    let opened = browser.script("return document.querySelector('#main') && window.ran", &[])?;
    ensure!(opened.is_u64(), "{path} was not shown");
    let drawn = "return new Promise((done) => requestAnimationFrame(() => setTimeout(done)))";
    browser.script(drawn, &[])?;
    let found = browser.script(INJECTED, &[])?;
    let found = found.as_array().context("no findings")?;
    ensure!(found.is_empty(), "{path}: {found:?}");
    Ok(())
}

fn squeezed(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_whitespace() && !letter.is_control())
        .collect()
}

fn console_query(fields: &[(&str, &str)]) -> String {
    let encoded =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

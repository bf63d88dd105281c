//! Pages of the site, served by `app` and `static`, in a browser: each is opened, and whatever the
//! browser or the API finds wrong with it fails the test.
//!
//! `SALTGUI` names the directory of a SaltGUI release (`index.html` beside `static`); its pages are
//! not ours to ship. Without it they are `tests/peers/gui`, which ask the API what SaltGUI asks.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::pam::PamService;
use saltern_tests::process::peer;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::{Value, json};

use super::{Dialect, Interfaces, SECRET, User, bring_up};

/// Runs in each document before its own scripts: what is under way, and what failed.
const WATCH: &str = r#"
    const watch = window.watch = {open: 0, failed: []};
    const send = window.fetch;
    window.fetch = async (...request) => {
        watch.open += 1;
        try {
            const response = await send(...request);
            if (!response.ok) watch.failed.push(`${response.status} ${response.url}`);
            return response;
        } finally {
            // What the answer leads to at once is under way by then.
            setTimeout(() => { watch.open -= 1; }, 100);
        }
    };
    window.addEventListener('error', (event) => watch.failed.push(String(event.message)));
    window.addEventListener('unhandledrejection', (event) => watch.failed.push(String(event.reason)));
"#;

/// Buttons of the menu that open a page, by their ids.
const MENU: &str = r#"
    const ids = [...document.querySelectorAll('[id^=button]')].map((item) => item.id);
    return ids.filter((id) => !/2$|logout|manual/.test(id));
"#;

/// Requests that may fail, as under stock: files that a site of SaltGUI may have, and the stream of
/// events of older releases, with a token in its address (`Events.GET` in `rest_cherrypy/app.py`).
const OPTIONAL: [&str; 6] = [
    "/events?token=",
    "salt-auth.txt",
    "salt-motd",
    "minions.txt",
    "salt-templates",
    "/stats",
];

#[test]
fn every_page_of_the_site_works_in_a_browser() -> TestResult {
    let directory = std::env::var_os("SALTGUI").map_or_else(|| peer("gui"), PathBuf::from);
    let options = format!(
        "app: {}, static: {}",
        directory.join("index.html").display(),
        directory.join("static").display()
    );
    let server = Server::Saltern(Release::V3008);
    let service = PamService::install()?;
    let interfaces = Interfaces::new(&[Dialect::CherryPy]);
    Site::run(
        server,
        |config| {
            interfaces.configure(config, server, &service);
            let python = server.release().program("python3");
            config.set("python_bridge", python.display());
            let port = interfaces.port();
            let section =
                format!("{{port: {port}, host: 127.0.0.1, disable_ssl: true, {options}}}");
            config.set("rest_cherrypy", section);
            config.set("saltgui_motd_txt", "a word of the site");
        },
        |site| {
            site.announce("saltgui_motd_txt: no such option");
            bring_up(site)?;
            let _api = interfaces.start(site)?;
            walk(site, interfaces.port())?;
            // SaltGUI reads options of its own in the master's configuration.
            let mut ann = User::log_in(site, interfaces.port(), "ann")?;
            let values = ann.low(json!({"client": "wheel", "fun": "config.values"}))?;
            let found = &values["data"]["return"]["saltgui_motd_txt"];
            ensure!(*found == "a word of the site", "{found}");
            Ok(())
        },
    )?;
    Ok(service.remove()?)
}

/// Logs in, opens every page of the menu, runs a command, logs out.
fn walk(site: &Site, port: u16) -> Result<()> {
    let browser = Browser::start(&site.path("log/chromedriver"))?;
    browser.devtools(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({"source": WATCH}),
    )?;
    browser.open(&format!("http://127.0.0.1:{port}/"))?;
    log_in(&browser)?;
    let is_own = std::env::var_os("SALTGUI").is_none();
    let pages = browser.script(MENU, &[])?;
    let pages = pages.as_array().context("a list of ids")?;
    ensure!(pages.len() >= 2, "a menu with {pages:?}");
    for page in pages {
        let page = page.as_str().context("an id")?;
        open(&browser, page).with_context(|| format!("page {page}"))?;
    }
    if is_own {
        // The stream is open: calls of the pages have their events.
        browser.wait("document.querySelector('#events').innerText != ''")?;
    }
    run_command(&browser).context("a command")?;
    if is_own {
        browser.wait(
            "/salt\\/job\\/\\d+\\/ret\\/m1/.test(document.querySelector('#events').innerText)",
        )?;
    }
    browser.script(
        "document.querySelector('[id^=button][id*=logout]').click()",
        &[],
    )?;
    browser.wait("document.querySelector('#username').checkVisibility()")
}

fn log_in(browser: &Browser) -> Result<()> {
    browser.wait("document.querySelector('#username').checkVisibility()")?;
    browser.fill("#username", "ann")?;
    browser.fill("#password", SECRET)?;
    // A site names its own in a file of SaltGUI's.
    browser.script(
        "const kinds = document.querySelector('#eauth'); \
         kinds.add(new Option('sharedsecret', 'sharedsecret')); kinds.value = 'sharedsecret'",
        &[],
    )?;
    browser.click("form [type=submit]")?;
    browser.wait("!document.querySelector('#username')?.checkVisibility()")?;
    settle(browser, "login")
}

/// Opens a page by its button, which may stand in a menu that is folded up.
fn open(browser: &Browser, id: &str) -> Result<()> {
    browser.script(
        "document.getElementById(arguments[0]).click()",
        &[json!(id)],
    )?;
    settle(browser, id)
}

/// Waits for the requests of a page; neither they nor the browser may have failed.
fn settle(browser: &Browser, name: &str) -> Result<()> {
    browser.wait("document.readyState == 'complete' && watch.open == 0")?;
    let failed = browser.script("return watch.failed.splice(0)", &[])?;
    let failed = failed.as_array().into_iter().flatten();
    let failed = failed.filter_map(Value::as_str).map(str::to_owned);
    let all: Vec<String> = failed.chain(browser.complaints()?).collect();
    let found: Vec<&String> = all.iter().filter(|text| !is_optional(text)).collect();
    if let Some(directory) = std::env::var_os("SALTGUI_PICTURES") {
        let picture = PathBuf::from(directory).join(format!("{name}.png"));
        browser.screenshot(&picture)?;
    }
    let page = browser.script("return document.body.innerText", &[])?;
    ensure!(found.is_empty(), "{found:#?}\n{page}");
    Ok(())
}

fn is_optional(text: &str) -> bool {
    OPTIONAL.iter().any(|name| text.contains(name))
}

fn run_command(browser: &Browser) -> Result<()> {
    browser.click("[id^=button][id*=manual]")?;
    browser.fill("#target", "m1")?;
    browser.fill("#command", "test.ping")?;
    browser.click(".run-command input[type=submit]")?;
    browser.wait("/m1[^]*true/.test(document.querySelector('pre.output').innerText)")?;
    settle(browser, "command")
}

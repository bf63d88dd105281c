//! The web console in a real browser: Chromium opens the pages that our master serves.
//!
//! A test sees what a user sees and does what a user does. What a page is made of is tested where it is
//! made (`src/console`).

mod automation;
mod drift;
mod events;
mod injection;
mod kill;
mod log_in;
mod look;
mod pages;
mod rules;
mod session_end;

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::port::free_port;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

/// The user who may do everything.
const ANN: &str = "ann";

/// The password of every user.
const PASSWORD: &str = "a password of this test";

/// The console of a site.
#[derive(Clone, Copy)]
struct Console {
    port: u16,
}

impl Console {
    /// Sets the options that turn it on, with a user who may do everything and others with their rules.
    fn configure(self, config: &mut Config, others: &[(&str, &str)]) {
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        let known = format!("{root}/users");
        let everything = (ANN, "['.*', '@runner', '@wheel', '@jobs', '@events']");
        let users = || std::iter::once(&everything).chain(others);
        let lines = users().map(|(name, _)| format!("{name}:{PASSWORD}\n"));
        std::fs::write(&known, lines.collect::<String>()).expect("the site has a directory");
        let rules = users().map(|(name, rules)| format!("{name}: {rules}"));
        let rules: Vec<String> = rules.collect();
        config
            .set("netapi_enable_clients", "[local_async, runner]")
            .set("saltern_api", format!("{{port: {}}}", self.port))
            .set(
                "external_auth",
                format!("{{file: {{'^filename': {known}, {}}}}}", rules.join(", ")),
            );
    }

    fn url(self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Waits until it is served.
    fn wait(self) -> Result<()> {
        wait_until("the console to be served", SOON, || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()
        })?;
        Ok(())
    }

    /// Calls the API beside the console as a user; what it returns.
    fn call(self, user: &str, mut chunk: Value) -> Result<Value> {
        chunk["username"] = json!(user);
        chunk["password"] = json!(PASSWORD);
        chunk["eauth"] = json!("file");
        let request = ureq::post(self.url("/run")).header("content-type", "application/json");
        let mut response = request.send(chunk.to_string())?;
        let text = response.body_mut().read_to_string()?;
        let mut answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(answer["return"][0].take())
    }

    /// Sends an event and waits until the master has it.
    fn send_event(self, tag: &str, data: &Value) -> Result<()> {
        let chunk = json!({"client": "runner", "fun": "event.send", "arg": [tag, data]});
        let sent = self.call(ANN, chunk)?;
        ensure!(sent == json!(true), "event {tag} was not sent: {sent}");
        Ok(())
    }

    /// A browser that shows the log-in.
    fn browser(self, site: &Site) -> Result<Browser> {
        let browser = Browser::start(&site.path("log/chromedriver"))?;
        browser.open(&self.url("/console/"))?;
        browser.wait("document.querySelector('#login')")?;
        Ok(browser)
    }

    /// A browser whose user is logged in.
    fn logged_in(self, site: &Site, user: &str) -> Result<Browser> {
        let browser = self.browser(site)?;
        log_in(&browser, user)?;
        Ok(browser)
    }
}

/// Fills in the log-in that is shown.
fn log_in(browser: &Browser, user: &str) -> Result<()> {
    browser.fill("#username", user)?;
    browser.fill("#password", PASSWORD)?;
    browser.click("#submit")?;
    browser.wait("document.querySelector('#logout')")
}

/// Runs a scenario with a master that serves the console.
fn with_console(
    configure: impl FnOnce(&mut Config, Console),
    scenario: impl FnOnce(&mut Site, Console) -> Result<()>,
) -> TestResult {
    with_users(&[], configure, scenario)
}

/// Runs a scenario with more users than the one who may do everything.
fn with_rules(
    users: &[(&str, &str)],
    scenario: impl FnOnce(&mut Site, Console) -> Result<()>,
) -> TestResult {
    with_users(users, |_, _| {}, scenario)
}

fn with_users(
    users: &[(&str, &str)],
    configure: impl FnOnce(&mut Config, Console),
    scenario: impl FnOnce(&mut Site, Console) -> Result<()>,
) -> TestResult {
    let console = Console { port: free_port() };
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            console.configure(config, users);
            configure(config, console);
        },
        |site| {
            console.wait()?;
            scenario(site, console)
        },
    )
}

/// Three minions that are up.
fn three_minions(site: &mut Site) -> Result<()> {
    let kind = MinionKind::Native;
    site.bring_up(&[("alfa", kind), ("bravo", kind), ("charlie", kind)])
}

/// Fails if the browser found something wrong with a page.
fn expect_no_complaint(browser: &Browser, page: &str) -> Result<()> {
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{page}: {}", complaints.join("\n"));
    Ok(())
}

/// The jid in the address of a job's page.
fn jid(browser: &Browser) -> Result<String> {
    let jid = browser
        .wait_for("(location.pathname.match(/^\\/console\\/jobs\\/(\\d{20})$/) || [])[1]")?;
    Ok(jid.as_str().context("no jid")?.to_owned())
}

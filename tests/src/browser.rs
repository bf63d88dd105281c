//! A browser without a window: Debian's Chromium, driven over WebDriver (W3C) by its `chromedriver`.
//!
//! Nothing here knows the console. What the browser itself finds wrong with a page, an error of a script
//! or a violation of its content security policy, is in [`Browser::complaints`]. WebDriver is a few
//! requests with JSON in them, so it is spoken here: the known clients for Rust need crates under
//! licences that `deny.toml` refuses.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::port::free_port;
use crate::process::{Daemon, wait_until};
use crate::site::SOON;

/// The member of a WebDriver object that names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How often a browser is started: its driver gives one up after a minute, which is not much on a busy machine.
const ATTEMPTS: u32 = 3;

/// Keys without a character, as WebDriver writes them.
pub mod key {
    /// To the next field.
    pub const TAB: &str = "\u{e004}";
    /// Sends a form, presses a button.
    pub const ENTER: &str = "\u{e007}";
    /// Leaves a field or a dialog.
    pub const ESCAPE: &str = "\u{e00c}";
    /// Ticks a box, opens details.
    pub const SPACE: &str = " ";
}

/// An open browser with one page; it ends when dropped.
pub struct Browser {
    /// The beginning of every command's address.
    session: String,
    agent: ureq::Agent,
    driver: Daemon,
    // Removed after the driver has ended.
    _profile: TempDir,
}

impl Browser {
    /// Starts one with an empty profile. Its driver writes into the file `output`.
    ///
    /// # Errors
    /// When Chromium or its driver is missing, or does not come up.
    pub fn start(output: &Path) -> Result<Self> {
        let profile = tempfile::Builder::new().prefix("slt-browser-").tempdir()?;
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={port}"))
            .env("HOME", profile.path());
        let mut driver = Daemon::start("chromedriver", &mut command, output)
            .context("tests/install-stock.sh --system installs chromium-driver")?;
        wait_until("chromedriver to listen", SOON, || {
            let is_up = TcpStream::connect(("127.0.0.1", port)).is_ok();
            (is_up || driver.ended().is_some()).then_some(())
        })?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(SOON))
            .build()
            .new_agent();
        let sessions = format!("http://127.0.0.1:{port}/session");
        let mut attempt = 1;
        let opened = loop {
            let data = profile.path().join(format!("data-{attempt}"));
            match call(&agent, &sessions, &capabilities(&data)) {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                opened => break opened?,
            }
        };
        let id = opened["sessionId"].as_str().context("no session")?;
        Ok(Self {
            session: format!("{sessions}/{id}"),
            agent,
            driver,
            _profile: profile,
        })
    }

    fn post(&self, command: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/{command}", self.session);
        call(&self.agent, &url, body)
    }

    /// Opens an address and waits until it is loaded.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.post("url", &json!({"url": url}))?;
        Ok(())
    }

    /// The value of a script: the body of a function with these arguments.
    ///
    /// # Errors
    /// When it throws.
    pub fn script(&self, body: &str, arguments: &[Value]) -> Result<Value> {
        self.post("execute/sync", &json!({"script": body, "args": arguments}))
    }

    /// Waits until an expression is true; whatever it throws counts as false.
    ///
    /// # Errors
    /// When it does not become true in time: with the address and the beginning of the page.
    pub fn wait(&self, expression: &str) -> Result<()> {
        self.wait_for(expression).map(drop)
    }

    /// Waits until an expression has a value that is true, and returns it.
    ///
    /// # Errors
    /// As [`Browser::wait`].
    pub fn wait_for(&self, expression: &str) -> Result<Value> {
        let body = format!("return ({expression})");
        let is_true = |value: &Value| {
            !matches!(value, Value::Null | Value::Bool(false)) && *value != json!(0)
        };
        let value = wait_until(expression, SOON, || {
            self.script(&body, &[]).ok().filter(is_true)
        });
        value.with_context(|| self.describe())
    }

    fn describe(&self) -> String {
        const SHOWN: usize = 1500;
        let page = "return location.href + '\\n' + document.body.innerText";
        let page = self.script(page, &[]).unwrap_or_default();
        let text = page.as_str().unwrap_or("no page").chars();
        format!("the page was {}", text.take(SHOWN).collect::<String>())
    }

    /// Clicks an element with the mouse, as soon as it can be clicked.
    ///
    /// # Errors
    /// When it does not come, or something lies above it.
    pub fn click(&self, css: &str) -> Result<()> {
        self.on_element(css, "click", &json!({}))
    }

    /// Fills a field, in place of what it holds.
    ///
    /// # Errors
    /// When it does not come.
    pub fn fill(&self, css: &str, text: &str) -> Result<()> {
        self.on_element(css, "clear", &json!({}))?;
        self.on_element(css, "value", &json!({"text": text}))
    }

    fn on_element(&self, css: &str, command: &str, body: &Value) -> Result<()> {
        let mut last = None;
        let done = wait_until(&format!("{command} on {css}"), SOON, || {
            let tried = self
                .element(css)
                .and_then(|id| self.post(&format!("element/{id}/{command}"), body));
            tried.map_err(|error| last = Some(error)).ok()
        });
        match (done, last) {
            (Err(_), Some(error)) => Err(error.context(self.describe())),
            (done, _) => done.map(drop),
        }
    }

    fn element(&self, css: &str) -> Result<String> {
        let found = self.post("element", &json!({"using": "css selector", "value": css}))?;
        let id = found[ELEMENT].as_str();
        Ok(id.with_context(|| found.to_string())?.to_owned())
    }

    /// The text of an element that is there, as it is seen.
    ///
    /// # Errors
    /// When it is not there.
    pub fn text(&self, css: &str) -> Result<String> {
        let text = self.script(
            "return document.querySelector(arguments[0]).innerText",
            &[json!(css)],
        )?;
        Ok(text.as_str().unwrap_or_default().trim().to_owned())
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// When the selector is malformed.
    pub fn count(&self, css: &str) -> Result<u64> {
        let count = self.script(
            "return document.querySelectorAll(arguments[0]).length",
            &[json!(css)],
        )?;
        count.as_u64().context("no count")
    }

    /// Presses keys one after another, wherever the focus is; see [`key`].
    ///
    /// # Errors
    /// When the browser is gone.
    pub fn press(&self, keys: &str) -> Result<()> {
        let strokes = keys.chars().flat_map(|key| {
            let key = key.to_string();
            ["keyDown", "keyUp"].map(|stroke| json!({"type": stroke, "value": key}))
        });
        let strokes: Vec<Value> = strokes.collect();
        let actions = json!([{"type": "key", "id": "keyboard", "actions": strokes}]);
        self.post("actions", &json!({"actions": actions}))?;
        Ok(())
    }

    /// Presses the tabulator until an element has the focus.
    ///
    /// # Errors
    /// When it never has: it cannot be reached by the keyboard.
    pub fn tab_to(&self, css: &str) -> Result<()> {
        const MAX_STOPS: usize = 80;
        let has_focus = "return Boolean(document.activeElement.closest(arguments[0]))";
        for _ in 0..MAX_STOPS {
            if self.script(has_focus, &[json!(css)])? == json!(true) {
                return Ok(());
            }
            self.press(key::TAB)?;
        }
        bail!("{css} is not reached by the keyboard; {}", self.describe())
    }

    /// Errors that the browser has logged since it was last asked: exceptions, violations of the content
    /// security policy, requests that failed.
    ///
    /// # Errors
    /// When the browser is gone.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let entries = self.post("se/log", &json!({"type": "browser"}))?;
        let entries = entries.as_array().context("no log")?.iter();
        let severe = entries.filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG");
        Ok(severe
            .map(|entry| format!("{}: {}", entry["source"], entry["message"]))
            .collect())
    }

    /// A command of Chromium's own protocol (CDP).
    ///
    /// # Errors
    /// When it is refused.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post(
            "goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    /// The size of the page in pixels; below 500 pixels a window cannot be made so narrow.
    ///
    /// # Errors
    /// When the browser is gone.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size)?;
        Ok(())
    }

    /// The colours that the system prefers, `dark` or `light`.
    ///
    /// # Errors
    /// When the browser is gone.
    pub fn prefer_colours(&self, scheme: &str) -> Result<()> {
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}))?;
        Ok(())
    }

    /// Writes what is seen into a PNG.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn screenshot(&self, path: &Path) -> Result<()> {
        let shot = self.devtools("Page.captureScreenshot", &json!({"format": "png"}))?;
        let data = shot["data"].as_str().context("no screenshot")?;
        let data = base64::engine::general_purpose::STANDARD.decode(data)?;
        std::fs::write(path, data).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Lets it end its processes; those that are left go with the driver.
        self.agent.delete(&self.session).call().ok();
        self.driver.kill();
    }
}

fn capabilities(data: &Path) -> Value {
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-breakpad",
        "--window-size=1280,800",
        // It ends when the other end of the pipe does, however its driver ended.
        "--remote-debugging-pipe",
    ];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
    arguments.push(format!("--user-data-dir={}", data.display()));
    let options = json!({"binary": "/usr/bin/chromium", "args": arguments});
    let wanted = json!({
        "browserName": "chrome",
        "unhandledPromptBehavior": "ignore",
        "goog:loggingPrefs": {"browser": "ALL"},
        "goog:chromeOptions": options,
        // Busy machines are slow.
        "timeouts": {"script": 180_000, "pageLoad": 180_000},
    });
    json!({"capabilities": {"alwaysMatch": wanted}})
}

/// The value of a command's response.
fn call(agent: &ureq::Agent, url: &str, body: &Value) -> Result<Value> {
    let request = agent.post(url).header("content-type", "application/json");
    let mut response = request.send(body.to_string())?;
    let text = response
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_to_string()?;
    let mut value: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let value = value["value"].take();
    let message = |value: &Value| {
        let message = value["message"].as_str().unwrap_or_default();
        let first = message.lines().next().unwrap_or_default();
        format!("{}: {first}", value["error"].as_str().unwrap_or_default())
    };
    ensure!(response.status().is_success(), "{}", message(&value));
    Ok(value)
}

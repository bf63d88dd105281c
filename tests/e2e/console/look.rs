//! Every page: the browser has nothing to say against it, it is small, it fits windows of
//! any width, and `axe-core` has no serious finding in either colour scheme. Takes pictures where
//! `SALTERN_CONSOLE_PICTURES` asks for them: they cost more than all the rest.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use serde_json::{Value, json};

use super::Console;

/// The size of a page's HTML in bytes that none may have.
const MAX_HTML: u64 = 200_000;

/// Widths of a window that every page fits into: of a desk, and of a telephone.
const WIDTHS: [(u32, u32); 2] = [(1280, 800), (390, 844)];

/// Runs all rules but those that only advise.
const AXE: &str = "
    const rules = arguments[0] === 'light' ? {} : {runOnly: {type: 'rule', values: ['color-contrast']}};
    return axe.run(document, {resultTypes: ['violations'], ...rules}).then(({violations}) => violations
        .filter(({impact}) => impact === 'serious' || impact === 'critical')
        .flatMap(({id, nodes}) => nodes.map(({target, failureSummary}) =>
            `${id} at ${target.join(' ')}: ${failureSummary.replace(/\\s+/g, ' ')}`)))";

/// The elements that make a page wider than its window.
const TOO_WIDE: &str = "
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const clips = (node) => node && node !== document.body
        && (getComputedStyle(node).overflowX !== 'visible' || clips(node.parentElement));
    return [...document.querySelectorAll('body *')]
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !clips(node.parentElement))
        .map((node) => `${node.nodeName.toLowerCase()}#${node.id}.${node.className} is too wide`)";

/// Follows events where it has to, and has drawn what it has.
const SETTLED: &str = "document.readyState === 'complete' \
    && (!document.querySelector('[data-live]') || document.querySelector('#live-state[data-on]')) \
    && (!document.querySelector('[data-events]') || document.querySelector('#events-state[data-on]'))";

/// Looks at one page after another; what is wrong with them is collected.
pub(super) struct Inspector<'a> {
    browser: &'a Browser,
    console: Console,
    axe: String,
    /// Where the pictures go, if there are to be some.
    pictures: Option<PathBuf>,
    /// The colour schemes in which `axe-core` looks.
    schemes: &'static [&'static str],
    findings: Vec<String>,
}

impl<'a> Inspector<'a> {
    /// Pictures go into a directory of this name in `target/console`.
    pub(super) fn new(browser: &'a Browser, console: Console, name: &str) -> Result<Self> {
        let home = std::env::var_os("HOME").context("HOME")?;
        let axe = PathBuf::from(home).join(".cache/saltern/tools/axe-core-4.12.1/axe.min.js");
        let axe = std::fs::read_to_string(&axe)
            .with_context(|| format!("{}: tests/install-stock.sh --axe", axe.display()))?;
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/console");
        let wanted = std::env::var_os("SALTERN_CONSOLE_PICTURES");
        let pictures = wanted.map(|_| target.join(name));
        if let Some(pictures) = &pictures {
            std::fs::create_dir_all(pictures)?;
        }
        browser.resize(1280, 800)?;
        Ok(Self {
            browser,
            console,
            axe,
            pictures,
            schemes: &["light"],
            findings: Vec::new(),
        })
    }

    /// The same in both colour schemes, with a picture of each and of a narrow window.
    pub(super) fn thorough(mut self) -> Self {
        self.schemes = &["dark", "light"];
        self
    }

    /// Without `axe-core`: for pages that have more rows than others, but no others. It takes seconds for each.
    pub(super) fn without_axe(mut self) -> Self {
        self.schemes = &[];
        self
    }

    /// Opens a page and looks at it.
    pub(super) fn open(&mut self, name: &str, path: &str) -> Result<()> {
        self.browser.open(&self.console.url(path))?;
        self.look(name)
    }

    /// Looks at the page that is open.
    pub(super) fn look(&mut self, name: &str) -> Result<()> {
        self.browser.wait(SETTLED)?;
        let html = "return performance.getEntriesByType('navigation')[0].decodedBodySize";
        let html = self.browser.script(html, &[])?;
        let html = html.as_u64().context("the page has no size")?;
        ensure!(html > 0, "the size of {name} is not known");
        if html > MAX_HTML {
            self.findings.push(format!("{name}: {html} bytes of HTML"));
        }
        self.check_accessibility(name)?;
        for (width, height) in WIDTHS {
            self.browser.resize(width, height)?;
            let found = self.browser.script(TOO_WIDE, &[])?;
            self.note(&format!("{name}, {width} pixels wide"), &found);
            if width < 1000 && self.schemes.len() > 1 {
                self.shoot(name, "narrow")?;
            }
        }
        self.browser.resize(1280, 800)?;
        for complaint in self.browser.complaints()? {
            // That it is not found is what that page says.
            if name != "missing" || !complaint.contains("404") {
                self.findings.push(format!("{name}: {complaint}"));
            }
        }
        Ok(())
    }

    fn check_accessibility(&mut self, name: &str) -> Result<()> {
        if self.schemes.is_empty() {
            return self.shoot(name, "light");
        }
        self.browser.script(&self.axe, &[])?;
        for scheme in self.schemes {
            self.browser.prefer_colours(scheme)?;
            let found = self.browser.script(AXE, &[json!(scheme)])?;
            self.note(&format!("{name}, {scheme}"), &found);
            self.shoot(name, scheme)?;
        }
        Ok(())
    }

    fn note(&mut self, what: &str, found: &Value) {
        let found = found.as_array().into_iter().flatten();
        self.findings
            .extend(found.map(|finding| format!("{what}: {finding}")));
    }

    fn shoot(&self, name: &str, kind: &str) -> Result<()> {
        let Some(pictures) = &self.pictures else {
            return Ok(());
        };
        self.browser
            .screenshot(&pictures.join(format!("{name}-{kind}.png")))
    }

    /// Fails with all that was found.
    pub(super) fn finish(self) -> Result<()> {
        ensure!(self.findings.is_empty(), "{}", self.findings.join("\n"));
        Ok(())
    }
}

//! Renderings a second of one SLS file with fifty keys, on one core: `render_rate [SECONDS]`.
//!
//! `render_rate.py` beside this measures stock on the same file. Not a test: nothing depends on
//! how quick a machine is.

#![allow(clippy::print_stdout, reason = "what it measures is its output")]

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates};
use saltern_content::render::modules::{Facts, add_all};
use saltern_content::render::{Renderers, json, render, set_sls_context};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

const SLS: &str = include_str!("render_rate.sls");
const GRAINS: &str = include_str!("render_rate.json");

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(5));
    let nothing = Arc::new(Value::Map(Vec::new()));
    let facts = Facts {
        grains: Arc::new(json::parse(GRAINS).expect("invariant: the grains are JSON")),
        pillar: nothing.clone(),
        opts: nothing,
    };
    let renderers = Renderers::default();
    let start = Instant::now();
    let mut count: u32 = 0;
    let mut keys = 0;
    while start.elapsed() < time {
        // As for one minion after the other: nothing is kept but what the library keeps.
        let mut registry = Registry::new();
        add_all(&mut registry, &facts, None);
        let mut context = Context {
            values: vec![
                ("grains".to_owned(), facts.grains.clone()),
                ("pillar".to_owned(), facts.pillar.clone()),
                ("opts".to_owned(), facts.opts.clone()),
            ],
            functions: Arc::new(registry),
            loader: Arc::new(NoTemplates),
            clock: Clock::system(),
            limits: Limits::DEFAULT,
            python: None,
        };
        context.set("saltenv", Value::from("base"));
        context.set("sls", Value::from("site.web"));
        set_sls_context(&mut context, "/srv/pillar/site/web.sls", "site.web");
        match render(SLS, "site/web.sls", &renderers, &context) {
            Ok(data) => keys = data.as_map().map_or(0, <[_]>::len),
            Err(error) => panic!("{error}"),
        }
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    println!(
        "{rate:.0} renderings/s of {keys} keys, {:.1} µs each",
        1e6 / rate
    );
}

//! How many pillars one core compiles in a second:
//! `cargo run --release -p saltern-content --example pillar`.
//!
//! Two SLS files of 50 keys in all, through Jinja and YAML, for a minion with 100 grains. The time
//! is that of the processor, so that a busy machine counts little.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measurement for people"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::ext_pillar::ExtPillars;
use saltern_content::files::FileServer;
use saltern_content::pillar::{Parts, PillarRequest, Pillars};
use saltern_content::render::modules::site::NoSite;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

const ROUNDS: u32 = 1000;

/// The tree, and the configuration of a master that lives in `top`.
fn build(top: &Path) -> std::path::PathBuf {
    let base = top.join("base");
    fs::create_dir_all(&base).expect("a directory");
    let mut web = String::from("{% set port = 8000 + grains.num_cpus %}\nweb:\n");
    for key in 0..15 {
        writeln!(web, "  key{key}: {{{{ grains.id }}}}-{key}").expect("text");
    }
    web.push_str(
        "{% for role in grains.roles %}\nrole_{{ role }}: {port: {{ port + loop.index \
    }}, on: true}\n{% endfor %}\n",
    );
    web.push_str("{% if grains.os == 'Debian' %}\nrepo: apt\n{% else %}\nrepo: yum\n{% endif %}\n");
    let mut app = String::new();
    for key in 0..30 {
        writeln!(
            app,
            "app{key}: {{{{ salt['grains.get']('g{key}', 'none') }}}}"
        )
        .expect("text");
    }
    let files = [
        (
            "top.sls",
            "base:\n  'os:Debian':\n    - match: grain\n    - web\n  '*':\n    - app\n",
        ),
        ("web.sls", &web),
        ("app.sls", &app),
    ];
    for (name, text) in files {
        let path = base.join(name);
        fs::write(&path, text).expect("a file");
        // Files that were just written are not kept in memory.
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        let file = fs::File::options().write(true).open(path).expect("a file");
        file.set_modified(old).expect("a time");
    }
    let at = top.display();
    let text = format!(
        "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
         log_file: {at}/log\npillar_roots: {{base: ['{at}/base']}}\n"
    );
    let conf = top.join("master");
    fs::write(&conf, text).expect("a file");
    conf
}

fn grains() -> Value {
    let mut entries = vec![
        ("id".into(), "web1".into()),
        ("os".into(), "Debian".into()),
        ("num_cpus".into(), 4.into()),
        (
            "roles".into(),
            Value::Array(vec!["web".into(), "app".into(), "db".into()]),
        ),
    ];
    entries.extend((0..96).map(|n| (format!("g{n}").into(), format!("value {n}").into())));
    Value::Map(entries)
}

/// How long this thread has had a processor, in nanoseconds.
fn on_processor() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split(' ').next().expect("a number");
    first.parse().expect("a number")
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let conf = build(directory.path());
    let Ok(loaded) = load_master(&conf) else {
        panic!("the configuration is good")
    };
    let config = loaded.config;
    let clock = Clock::system();
    let parts = Parts {
        clock: clock.clone(),
        files: Arc::new(FileServer::new(&config, clock.clone()).expect("a file server")),
        ext: ExtPillars::new(&config).expect("external pillars"),
        site: Arc::new(NoSite),
        bridge: None,
    };
    let pillars = Pillars::new(&config, parts).expect("pillars");
    let minion = MinionId::parse("web1").expect("an id");
    let request = PillarRequest::new(minion, Arc::new(grains()));
    let first = pillars.compile(&request);
    assert!(first.get("_errors").is_none(), "{first:?}");
    let keys = first.as_map().map_or(0, <[_]>::len);
    if let Some(kept) = std::env::args().nth(1) {
        build(Path::new(&kept));
    }
    let start = on_processor();
    for _ in 0..ROUNDS {
        pillars.compile(&request);
    }
    let nanoseconds = on_processor() - start;
    let each = nanoseconds as f64 / f64::from(ROUNDS) / 1000.0;
    println!(
        "{keys} keys: {each:.0} µs a pillar, {:.0} pillars a second",
        1e6 / each
    );
}

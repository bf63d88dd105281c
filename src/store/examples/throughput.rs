//! How fast things last on this machine: returns committed, returns mirrored, keys listed.
//!
//! `cargo run --release -p saltern-store --example throughput -- DIRECTORY`; the directory should
//! lie on the disk in question. Prints one line a measurement. No test: a number is not a promise.
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::path::PathBuf;

use saltern_base::clock::Clock;
use saltern_model::{Compat, Jid, JobRecord, KeyState, MinionId, Packed, ReturnRecord};
use saltern_store::files::Version;
use saltern_store::{
    DatabaseLimits, JobDatabase, Mirror, PkiTree, Sessions, StoreError, StoreOptions, Write,
};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::time::Instant;

const MINIONS: usize = 1_000;
const JOBS: usize = 200;

fn main() -> Result<(), StoreError> {
    let root = std::env::args_os().nth(1).map(PathBuf::from);
    let root = root.unwrap_or_else(std::env::temp_dir);
    let root = root.join(format!("saltern-throughput-{}", std::process::id()));
    let options = StoreOptions::below(&root, Compat::V3008);
    saltern_store::files::ensure_dir(&options.private_dir(), 0o700)?;
    let minions: Vec<MinionId> = (0..MINIONS)
        .map(|n| minion(&format!("minion-{n:05}")))
        .collect();

    for batch in [1, 10, 100, 1_000] {
        commit(&options, &minions, batch)?;
    }
    mirror(&options)?;
    keys(&options)?;
    sessions(&options, &minions)?;
    std::fs::remove_dir_all(&root).map_err(|source| StoreError::io("remove", &root, source))
}

fn commit(options: &StoreOptions, minions: &[MinionId], batch: usize) -> Result<(), StoreError> {
    let path = options.job_database.with_extension(format!("{batch}"));
    let path = if batch == 1_000 {
        options.job_database.clone()
    } else {
        path
    };
    let mut database = JobDatabase::open(&path, DatabaseLimits::default())?;
    let jobs = if batch < 100 { JOBS / 20 } else { JOBS };
    let mut rows = 0;
    let mut elapsed = 0.0;
    for number in 0..jobs {
        database.commit(&[Write::Job(job(number, minions))])?;
        let writes: Vec<Write> = minions
            .iter()
            .map(|id| Write::Return(ret(number, id)))
            .collect();
        let start = Instant::now();
        for part in writes.chunks(batch) {
            rows += database.commit(part)?.len();
        }
        elapsed += start.elapsed().as_secs_f64();
    }
    report(
        &format!("returns committed, {batch} a commit"),
        rows,
        elapsed,
    );
    Ok(())
}

fn mirror(options: &StoreOptions) -> Result<(), StoreError> {
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default())?;
    let mut mirror = Mirror::with_options(options, database.reader()?)?;
    let start = Instant::now();
    let mut rows = 0;
    while rows < 50_000 {
        let done = mirror.step(1_000)?;
        if done == 0 {
            break;
        }
        rows += done;
    }
    report("returns mirrored", rows, start.elapsed().as_secs_f64());
    Ok(())
}

fn keys(options: &StoreOptions) -> Result<(), StoreError> {
    let tree = PkiTree::with_options(options, Clock::system())?;
    let dir = options.pki_dir.join(KeyState::Accepted.directory());
    const KEYS: usize = 100_000;
    for number in 0..KEYS {
        let path = dir.join(format!("minion-{number:06}"));
        std::fs::write(&path, "").map_err(|source| StoreError::io("write", &path, source))?;
    }
    let start = Instant::now();
    let found = tree.accepted()?.len();
    report("accepted keys listed", found, start.elapsed().as_secs_f64());
    while start.elapsed().as_millis() < 100 {}
    tree.accepted()?;
    let start = Instant::now();
    for _ in 0..KEYS {
        tree.accepted()?;
    }
    report(
        "unchanged lists asked for",
        KEYS,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn sessions(options: &StoreOptions, minions: &[MinionId]) -> Result<(), StoreError> {
    let sessions = Sessions::with_options(options, Clock::system())?;
    // Stands for the file of every minion's key.
    let since = Version::of(&options.cachedir, true)?.ok_or_else(|| StoreError::Missing {
        path: options.cachedir.clone(),
        reason: "the sessions lie in it",
    })?;
    let start = Instant::now();
    for id in minions {
        sessions.get_or_create(id, &since.version)?;
    }
    report(
        "sessions made",
        minions.len(),
        start.elapsed().as_secs_f64(),
    );
    while start.elapsed().as_millis() < 100 {}
    for id in minions {
        sessions.get(id)?;
    }
    let start = Instant::now();
    for _ in 0..100 {
        for id in minions {
            sessions.get(id)?;
        }
    }
    report(
        "sessions found",
        100 * minions.len(),
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn report(what: &str, count: usize, seconds: f64) {
    println!(
        "{what:32} {count:>8} in {seconds:7.3} s  {:>10.0}/s",
        count as f64 / seconds
    );
}

fn minion(text: &str) -> MinionId {
    MinionId::parse(text).expect("invariant: a made-up id is valid")
}

fn jid(number: usize) -> Jid {
    Jid::parse(&format!("20261121070622{number:06}")).expect("invariant: twenty digits")
}

fn job(number: usize, minions: &[MinionId]) -> JobRecord {
    let load = Value::map([("fun", Value::from("test.ping")), ("tgt", Value::from("*"))]);
    JobRecord {
        jid: jid(number),
        created: 0,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: minions.to_vec(),
        nocache: false,
    }
}

fn ret(number: usize, id: &MinionId) -> ReturnRecord {
    let load = Value::map([
        ("cmd", Value::from("_return")),
        ("id", Value::from(id.as_str())),
        ("jid", Value::from(jid(number).as_str())),
        ("return", Value::from(true)),
        ("retcode", Value::from(0_i64)),
        ("success", Value::from(true)),
        ("fun", Value::from("test.ping")),
        ("fun_args", Value::Array(Vec::new())),
        ("_stamp", Value::from("2026-11-21T07:06:22.637714+00:00")),
    ]);
    ReturnRecord {
        jid: jid(number),
        minion: id.clone(),
        received: 0,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(encode(&load, Dialect::Bin)),
    }
}

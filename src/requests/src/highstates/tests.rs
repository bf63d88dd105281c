#![allow(clippy::indexing_slicing, reason = "tests; a failure shows where")]

use saltern_model::Packed;
use saltern_store::Write;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::msgpack::{Dialect, Value, pack};

use super::*;

const MANY: usize = 100;

fn minion(number: usize) -> MinionId {
    MinionId::parse(&format!("m{number:05}")).unwrap()
}

fn minions(count: usize) -> Vec<MinionId> {
    (0..count).map(minion).collect()
}

/// A highstate whose file was changed, or fails, or neither.
fn highstate(number: usize, job: u64, word: &str) -> Write {
    let changes = match word {
        "changed" => Value::map([("diff", "new")]),
        _ => Value::Map(Vec::new()),
    };
    let run = Value::map([
        ("result", Value::from(word != "failed")),
        ("changes", changes),
        ("__sls__", "web".into()),
    ]);
    let load = Value::map([
        ("fun_args", Value::Array(Vec::new())),
        ("return", Value::map([("file_|-a_|-/a_|-managed", run)])),
    ]);
    Write::Return(ReturnRecord {
        jid: Jid::parse(&format!("2026010203040506{job:04}")).unwrap(),
        minion: minion(number),
        received: i64::try_from(job).unwrap(),
        fun: "state.apply".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(pack(&load, Dialect::Bin)),
    })
}

struct Rig {
    dir: tempfile::TempDir,
    database: JobDatabase,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        std::fs::create_dir(dir.path().join("saltern")).unwrap();
        Self { dir, database }
    }

    fn open(&self) -> Highstates {
        Highstates::open_at(self.dir.path().join("saltern/highstates.json"))
    }
}

#[test]
fn last_highstate_of_each_minion_is_known_and_survives_a_restart() {
    let mut rig = Rig::new();
    let reader = rig.database.reader().unwrap();
    let accepted = minions(4);
    let words = ["changed", "changed", "failed"];
    let writes = words.iter().enumerate();
    let writes: Vec<Write> = writes.map(|(at, word)| highstate(at, 1, word)).collect();
    rig.database.commit(&writes).unwrap();
    let highstates = rig.open();
    assert_eq!(highstates.catch_up(&*reader, MANY).unwrap(), Some(0));
    let groups = highstates.groups(&accepted, 0);
    let counts = HighstateCounts {
        corrected: 2,
        failed: 1,
        unknown: 1,
        ..HighstateCounts::default()
    };
    assert_eq!(groups.counts, counts);
    let shown: Vec<_> = groups
        .groups
        .iter()
        .map(|group| (group.verdict.as_str(), group.total))
        .collect();
    assert_eq!(shown, [("failed", 1), ("corrected", 2)]);
    highstates.save(&accepted).unwrap();

    rig.database.commit(&[highstate(0, 2, "fine")]).unwrap();
    let again = rig.open();
    assert_eq!(again.groups(&accepted, 0).counts, counts);
    assert_eq!(again.catch_up(&*reader, MANY).unwrap(), Some(0));
    let counts = again.groups(&accepted, 0).counts;
    assert_eq!((counts.in_line, counts.corrected), (1, 1));
    let row = again.page(&accepted, &wanted(None, None)).rows.remove(0);
    let run = row.run.unwrap();
    assert_eq!((row.verdict.as_str(), run.received), ("in_line", 2));
    assert_eq!(run.files, ["web"]);
}

fn wanted<'a>(verdict: Option<&'a str>, after: Option<&'a str>) -> Wanted<'a> {
    Wanted {
        verdict,
        group: None,
        after,
        limit: 2,
    }
}

#[test]
fn page_gives_minions_of_one_verdict_or_group_in_their_order() {
    let mut rig = Rig::new();
    let reader = rig.database.reader().unwrap();
    let writes: Vec<Write> = (0..5).map(|at| highstate(at, 1, "changed")).collect();
    rig.database.commit(&writes).unwrap();
    let highstates = rig.open();
    highstates.catch_up(&*reader, MANY).unwrap();
    let accepted = minions(7);
    let page = highstates.page(&accepted, &wanted(Some("corrected"), None));
    assert_eq!((page.rows.len(), page.total), (2, 5));
    let page = highstates.page(&accepted, &wanted(Some("corrected"), page.next.as_deref()));
    assert_eq!(page.rows[0].minion, minion(2));
    let page = highstates.page(&accepted, &wanted(Some("unknown"), None));
    assert_eq!((page.total, page.next), (2, None));
    let group = highstates.groups(&accepted, 0).groups.remove(0).group;
    let of_group = Wanted {
        group: Some(&group),
        ..wanted(None, None)
    };
    assert_eq!(highstates.page(&accepted, &of_group).total, 5);
}

#[test]
fn minion_that_is_not_accepted_any_more_is_forgotten() {
    let mut rig = Rig::new();
    let reader = rig.database.reader().unwrap();
    let writes = [highstate(0, 1, "changed"), highstate(1, 1, "failed")];
    rig.database.commit(&writes).unwrap();
    let highstates = rig.open();
    highstates.catch_up(&*reader, MANY).unwrap();
    highstates.save(&minions(1)).unwrap();
    let known = highstates.known.read();
    assert_eq!(known.minions.len(), 1);
    assert_eq!(known.lists.len(), 2, "{:?}", known.lists);
}

#[test]
fn older_return_replaces_no_newer_one() {
    let mut rig = Rig::new();
    let reader = rig.database.reader().unwrap();
    let writes = [highstate(0, 2, "fine"), highstate(0, 1, "failed")];
    rig.database.commit(&writes).unwrap();
    let highstates = rig.open();
    highstates.catch_up(&*reader, MANY).unwrap();
    assert_eq!(highstates.groups(&minions(1), 0).counts.in_line, 1);
}

#[test]
fn file_that_is_none_is_learnt_anew() {
    let rig = Rig::new();
    std::fs::write(rig.dir.path().join("saltern/highstates.json"), "{").unwrap();
    assert_eq!(rig.open().groups(&minions(1), 0).counts.unknown, 1);
}

#[test]
fn twenty_thousand_minions_are_grouped_from_memory() {
    let mut rig = Rig::new();
    let reader = rig.database.reader().unwrap();
    let writes: Vec<Write> = (0..200).map(|at| highstate(at, 1, "changed")).collect();
    rig.database.commit(&writes).unwrap();
    let highstates = rig.open();
    highstates.catch_up(&*reader, MANY).unwrap();
    let summary = highstates.known.read().minions[&minion(0)].clone();
    let accepted = minions(20_000);
    for minion in &accepted {
        let mut known = highstates.known.write();
        known.minions.insert(minion.clone(), summary.clone());
    }
    let groups = highstates.groups(&accepted, 0);
    assert_eq!(groups.groups[0].total, 20_000);
    assert_eq!(groups.groups[0].minions.len(), SAMPLE);
}

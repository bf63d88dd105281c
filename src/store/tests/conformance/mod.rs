//! Guarantees of every engine of the job database, whatever it keeps rows in: one function each,
//! over the three traits of the seam alone.
//!
//! An engine is added by one line, `conformance!(name, factory);`, which makes a test of each, or by a
//! test that goes through [`GUARANTEES`], where starting a server for each would take long. The factory
//! gives a [`Site`], whose `open` opens the same database anew each time. The crate that
//! includes this page has the fixtures of `tests/store/common.rs` as `crate::common`.

pub(crate) mod memory;

use std::sync::Arc;

use saltern_model::{JobRecord, MinionId, Packed, ReturnRecord};
use saltern_store::jobs::{
    Batch, Committed, Condition, Engine, JobSearch, JobsPage, LastReturns, NewestReturn, ReturnRun,
    ReturnSearch, Scrub, ScrubSlice, StateFilter, wait,
};
use saltern_store::{
    CachedJob, EventRange, EventsPage, JobState, NewEvent, Reason, Retention, Write, Written,
};
use saltern_wire::msgpack::Value;

use crate::common::{id, jid, job, ret};

/// Where an engine under test keeps its database.
pub(crate) trait Site {
    /// Opens the database; a new one the first time.
    fn open(&self) -> Engine;
}

/// Hands the names of all guarantees to a macro, behind its own arguments.
macro_rules! guarantees {
    ($then:ident $($arguments:tt)*) => {
        $then! { $($arguments)*
            each_write_is_answered_in_its_order,
            batches_in_flight_are_committed_in_the_order_of_the_calls,
            committed_rows_are_there_after_reopening,
            no_number_is_used_twice,
            return_is_kept_once,
            job_part_replaces_the_load_and_adds_minions,
            report_of_a_job_gives_way_to_its_publication,
            returns_from_before_a_publication_are_early,
            open_jobs_are_those_whose_returns_are_awaited,
            reader_sees_what_is_committed_later,
            newest_returns_are_given_in_their_order_to_who_wants_them,
            last_returns_are_kept_and_follow_new_returns,
            pages_go_from_the_newest_job_to_the_oldest,
            search_applies_every_filter,
            followers_get_rows_in_their_order_and_within_bytes,
            imported_rows_are_never_met_by_followers,
            batch_of_a_job_is_kept_until_it_is_over,
            events_have_dense_positions_and_are_kept_once,
            events_of_a_change_are_kept_with_it,
            audit_trail_is_a_chain_that_a_check_confirms,
            retention_removes_old_jobs_and_keeps_open_ones,
            housekeeping_leaves_every_row,
        }
    };
}

/// Makes a test of each guarantee for an engine.
macro_rules! conformance {
    ($engine:ident, $site:expr) => {
        $crate::conformance::guarantees! { conformance $engine, $site; }
    };
    ($engine:ident, $site:expr; $($guarantee:ident,)*) => {
        mod $engine {
            $(
                #[test]
                fn $guarantee() {
                    $crate::conformance::$guarantee(&$site());
                }
            )*
        }
    };
}

/// All guarantees with their names, for an engine whose databases share one server.
macro_rules! named {
    ($($guarantee:ident,)*) => {
        &[$((stringify!($guarantee), $guarantee as Guarantee),)*]
    };
}

/// Checks a guarantee; panics where it does not hold.
#[allow(dead_code, reason = "only engines with a server of their own use it")]
type Guarantee = fn(&dyn Site);

/// The guarantees, each with its name.
#[allow(dead_code, reason = "only engines with a server of their own use it")]
pub(crate) const GUARANTEES: &[(&str, Guarantee)] = guarantees!(named);

pub(crate) use {conformance, guarantees};

pub(crate) fn append(engine: &Engine, writes: Vec<Write>) -> Vec<Written> {
    commit(engine, Batch::of(writes)).written
}

fn commit(engine: &Engine, batch: Batch) -> Committed {
    wait(engine.log.append(Arc::new(batch))).expect("committed")
}

pub(crate) fn returned(number: u32, minion: &str) -> Write {
    Write::Return(ret(number, minion, Value::from(true)))
}

fn id_of(written: Written) -> i64 {
    match written {
        Written::New { id } => id,
        other => panic!("a new row, not {other:?}"),
    }
}

fn state(number: u32, state: JobState) -> Write {
    Write::JobState {
        jid: jid(number),
        state,
        at: 7,
        notes: None,
    }
}

/// Jobs 1 to `count`, each with a return of `m1`, complete but for the last.
fn filled(engine: &Engine, count: u32) {
    for number in 1..=count {
        let mut writes = vec![
            Write::Job(job(number, &["m1", "m2"])),
            returned(number, "m1"),
        ];
        if number < count {
            writes.push(state(number, JobState::Complete));
        }
        append(engine, writes);
    }
}

fn jids(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|n| jid(n).to_string()).collect()
}

pub(crate) fn each_write_is_answered_in_its_order(site: &dyn Site) {
    let engine = site.open();
    let written = append(
        &engine,
        vec![
            Write::Job(job(1, &["m1"])),
            Write::Job(job(1, &["m1"])),
            returned(1, "m1"),
            // Stock stores returns of jobs that nobody knows, too.
            returned(9, "m1"),
            Write::Expected {
                jid: jid(1),
                minions: vec![id("m2")],
            },
            state(1, JobState::Complete),
            state(8, JobState::Complete),
            Write::Expected {
                jid: jid(8),
                minions: vec![id("m2")],
            },
        ],
    );
    let [first, second, third, fourth, rest @ ..] = written.as_slice() else {
        panic!("one answer a write: {written:?}");
    };
    assert!(first.is_new() && third.is_new() && fourth.is_new());
    assert_eq!(*second, Written::Duplicate);
    let expected = [
        Written::Updated,
        Written::Updated,
        Written::NoSuchJob,
        Written::NoSuchJob,
    ];
    assert_eq!(rest, expected);
    assert_eq!(append(&engine, Vec::new()), []);
}

pub(crate) fn batches_in_flight_are_committed_in_the_order_of_the_calls(site: &dyn Site) {
    let engine = site.open();
    let batches = (1..=8).map(|number| Batch::of(vec![Write::Job(job(number, &["m1"]))]));
    let pending: Vec<_> = batches
        .map(|batch| engine.log.append(Arc::new(batch)))
        .collect();
    let ids: Vec<i64> = pending
        .into_iter()
        .filter_map(|pending| wait(pending).ok())
        .flat_map(|committed| committed.written)
        .map(id_of)
        .collect();
    assert!(!ids.is_empty() && ids.is_sorted(), "{ids:?}");
    let stored = engine.queries.jobs_after(0, 100).expect("read");
    let in_store: Vec<i64> = stored.iter().map(|job| job.id).collect();
    assert_eq!(ids, in_store, "what was refused is not there");
}

pub(crate) fn committed_rows_are_there_after_reopening(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 3);
    let identity = engine.queries.identity().expect("an identity");
    drop(engine);
    let engine = site.open();
    assert_eq!(engine.queries.identity().expect("the same"), identity);
    assert_eq!(engine.queries.counts().expect("counted"), (3, 3));
    let stored = engine.queries.load(&jid(2)).expect("read").expect("kept");
    let expected = job(2, &["m1", "m2"]);
    assert_eq!(stored.record.minions, expected.minions);
    assert_eq!(stored.record.load.as_ref(), expected.load.as_ref());
    assert_eq!(stored.state, JobState::Complete);
    let found = engine.queries.return_of(&jid(2), &id("m1")).expect("read");
    let expected = ret(2, "m1", Value::from(true));
    assert_eq!(found.expect("kept").load.as_ref(), expected.load.as_ref());
    assert_eq!(
        engine
            .queries
            .return_of(&jid(2), &id("m2"))
            .expect("read")
            .map(|_| ()),
        None
    );
}

pub(crate) fn no_number_is_used_twice(site: &dyn Site) {
    let engine = site.open();
    let written = append(
        &engine,
        vec![Write::Job(job(1, &["m1"])), returned(1, "m1")],
    );
    let last: Vec<i64> = written.into_iter().map(id_of).collect();
    append(&engine, vec![Write::DeleteJob { jid: jid(1) }]);
    assert_eq!(engine.queries.counts().expect("counted"), (0, 0));
    drop(engine);
    let engine = site.open();
    let written = append(
        &engine,
        vec![Write::Job(job(2, &["m1"])), returned(2, "m1")],
    );
    let next: Vec<i64> = written.into_iter().map(id_of).collect();
    assert!(next.iter().zip(&last).all(|(next, last)| next > last));
}

pub(crate) fn return_is_kept_once(site: &dyn Site) {
    let engine = site.open();
    append(&engine, vec![Write::Job(job(1, &["m1"]))]);
    let first = id_of(append(&engine, vec![returned(1, "m1")])[0]);
    let other = Write::Return(ret(1, "m1", Value::from("something else")));
    let written = append(&engine, vec![returned(1, "m1"), other]);
    assert_eq!(
        written,
        [Written::Repeated { id: first }, Written::Duplicate]
    );
    let kept = engine.queries.returns(&jid(1)).expect("read");
    let expected = ret(1, "m1", Value::from(true));
    assert_eq!(kept.len(), 1);
    assert_eq!(
        kept[0].load.as_ref(),
        expected.load.as_ref(),
        "the first stays"
    );
}

pub(crate) fn job_part_replaces_the_load_and_adds_minions(site: &dyn Site) {
    let engine = site.open();
    append(
        &engine,
        vec![
            Write::JobPart(job(1, &["m2"])),
            state(1, JobState::Complete),
        ],
    );
    let second = JobRecord {
        load: Packed::new(&b"\x81\xa1a\x01"[..]),
        ..job(1, &["m1"])
    };
    assert_eq!(
        append(&engine, vec![Write::JobPart(second.clone())]),
        [Written::Updated]
    );
    let stored = engine.queries.load(&jid(1)).expect("read").expect("kept");
    assert_eq!(stored.record.minions, [id("m1"), id("m2")]);
    assert_eq!(stored.record.load.as_ref(), second.load.as_ref());
    assert_eq!(stored.state, JobState::Open);
}

pub(crate) fn report_of_a_job_gives_way_to_its_publication(site: &dyn Site) {
    let engine = site.open();
    let reported = Write::ClosedJob {
        job: job(1, &["m1"]),
        reporter: Some(id("m1")),
    };
    append(&engine, vec![reported]);
    let queries = &engine.queries;
    let stored = queries.load(&jid(1)).expect("read").expect("kept");
    assert_eq!(stored.reporter, Some(id("m1")));
    assert_eq!(stored.state, JobState::Complete);
    assert!(!queries.is_published_for(&jid(1), &id("m1")).expect("read"));
    assert!(queries.is_reported(&jid(1)).expect("read"));
    assert!(!queries.is_reported(&jid(2)).expect("read"));
    let for_minion = Write::PublishedFor {
        jid: jid(1),
        minion: id("m3"),
    };
    append(&engine, vec![Write::JobPart(job(1, &["m2"])), for_minion]);
    let stored = queries.load(&jid(1)).expect("read").expect("kept");
    assert_eq!(stored.reporter, None);
    assert_eq!(stored.record.minions, [id("m2")], "not those of the report");
    assert!(!queries.is_reported(&jid(1)).expect("read"));
    assert!(queries.is_published_for(&jid(1), &id("m2")).expect("read"));
    assert!(!queries.is_published_for(&jid(1), &id("m1")).expect("read"));
    assert_eq!(queries.publisher_of(&jid(1)).expect("read"), Some(id("m3")));
}

pub(crate) fn returns_from_before_a_publication_are_early(site: &dyn Site) {
    let engine = site.open();
    let is_early = |number: u32| {
        let queries = &engine.queries;
        queries.has_early_returns(&jid(number)).expect("a read")
    };
    let reported = Write::ClosedJob {
        job: job(1, &["m1"]),
        reporter: Some(id("m1")),
    };
    append(&engine, vec![reported, returned(1, "m1")]);
    assert!(!is_early(1), "it is not published");
    append(&engine, vec![Write::JobPart(job(1, &["m1", "m2"]))]);
    assert!(is_early(1));
    append(&engine, vec![Write::JobPart(job(2, &["m1"]))]);
    append(&engine, vec![returned(2, "m1")]);
    assert!(!is_early(2) && !is_early(3));
    append(&engine, vec![Write::JobPart(job(2, &["m2"]))]);
    assert!(is_early(2), "before its second part");
}

pub(crate) fn open_jobs_are_those_whose_returns_are_awaited(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 3);
    let notes = Write::JobState {
        jid: jid(3),
        state: JobState::Open,
        at: 1,
        notes: Some(b"notes"[..].into()),
    };
    append(
        &engine,
        vec![
            notes,
            Write::Published {
                jid: jid(3),
                at: 11,
            },
            Write::Published {
                jid: jid(3),
                at: 12,
            },
        ],
    );
    let open = engine.queries.open_jobs().expect("read");
    let [open] = open.as_slice() else {
        panic!("one open job: {open:?}");
    };
    assert_eq!(open.job.record.jid, jid(3));
    assert_eq!(open.job.published, Some(11), "the first time counts");
    assert_eq!(open.job.notes.as_deref(), Some(&b"notes"[..]));
    assert_eq!(open.returned, [(id("m1"), 0)]);
    let outstanding: Vec<&MinionId> = open.outstanding().collect();
    assert_eq!(outstanding, [&id("m2")]);
    append(&engine, vec![state(3, JobState::Killed)]);
    let ended = engine.queries.load(&jid(3)).expect("read").expect("kept");
    assert_eq!((ended.state, ended.finished), (JobState::Killed, Some(7)));
    assert_eq!(
        ended.notes.as_deref(),
        Some(&b"notes"[..]),
        "the old ones stay"
    );
    assert_eq!(engine.queries.open_jobs().expect("read").len(), 0);
}

pub(crate) fn reader_sees_what_is_committed_later(site: &dyn Site) {
    let engine = site.open();
    let reader = engine.queries.another().expect("a reader");
    assert!(!reader.has(&jid(1)).expect("read"));
    filled(&engine, 1);
    assert!(reader.has(&jid(1)).expect("read"));
    assert_eq!(reader.returned_minions(&jid(1)).expect("read"), [id("m1")]);
    let last = reader.last_return_at(&jid(1)).expect("read");
    assert_eq!(last, Some(ret(1, "m1", Value::Nil).received));
    assert_eq!(reader.return_heads(&jid(1)).expect("read").len(), 1);
    let load = reader.load_of(&jid(1)).expect("read").expect("kept");
    assert_eq!(load.as_ref(), job(1, &[]).load.as_ref());
}

/// Notes the returns that it is given, and wants those of some minions until it has enough.
struct Noted<'a> {
    is_wanted: &'a dyn Fn(&str) -> bool,
    most: usize,
    found: Vec<String>,
}

impl ReturnSearch for Noted<'_> {
    fn wants(&mut self, minion: &str) -> Option<bool> {
        (self.found.len() < self.most).then(|| (self.is_wanted)(minion))
    }

    fn take(&mut self, one: NewestReturn<'_>) {
        assert_eq!((one.fun, one.retcode), ("test.ping", 0));
        self.found.push(format!("{} {}", one.jid, one.minion));
    }
}

pub(crate) fn newest_returns_are_given_in_their_order_to_who_wants_them(site: &dyn Site) {
    const RETURNS: u32 = 3_500;
    let engine = site.open();
    append(&engine, vec![Write::Job(job(1, &[]))]);
    let minion = |number: u32| match number {
        // Some want all in a row, and none for a while.
        0..1_000 | 3_000.. => format!("wanted{number}"),
        _ if number.is_multiple_of(7) => format!("wanted{number}"),
        _ => format!("other{number}"),
    };
    let writes = (0..RETURNS).map(|number| returned(1, &minion(number)));
    append(&engine, writes.collect());
    let is_wanted = |minion: &str| minion.starts_with("wanted");
    let (_, last) = engine.queries.last_ids().expect("read");
    for (below, limit, most) in [
        (0, 0, 9),
        (0, 1, 9),
        (0, 600, 9_999),
        (600, 2_100, 9_999),
        (0, 9_999, 900),
        (0, 9_999, 9_999),
    ] {
        let through = last - i64::from(below);
        let newest = (0..RETURNS - below).rev().take(limit).map(minion);
        let wanted = newest.filter(|minion| is_wanted(minion)).take(most);
        let expected: Vec<_> = wanted
            .map(|minion| format!("{} {minion}", jid(1)))
            .collect();
        let mut search = Noted {
            is_wanted: &is_wanted,
            most,
            found: Vec::new(),
        };
        let queries = &engine.queries;
        let above = through - i64::try_from(limit).expect("few");
        let span = (above, through);
        queries.newest_returns(span, &mut search).expect("read");
        assert_eq!(search.found, expected, "{limit} returns, {most} wanted");
    }
}

pub(crate) fn last_returns_are_kept_and_follow_new_returns(site: &dyn Site) {
    let engine = site.open();
    append(
        &engine,
        vec![Write::Job(job(1, &[])), Write::Job(job(2, &[]))],
    );
    let last = LastReturns::default();
    let ids = ["a", "b", "c"].map(|id| MinionId::parse(id).expect("an id"));
    let jids = |last: &LastReturns, engine: &Engine| {
        let found = last.of(&*engine.queries, &ids).expect("read");
        let jids = found
            .into_iter()
            .map(|one| one.map(|one| one.jid.to_string()));
        jids.collect::<Vec<_>>()
    };
    assert_eq!(jids(&last, &engine), [None, None, None]);
    append(&engine, vec![returned(1, "a"), returned(1, "b")]);
    let first = Some(jid(1).to_string());
    assert_eq!(jids(&last, &engine), [first.clone(), first.clone(), None]);
    append(&engine, vec![returned(2, "b"), returned(2, "c")]);
    let second = Some(jid(2).to_string());
    let expected = [first, second.clone(), second];
    assert_eq!(jids(&last, &engine), expected);
    assert_eq!(jids(&LastReturns::default(), &engine), expected);
    append(&engine, vec![state(1, JobState::Complete)]);
    let all_that_ended = Retention {
        most_jobs: Some(0),
        ..Retention::default()
    };
    let removed = wait(engine.housekeeping.remove_slice(all_that_ended, 2));
    assert!(removed.expect("removed").is_some());
    let [_, second, third] = expected;
    assert_eq!(jids(&last, &engine), [None, second, third]);
}

pub(crate) fn pages_go_from_the_newest_job_to_the_oldest(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 5);
    let other = JobRecord {
        fun: "state.apply".to_owned(),
        ..job(6, &["m1"])
    };
    append(&engine, vec![Write::Job(other)]);
    let listed = |page: JobsPage<'_>| -> Vec<String> {
        let jobs = engine.queries.jobs_page(&page).expect("read");
        jobs.into_iter().map(|job| job.jid.to_string()).collect()
    };
    let page = JobsPage {
        limit: 3,
        ..JobsPage::default()
    };
    assert_eq!(listed(page.clone()), jids([6, 5, 4]));
    let before = jid(4);
    let next = JobsPage {
        before: Some(before.as_str()),
        ..page.clone()
    };
    assert_eq!(listed(next), jids([3, 2, 1]));
    let of_function = JobsPage {
        function: Some("test.ping"),
        ..page
    };
    assert_eq!(listed(of_function), jids([5, 4, 3]));
    let functions = engine.queries.functions("", 10).expect("read");
    assert_eq!(functions, ["state.apply", "test.ping"]);
    let latest = engine.queries.latest_jobs(2).expect("read");
    let counts: Vec<_> = latest
        .iter()
        .map(|job| (job.expected, job.returned))
        .collect();
    assert_eq!(counts, [(1, 0), (2, 1)]);

    append(
        &engine,
        vec![returned(6, "b"), returned(6, "a"), returned(6, "c")],
    );
    let page = engine
        .queries
        .returns_page(&jid(6), Some("a"), 10, usize::MAX);
    let minions = |returns: &[ReturnRecord]| -> Vec<MinionId> {
        returns.iter().map(|one| one.minion.clone()).collect()
    };
    assert_eq!(minions(&page.expect("read").returns), [id("b"), id("c")]);
    let page = engine
        .queries
        .returns_page(&jid(6), None, 10, 1)
        .expect("read");
    assert_eq!(minions(&page.returns), [id("a")], "at least one");
    assert!(page.is_cut);
}

pub(crate) fn search_applies_every_filter(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 3);
    let mine = JobRecord {
        user: "me".to_owned(),
        ..job(4, &["m3"])
    };
    append(&engine, vec![Write::Job(mine), state(4, JobState::Expired)]);
    let minion = id("m3");
    let found = |search: JobSearch<'_>| -> Vec<String> {
        let search = JobSearch {
            limit: 10,
            ..search
        };
        let page = engine.queries.search_jobs(&search).expect("read");
        assert_eq!(page.next, None);
        page.jobs
            .into_iter()
            .map(|job| job.jid.to_string())
            .collect()
    };
    assert_eq!(found(JobSearch::default()), jids([4, 3, 2, 1]));
    let of_user = JobSearch {
        user: Some("me"),
        ..JobSearch::default()
    };
    assert_eq!(found(of_user), jids([4]));
    let of_minion = JobSearch {
        minion: Some(&minion),
        ..JobSearch::default()
    };
    assert_eq!(found(of_minion), jids([4]));
    for (state, expected) in [
        (StateFilter::Open, jids([3])),
        (StateFilter::Ended, jids([4, 2, 1])),
        (StateFilter::Failed, jids([4])),
    ] {
        let of_state = JobSearch {
            state: Some(state),
            ..JobSearch::default()
        };
        assert_eq!(found(of_state), expected, "{state:?}");
    }
}

pub(crate) fn followers_get_rows_in_their_order_and_within_bytes(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 4);
    append(&engine, vec![returned(4, "m2"), returned(1, "m2")]);
    let queries = &engine.queries;
    let (last_job, last_return) = queries.last_ids().expect("read");
    let jobs = queries.jobs_after(0, 2).expect("read");
    let numbers: Vec<String> = jobs.iter().map(|job| job.record.jid.to_string()).collect();
    assert_eq!(numbers, jids([1, 2]));
    assert_eq!(jobs[0].record.minions, [id("m1"), id("m2")]);
    let rest = queries.jobs_after(jobs[1].id, 10).expect("read");
    assert_eq!(rest.last().map(|job| job.id), Some(last_job));
    let returns = queries.returns_after(0, 10).expect("read");
    assert!(returns.is_sorted_by_key(|row| row.id));
    assert_eq!(returns.last().map(|row| row.id), Some(last_return));
    let (one, left) = queries.jobs_within(0, 10, 1).expect("read");
    assert_eq!((one.len(), left), (1, 0), "at least one, whatever its size");
    assert_eq!(queries.returns_within(0, 10, 1).expect("read").len(), 1);
    for limit in [1, 2, 10] {
        let mut expected: Vec<ReturnRun> = Vec::new();
        for row in queries.returns_after(0, limit).expect("read") {
            match expected.last_mut() {
                Some(run) if run.jid == row.record.jid => {
                    (run.last, run.rows) = (row.id, run.rows + 1);
                }
                _ => expected.push(ReturnRun {
                    jid: row.record.jid,
                    last: row.id,
                    rows: 1,
                }),
            }
        }
        assert_eq!(queries.return_runs(0, limit).expect("read"), expected);
    }
    for number in [1, 2, 99] {
        let all = queries.returns_after(0, 10).expect("read");
        for cursor in 0..=last_return {
            let mut above = all.iter().filter(|row| row.id > cursor);
            let expected = above.find(|row| row.record.jid == jid(number));
            let first = queries.first_return(&jid(number), cursor).expect("read");
            assert_eq!(first, expected.map(|row| row.id), "{number} {cursor}");
        }
    }
    assert!(
        queries
            .return_runs(last_return, 10)
            .expect("read")
            .is_empty()
    );
}

pub(crate) fn imported_rows_are_never_met_by_followers(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 1);
    assert!(!engine.queries.has_imported().expect("read"));
    let old = CachedJob {
        jid: jid(0),
        job: Some(job(0, &["m1"])),
        returns: vec![ret(0, "m1", Value::from(true))],
        reporter: None,
        is_whole: true,
    };
    let known = CachedJob {
        jid: jid(1),
        job: Some(job(1, &["m9"])),
        ..old.clone()
    };
    let imported = wait(engine.log.import(vec![old, known])).expect("imported");
    assert_eq!((imported.jobs, imported.returns), (1, 1));
    wait(engine.log.finish_import()).expect("noted");
    let queries = &engine.queries;
    assert!(queries.has_imported().expect("read"));
    let old = queries.load(&jid(0)).expect("read").expect("kept");
    assert_eq!(old.state, JobState::Complete);
    let known = queries.load(&jid(1)).expect("read").expect("kept");
    assert_eq!(known.record.minions, [id("m1"), id("m2")], "as it was");
    assert_eq!(queries.jobs_after(0, 10).expect("read").len(), 1);
    assert_eq!(queries.returns_after(0, 10).expect("read").len(), 1);
}

pub(crate) fn batch_of_a_job_is_kept_until_it_is_over(site: &dyn Site) {
    let engine = site.open();
    let batch = |plan: &'static [u8]| Write::Batch {
        jid: jid(1),
        plan: Packed::new(plan),
    };
    let failed = Write::BatchFailed {
        jid: jid(1),
        minions: vec![id("m2")],
        reason: "no connection",
    };
    let part = Write::JobPart(job(1, &["m1"]));
    append(
        &engine,
        vec![batch(b"\x01"), part, returned(1, "m1"), failed],
    );
    assert_eq!(append(&engine, vec![batch(b"\x02")]), [Written::Duplicate]);
    let open = engine.queries.open_batches().expect("read");
    let [open] = open.as_slice() else {
        panic!("one batch: {open:?}");
    };
    assert_eq!(open.plan.as_ref(), b"\x01");
    assert_eq!(open.sent, [id("m1")]);
    assert_eq!(open.returned.len(), 1);
    assert_eq!(open.failed, [(id("m2"), "no connection".to_owned())]);
    let pause = |since| Write::BatchPaused { jid: jid(1), since };
    append(&engine, vec![pause(Some(5))]);
    let paused = engine.queries.batch_paused_since(&jid(1)).expect("read");
    assert_eq!(paused, Some(5));
    append(&engine, vec![pause(None)]);
    let paused = engine.queries.batch_paused_since(&jid(1)).expect("read");
    assert_eq!(paused, None);
    let over = Write::BatchOver {
        jid: jid(1),
        halted: Some("stopped".to_owned()),
    };
    append(&engine, vec![over]);
    assert_eq!(append(&engine, vec![pause(Some(6))]), [Written::NoSuchJob]);
    assert_eq!(engine.queries.open_batches().expect("read").len(), 0);
    let batch = engine.queries.batch(&jid(1)).expect("read").expect("kept");
    assert_eq!(
        (batch.is_open, batch.halted.as_deref()),
        (false, Some("stopped"))
    );
}

fn event(tag: &str) -> NewEvent {
    NewEvent {
        received: 1,
        tag: tag.to_owned(),
        data: b"\x80"[..].into(),
        of_minion: tag.starts_with("minion"),
    }
}

fn tags(engine: &Engine) -> Vec<String> {
    let page = EventsPage {
        limit: 100,
        ..EventsPage::default()
    };
    let events = engine.queries.events(&page).expect("read");
    events.into_iter().map(|event| event.tag).collect()
}

pub(crate) fn events_have_dense_positions_and_are_kept_once(site: &dyn Site) {
    let engine = site.open();
    let next = wait(engine.log.next_event_position()).expect("a position");
    let events = |first: u64, tags: &[&str]| Write::Events {
        first,
        events: tags.iter().map(|tag| event(tag)).collect(),
    };
    append(&engine, vec![events(1, &["a", "minion/b"])]);
    // Its outcome was unknown: it is written once more, with one behind it.
    let committed = commit(&engine, Batch::of(vec![events(1, &["a", "minion/b", "c"])]));
    assert_eq!(committed.events.len(), 1);
    assert_eq!(tags(&engine), ["a", "minion/b", "c"]);
    let range = EventRange {
        after: next,
        through: next + 2,
        max_events: 10,
        max_bytes: usize::MAX,
    };
    let slice = engine.queries.events_between(&range).expect("read");
    let positions: Vec<i64> = slice.events.iter().map(|event| event.position).collect();
    assert_eq!(positions, [next + 1, next + 2]);
    for (max_events, expected, through) in [
        (10, vec![next + 2, next + 1], next),
        (1, vec![next + 2], next + 1),
    ] {
        let range = EventRange {
            max_events,
            ..range
        };
        let slice = engine.queries.events_backwards(&range).expect("read");
        let positions: Vec<i64> = slice.events.iter().map(|event| event.position).collect();
        assert_eq!((positions, slice.through), (expected, through));
    }
    assert_eq!(
        wait(engine.log.next_event_position()).expect("one"),
        next + 3
    );
}

pub(crate) fn events_of_a_change_are_kept_with_it(site: &dyn Site) {
    let engine = site.open();
    let batch = || Batch {
        writes: vec![Write::Job(job(1, &["m1"])), returned(1, "m1")],
        caused: vec![vec![event("new")], vec![event("minion/ret")]],
    };
    let first = commit(&engine, batch());
    assert_eq!(first.events.len(), 2);
    commit(
        &engine,
        Batch {
            caused: vec![Vec::new(), vec![event("minion/ret")]],
            ..batch()
        },
    );
    assert_eq!(tags(&engine), ["new", "minion/ret"], "once, as the return");
}

pub(crate) fn audit_trail_is_a_chain_that_a_check_confirms(site: &dyn Site) {
    let engine = site.open();
    let before = wait(engine.log.audit_head()).expect("a head");
    let rows = (1..=3).map(|number| Write::Audit(Box::new(crate::common::audit_row(number))));
    append(&engine, rows.collect());
    let head = wait(engine.log.audit_head()).expect("a head");
    assert_eq!(head.number, before.number + 3);
    drop(engine);
    let engine = site.open();
    assert_eq!(wait(engine.log.audit_head()).expect("a head"), head);
    let check = engine.queries.check_audit(Some(head)).expect("checked");
    assert_eq!((check.rows, check.head, check.broken), (3, head, None));
    let forged = saltern_store::AuditHead {
        hash: [7; 32],
        ..head
    };
    let check = engine.queries.check_audit(Some(forged)).expect("checked");
    assert!(check.broken.is_some());
}

pub(crate) fn retention_removes_old_jobs_and_keeps_open_ones(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 6);
    let remove = |retention: Retention| {
        let mut removed = Vec::new();
        while let Some(slice) =
            wait(engine.housekeeping.remove_slice(retention, 2)).expect("removed")
        {
            assert!(slice.rows > 0, "it would not end");
            removed.push(slice.reason);
        }
        removed
    };
    let held = Retention {
        before: Some(job(3, &[]).created),
        held_from: Some(job(2, &[]).created),
        ..Retention::default()
    };
    assert!(remove(held).iter().all(|reason| *reason == Reason::Age));
    assert_eq!(engine.queries.counts().expect("counted"), (5, 5));
    let by_age = Retention {
        before: Some(job(3, &[]).created),
        ..Retention::default()
    };
    assert!(remove(by_age).iter().all(|reason| *reason == Reason::Age));
    assert_eq!(engine.queries.counts().expect("counted"), (4, 4));
    let by_count = Retention {
        most_jobs: Some(0),
        ..Retention::default()
    };
    assert!(
        remove(by_count)
            .iter()
            .all(|reason| *reason == Reason::Count)
    );
    let left = engine.queries.open_jobs().expect("read");
    assert_eq!(left.len(), 1, "it is waited for");
    assert_eq!(engine.queries.counts().expect("counted"), (1, 1));
}

pub(crate) fn housekeeping_leaves_every_row(site: &dyn Site) {
    let engine = site.open();
    filled(&engine, 5);
    let housekeeping = &engine.housekeeping;
    assert_eq!(housekeeping.condition(0).expect("known"), Condition::Ready);
    assert!(wait(housekeeping.recover(0)).expect("nothing to do"));
    let passes = (0..8).take_while(|_| !housekeeping.checkpoint().expect("a pass"));
    assert!(passes.count() < 8, "it does not end");
    wait(housekeeping.finish_checkpoint()).expect("ended");
    assert!(!housekeeping.checkpoint_is_due());
    let slice = ScrubSlice {
        rows: 3,
        bytes: 1 << 20,
    };
    let mut scrub = Scrub::default();
    let slices = (0..100).take_while(|_| !housekeeping.scrub(&mut scrub, slice).expect("sound"));
    assert!(slices.count() < 100, "it does not end");
    if let Some(room) = wait(housekeeping.room()).expect("measured") {
        wait(housekeeping.hold_reserve(room.total)).expect("held");
        assert!(wait(housekeeping.release_reserve()).expect("released") > 0);
    }
    let size = wait(housekeeping.size()).expect("measured");
    assert!(size.is_none_or(|size| size.file >= size.free));
    assert_eq!(engine.queries.counts().expect("counted"), (5, 5));
}

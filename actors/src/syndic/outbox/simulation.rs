//! Outboxes over a real job database, with masters above that lose replies, refuse, and are away,
//! and a master that is killed at any moment: each master above gets every return of its jobs, in
//! the order of each minion, and no return of another's.
//!
//! Longer than 500 lines: the masters above, the outboxes and their world are of one piece.

mod early;
mod refusals;
mod retention;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;

use saltern_model::{Compat, Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::job::UPPER;
use saltern_store::jobs::StoredJob;
use saltern_store::{
    DatabaseLimits, EarlyJobs, JobDatabase, Retention, StoreError, StoreOptions, Write,
};
use saltern_wire::msgpack::{Dialect, encode};
use tempfile::TempDir;

use super::super::routes::was_returned_early;
use super::super::view::held_from;
use super::*;

/// Seeds of one run; `SALTERN_SEED` runs one alone.
const SEEDS: u64 = 40;
const STEPS: usize = 250;
const MASTERS: [&str; 2] = ["one:4506", "two:4506"];
const MINIONS: usize = 5;

/// Largest request of the masters above.
const MAX_BYTES: usize = 1 << 20;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// A master above: returns in the order of their first arrival, each once.
#[derive(Default)]
struct Above {
    stored: Vec<(String, String)>,
    known: BTreeSet<(String, String)>,
}

impl Above {
    fn store(&mut self, load: &Value) {
        for job in load.as_array().unwrap() {
            let jid = job.get("jid").and_then(Value::as_str).unwrap();
            for (minion, _) in job.get("return").and_then(Value::as_map).unwrap() {
                let pair = (jid.to_owned(), minion.as_str().unwrap().to_owned());
                if self.known.insert(pair.clone()) {
                    self.stored.push(pair);
                }
            }
        }
    }
}

/// Frames of one outbox on their way.
#[derive(Default)]
struct Framed {
    window: FrameWindow,
    session: FrameSession,
    under_way: Vec<SentFrame>,
}

struct World {
    _dir: TempDir,
    options: StoreOptions,
    database: JobDatabase,
    outboxes: BTreeMap<String, OutboxQueue>,
    /// Of the outboxes, where returns go up in frames.
    framed: Option<BTreeMap<String, Framed>>,
    above: BTreeMap<String, Above>,
    /// Returns that each outbox has to bring up, in the order of its commits.
    expected: BTreeMap<String, Vec<(String, String)>>,
    jobs: Vec<(Jid, String)>,
    /// Microseconds; goes on with each step of frames.
    clock: i64,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        fs::create_dir_all(options.private_dir()).unwrap();
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default()).unwrap();
        let mut world = Self {
            _dir: dir,
            options,
            database,
            outboxes: BTreeMap::new(),
            framed: None,
            above: BTreeMap::new(),
            expected: BTreeMap::new(),
            jobs: Vec::new(),
            clock: 0,
        };
        for name in MASTERS.into_iter().chain(["any"]) {
            world.open(name).unwrap();
            world.expected.insert(name.to_owned(), Vec::new());
            world.above.insert(name.to_owned(), Above::default());
        }
        world
    }

    /// Opens an outbox, as a start of the master does.
    fn open(&mut self, name: &str) -> Result<(), StoreError> {
        let recipients = match name {
            "any" => Recipients::Any(MASTERS.iter().map(|name| (*name).to_owned()).collect()),
            upper => Recipients::Upper(upper.to_owned()),
        };
        let settings = OutboxSettings {
            recipients,
            mode: saltern_config::SyndicMode::Sync,
            master_id: None,
            remembered_jobs: 3,
            keep: None,
            keep_returns: u64::MAX,
        };
        let owner = (
            &*format!("syndic_{}", super::super::uplink::file_name(name)),
            name,
        );
        let follower = saltern_store::JobFollower::with_options(
            &self.options,
            owner,
            self.database.reader()?,
        )?;
        let mut queue = OutboxQueue::new(settings, follower, self.database.reader()?);
        if let Some(framed) = &mut self.framed {
            queue.frame(Some(MAX_BYTES));
            framed.insert(name.to_owned(), Framed::default());
        }
        self.outboxes.insert(name.to_owned(), queue);
        Ok(())
    }

    /// Removes all that is not to be kept.
    fn remove(&mut self, retention: &Retention) {
        while self.database.remove_slice(retention, 9).unwrap().is_some() {}
    }

    /// A job of a master above, or of this one.
    fn publish(&mut self, random: &mut Random) {
        let number = self.jobs.len();
        let jid = Jid::parse(&format!("20260101{number:012}")).unwrap();
        let from = ["one:4506", "two:4506", "any"][random.below(3) as usize];
        let job = Write::Job(job(&jid, from));
        self.database.commit(&[job]).unwrap();
        self.jobs.push((jid, from.to_owned()));
    }

    /// The first job of a master above, which is published for it.
    fn job_of(&mut self, name: &str) -> Jid {
        let mut random = Random(1);
        loop {
            if let Some((jid, _)) = self.jobs.iter().find(|(_, from)| from == name) {
                return jid.clone();
            }
            self.publish(&mut random);
        }
    }

    fn returns(&mut self, random: &mut Random) {
        let mut writes = Vec::new();
        for _ in 0..=random.below(4) {
            let Some((jid, from)) = self
                .jobs
                .get(random.below(self.jobs.len().max(1) as u64) as usize)
            else {
                return;
            };
            let number = random.below(MINIONS as u64) as usize;
            let pair = (jid.as_str().to_owned(), minion(number).as_str().to_owned());
            let expected = self.expected.get_mut(from).unwrap();
            if expected.contains(&pair) {
                continue;
            }
            expected.push(pair);
            writes.push(Write::Return(returned(jid, number, 1)));
        }
        self.database.commit(&writes).unwrap();
    }

    /// One attempt of an outbox; whatever may happen to it happens.
    fn attempt(&mut self, name: &str, random: Option<&mut Random>) -> bool {
        let queue = self.outboxes.get_mut(name).unwrap();
        let batch = match queue.next(2).unwrap() {
            Next::Idle => return false,
            Next::Dropped(dropped) => panic!("{dropped:?}"),
            Next::Batch(batch) => batch,
        };
        let fate = random.map_or(9, |random| random.below(10));
        if fate >= 2 {
            self.above
                .get_mut(name)
                .unwrap()
                .store(&batch.load("relay"));
        }
        match fate {
            // No connection, or the request was lost; the reply was lost.
            0 | 2 => drop(batch),
            1 if batch.returns > 1 => {
                assert_eq!(
                    queue.refused(batch, "refused", "one:4506").unwrap(),
                    None,
                    "several are never dropped"
                );
            }
            1 => drop(batch),
            // Killed before the cursor was written.
            3 => {
                drop(batch);
                self.open(name).unwrap();
            }
            _ => queue.acknowledged(batch, "one:4506").unwrap(),
        }
        true
    }
}

fn minion(number: usize) -> MinionId {
    MinionId::parse(&format!("m{number}")).unwrap()
}

/// A job of a master above, or of this one.
fn job(jid: &Jid, from: &str) -> JobRecord {
    let kwargs = match from {
        "any" => Value::Map(Vec::new()),
        upper => Value::map([(UPPER, upper)]),
    };
    let load = Value::map([("fun", "test.ping".into()), ("kwargs", kwargs)]);
    JobRecord {
        jid: jid.clone(),
        created: 1,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: (0..MINIONS).map(minion).collect(),
        nocache: false,
    }
}

/// The return of a minion, received at this moment.
fn returned(jid: &Jid, number: usize, received: i64) -> ReturnRecord {
    let load = Value::map([("return", Value::Bool(true)), ("retcode", 0_i64.into())]);
    ReturnRecord {
        jid: jid.clone(),
        minion: minion(number),
        received,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(encode(&load, Dialect::Bin)),
    }
}

impl World {
    /// The same with returns in frames.
    fn with_frames() -> Self {
        let mut world = Self::new();
        world.framed = Some(BTreeMap::new());
        for name in MASTERS.into_iter().chain(["any"]) {
            world.open(name).unwrap();
        }
        world
    }

    /// One step of an outbox whose returns go up in frames; whatever may happen to a frame happens.
    /// `false`: there is nothing to send.
    fn step_of_frames(&mut self, name: &str, random: Option<&mut Random>) -> bool {
        self.clock += 50_000;
        let queue = self.outboxes.get_mut(name).unwrap();
        let framed = self.framed.as_mut().unwrap().get_mut(name).unwrap();
        while queue.has_room_for_batch() {
            match queue.next(2).unwrap() {
                Next::Idle => break,
                Next::Dropped(dropped) => panic!("{dropped:?}"),
                Next::Batch(batch) => {
                    let (number, frames) = queue.sent(batch);
                    framed.window.push(number, frames, &mut framed.session);
                }
            }
        }
        framed
            .under_way
            .extend(std::iter::from_fn(|| framed.window.ready()));
        if framed.under_way.is_empty() {
            return false;
        }
        let (at, fate) = match random {
            Some(random) => {
                let at = random.below(framed.under_way.len() as u64);
                (usize::try_from(at).unwrap(), random.below(10))
            }
            None => (0, 9),
        };
        let sent = framed.under_way.remove(at);
        if fate >= 2 {
            let load = sent.frame.load("relay");
            self.above.get_mut(name).unwrap().store(&load);
        }
        match fate {
            // The frame is lost, or the answer to it: with it goes what else is under way.
            0 | 2 => {
                queue.rewind();
                framed.session.go_back(&framed.window);
                (framed.window, framed.under_way) = (FrameWindow::default(), Vec::new());
            }
            1 => {
                let dropped = queue.frame_refused(sent.batch, "refused").unwrap();
                assert_eq!(dropped, None, "it is refused less often than that");
                framed.session.go_back(&framed.window);
                (framed.window, framed.under_way) = (FrameWindow::default(), Vec::new());
            }
            // Killed before the cursor was written.
            3 => self.open(name).unwrap(),
            _ => {
                if framed.window.stored(&sent) {
                    queue.stored(sent.batch, self.clock).unwrap();
                }
            }
        }
        true
    }

    /// One step of an outbox.
    fn step(&mut self, name: &str, random: Option<&mut Random>) -> bool {
        match self.framed {
            Some(_) => self.step_of_frames(name, random),
            None => self.attempt(name, random),
        }
    }
}

fn run(seed: u64, mut world: World) {
    let mut random = Random(seed);
    for _ in 0..STEPS {
        match random.below(10) {
            0 => world.publish(&mut random),
            1..5 => world.returns(&mut random),
            _ => {
                let name = ["one:4506", "two:4506", "any"][random.below(3) as usize];
                world.step(name, Some(&mut random));
                if random.one_in(20) {
                    world.open(name).unwrap();
                }
            }
        }
    }
    for name in MASTERS.into_iter().chain(["any"]) {
        while world.step(name, None) {}
        let (stored, expected) = (&world.above[name].stored, &world.expected[name]);
        assert_eq!(stored.len(), expected.len(), "{name} with seed {seed}");
        for minion in (0..MINIONS).map(minion) {
            let of_it = |(_, id): &&(String, String)| id == minion.as_str();
            let stored: Vec<_> = stored.iter().filter(of_it).collect();
            let expected: Vec<_> = expected.iter().filter(of_it).collect();
            assert_eq!(stored, expected, "{minion} at {name} with seed {seed}");
        }
    }
}

fn run_all(world: impl Fn() -> World) {
    match std::env::var("SALTERN_SEED") {
        Ok(seed) => run(seed.parse().unwrap(), world()),
        Err(_) => (0..SEEDS).for_each(|seed| run(seed, world())),
    }
}

#[test]
fn whatever_is_lost_or_killed_each_master_above_gets_its_returns_once_and_in_order() {
    run_all(World::new);
}

#[test]
fn whatever_happens_to_frames_each_master_above_gets_its_returns_once_and_in_order() {
    run_all(World::with_frames);
}

#[test]
fn cursor_of_stored_frames_is_saved_within_its_interval_and_not_for_each() {
    let mut world = World::with_frames();
    let jid = world.job_of("one:4506");
    let file = format!(
        "syndic_{}_place",
        super::super::uplink::file_name("one:4506")
    );
    let file = world.options.private_dir().join(file);
    let saved = || fs::read_to_string(&file).unwrap();
    let World {
        database, outboxes, ..
    } = &mut world;
    let queue = outboxes.get_mut("one:4506").unwrap();
    let mut store = |queue: &mut OutboxQueue, number: usize, now: i64| {
        let record = returned(&jid, number, 1);
        database.commit(&[Write::Return(record)]).unwrap();
        let Next::Batch(batch) = queue.next(now).unwrap() else {
            panic!("there is a return")
        };
        let (number, _) = queue.sent(batch);
        queue.stored(number, now).unwrap();
    };

    let before = saved();
    store(queue, 0, 0);
    store(queue, 1, 100_000);
    assert_eq!(queue.save_in(100_000), Some(Duration::from_millis(150)));
    queue.save_if_due(249_999).unwrap();
    assert_eq!(saved(), before, "not for each of them");
    queue.save_if_due(250_000).unwrap();
    assert_ne!(saved(), before, "when it is time");
    assert_eq!(queue.save_in(250_000), None);

    store(queue, 2, 300_000);
    let set_back = 300_000 - 3_600_000_000;
    assert_eq!(queue.save_in(set_back), Some(Duration::ZERO));
}

#[test]
fn outbox_that_stops_saves_its_cursor_whatever_the_clock_says() {
    let mut world = World::with_frames();
    let jid = world.job_of("one:4506");
    let record = Write::Return(returned(&jid, 0, 1));
    world.database.commit(&[record]).unwrap();
    let mut queue = world.outboxes.remove("one:4506").unwrap();
    let Next::Batch(batch) = queue.next(0).unwrap() else {
        panic!("there is a return")
    };
    let (number, _) = queue.sent(batch);
    queue.stored(number, 0).unwrap();
    queue.save_if_due(100_000).unwrap();
    world.open("one:4506").unwrap();
    let killed = &world.outboxes["one:4506"];
    assert!(killed.lag() > 0, "it is saved after 250 ms only");

    let queue = tokio::sync::Mutex::new(queue);
    drop(SavedOnStop(queue.try_lock().unwrap()));
    world.open("one:4506").unwrap();
    assert_eq!(world.outboxes["one:4506"].lag(), 0);
    assert_eq!(queue.try_lock().unwrap().save_in(100_000), None);
}

#[test]
fn outbox_that_stops_leaves_what_was_on_its_way_to_the_next_actor() {
    let mut world = World::with_frames();
    let jid = world.job_of("one:4506");
    let records = [0, 1].map(|number| Write::Return(returned(&jid, number, 1)));
    world.database.commit(&records).unwrap();
    let mut queue = world.outboxes.remove("one:4506").unwrap();
    let Next::Batch(batch) = queue.next(0).unwrap() else {
        panic!("there are returns")
    };
    queue.sent(batch);
    assert!(matches!(queue.next(0).unwrap(), Next::Idle));

    let queue = tokio::sync::Mutex::new(queue);
    drop(SavedOnStop(queue.try_lock().unwrap()));
    let next = queue.try_lock().unwrap().next(0).unwrap();
    let Next::Batch(batch) = next else {
        panic!("they are sent again")
    };
    assert_eq!(batch.returns, 2);
}

/// The outbox for all reads no return of a job that a master above has published.
#[test]
fn returns_of_others_are_passed_without_being_read_and_own_ones_among_them_go_up() {
    let mut world = World::new();
    let (other, own) = (world.job_of("one:4506"), world.job_of("any"));
    let commit = |world: &mut World, jid: &Jid, number: usize| {
        let record = Write::Return(returned(jid, number, 1));
        world.database.commit(&[record]).unwrap();
    };
    for number in 0..4 {
        commit(&mut world, &other, number);
    }
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    assert_eq!((queue.read, queue.lag()), (0, 0));
    assert!(queue.may_rest());
    assert!(!world.outboxes["one:4506"].may_rest());

    commit(&mut world, &other, 4);
    commit(&mut world, &own, 0);
    let queue = world.outboxes.get_mut("any").unwrap();
    let Next::Batch(batch) = queue.next(1).unwrap() else {
        panic!("there is a return")
    };
    assert_eq!((batch.returns, queue.read), (1, 1));
    queue.acknowledged(batch, "one:4506").unwrap();
    assert_eq!(queue.lag(), 0);
    assert!(!queue.may_rest(), "another of its own may follow");

    // While it reads returns of its own, it reads all that come.
    let second = world.jobs.len();
    while world.jobs.last().is_none_or(|(_, from)| from != "one:4506") || world.jobs.len() == second
    {
        let mut random = Random(world.jobs.len() as u64);
        world.publish(&mut random);
    }
    let other = world.jobs.last().unwrap().0.clone();
    commit(&mut world, &other, 0);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    assert_eq!(queue.read, 2);
    commit(&mut world, &other, 1);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    assert_eq!((queue.read, queue.lag()), (2, 0));
}

/// The report of a job that a minion has returned before it is published here, with that return.
fn reported(jid: &Jid, number: usize) -> [Write; 2] {
    let job = job(jid, "any");
    let reporter = Some(minion(number));
    let returned = Write::Return(returned(jid, number, 1));
    [Write::ClosedJob { job, reporter }, returned]
}

/// Returns that an outbox sends up, until there is nothing more to send.
fn sent_by(queue: &mut OutboxQueue) -> u64 {
    let mut returns = 0;
    loop {
        match queue.next(2).unwrap() {
            Next::Batch(batch) => {
                returns += batch.returns;
                queue.acknowledged(batch, "one:4506").unwrap();
            }
            Next::Dropped(dropped) => panic!("{dropped:?}"),
            Next::Idle => return returns,
        }
    }
}

#[test]
fn job_that_was_reported_before_its_publication_is_returned_to_the_master_that_published_it() {
    let mut world = World::new();
    let jid = Jid::parse("20260101000000000001").unwrap();
    world.database.commit(&reported(&jid, 0)).unwrap();
    let by = |world: &mut World| {
        ["one:4506", "two:4506", "any"].map(|name| sent_by(world.outboxes.get_mut(name).unwrap()))
    };
    assert_eq!(by(&mut world), [0, 0, 1], "nobody above is known to ask");
    let published = Write::JobPart(job(&jid, "one:4506"));
    world.database.commit(&[published]).unwrap();
    for number in 1..3 {
        let returned = Write::Return(returned(&jid, number, 1));
        world.database.commit(&[returned]).unwrap();
        assert_eq!(by(&mut world), [1, 0, 0], "return {number}");
    }
}

/// So many returns of a job of "one:4506" wait.
fn commit_returns(world: &mut World, count: usize) {
    let jid = world.job_of("one:4506");
    let writes = (0..count).map(|number| Write::Return(returned(&jid, number, 1)));
    let writes: Vec<Write> = writes.collect();
    world.database.commit(&writes).unwrap();
}

/// A master above that takes no more than a hundred returns at once says so now and then, and not at every other batch.
#[test]
fn batch_that_was_too_large_is_not_tried_again_at_once() {
    let mut world = World::new();
    commit_returns(&mut world, 6_000);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let (mut refused, mut sizes) = (0, BTreeSet::new());
    loop {
        match own.next(2).unwrap() {
            Next::Batch(batch) if batch.returns > 100 => {
                assert_eq!(own.refused(batch, "refused", "one:4506").unwrap(), None);
                refused += 1;
            }
            Next::Batch(batch) => {
                sizes.insert(batch.returns);
                own.acknowledged(batch, "one:4506").unwrap();
            }
            Next::Dropped(dropped) => panic!("{dropped:?}"),
            Next::Idle => break,
        }
    }
    // From 1,000 down to 62, and once more after 64 batches of as many.
    assert_eq!(refused, 5, "{sizes:?}");
}

/// The master above refuses all that is on its way.
#[test]
fn frames_that_are_refused_together_make_the_next_batch_smaller_once() {
    let mut world = World::with_frames();
    commit_returns(&mut world, 3_000);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let send = |own: &mut OutboxQueue| match own.next(2).unwrap() {
        Next::Batch(batch) => {
            let returns = batch.returns;
            (own.sent(batch).0, returns)
        }
        _ => panic!("returns wait"),
    };
    let (first, returns) = send(own);
    assert_eq!(returns, 3_000);
    for _ in 0..3 {
        assert_eq!(own.frame_refused(first, "refused").unwrap(), None);
    }
    let (_, returns) = send(own);
    // Beside some jobs.
    assert!((1_400..=1_500).contains(&returns), "{returns}");
}

/// A look reads several times: a job may be published between two of them.
#[test]
fn job_that_is_published_while_an_outbox_reads_on_is_returned_to_the_master_that_published_it() {
    let mut world = World::new();
    let jid = Jid::parse("20260101000000000001").unwrap();
    world.database.commit(&reported(&jid, 0)).unwrap();
    let mut queue = world.outboxes.remove("one:4506").unwrap();
    let mut database = world.database;
    queue.before_reads = Some(Box::new(move |reads| {
        if reads == 1 {
            let published = Write::JobPart(job(&jid, "one:4506"));
            let returned = Write::Return(returned(&jid, 1, 1));
            database.commit(&[published, returned]).unwrap();
        }
    }));
    assert_eq!(sent_by(&mut queue), 1);
}

#[test]
fn lone_return_goes_up_at_once_and_those_that_come_while_two_batches_are_under_way_go_together() {
    let mut world = World::with_frames();
    let jid = world.job_of("one:4506");
    let commit = |world: &mut World, number: usize| {
        let record = Write::Return(returned(&jid, number, 1));
        world.database.commit(&[record]).unwrap();
    };
    let mut under_way = Vec::new();
    for number in 0..2 {
        commit(&mut world, number);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert!(queue.has_room_for_batch());
        let Next::Batch(batch) = queue.next(2).unwrap() else {
            panic!("return {number} waits for nothing")
        };
        assert_eq!(batch.returns, 1);
        under_way.push(queue.sent(batch).0);
    }
    for number in 2..MINIONS {
        commit(&mut world, number);
    }
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert!(!queue.has_room_for_batch());
    queue.stored(under_way[0], 3).unwrap();
    assert!(queue.has_room_for_batch());
    let Next::Batch(batch) = queue.next(3).unwrap() else {
        panic!("there are returns")
    };
    assert_eq!(batch.returns, MINIONS as u64 - 2);
}

/// Sends the next batch; whether the load of its first job goes with it.
fn sends_load(queue: &mut OutboxQueue) -> bool {
    let Next::Batch(batch) = queue.next(2).unwrap() else {
        panic!("there is a return")
    };
    let (_, frames) = queue.sent(batch);
    let load = frames[0].load("relay");
    let job = &load.as_array().unwrap()[0];
    let load = job.get("load").and_then(Value::as_map);
    !load.unwrap().is_empty()
}

/// The master that published a job has it in its database before it is published here.
#[test]
fn load_of_a_job_goes_up_until_it_is_stored_or_once_to_the_master_that_published_it() {
    let mut world = World::with_frames();
    let mut random = Random(1);
    let job_from = |world: &World, name: &str| {
        let mut jobs = world.jobs.iter();
        let job = jobs.find(|(_, from)| from == name)?;
        Some(job.0.clone())
    };
    for (name, expected) in [("one:4506", [true, false]), ("any", [true, true])] {
        let jid = loop {
            match job_from(&world, name) {
                Some(jid) => break jid,
                None => world.publish(&mut random),
            }
        };
        let has_load = [0, 1].map(|number| {
            let record = Write::Return(returned(&jid, number, 1));
            world.database.commit(&[record]).unwrap();
            sends_load(world.outboxes.get_mut(name).unwrap())
        });
        assert_eq!(has_load, expected, "{name}");
        let queue = world.outboxes.get_mut(name).unwrap();
        queue.rewind();
        queue.forget_loads();
        assert!(sends_load(queue), "{name}: to another process");
    }
}

//! Outboxes over a real job database, with masters above that lose replies, refuse, and are away,
//! and a master that is killed at any moment: each master above gets every return of its jobs, in
//! the order of each minion, and no return of another's.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;

use saltern_model::{Compat, Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::job::UPPER;
use saltern_store::jobs::StoredJob;
use saltern_store::{DatabaseLimits, EarlyJobs, JobDatabase, StoreError, StoreOptions, Write};
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

/// The master above of the name "one:4506".
fn upper(early: EarlyJobs) -> Upper {
    let master = saltern_config::UpperMaster {
        name: "one:4506".to_owned(),
        host: "one".to_owned(),
        port: 4506,
    };
    Upper::new(master, Vec::new(), early)
}

/// The outbox of the master above reads the return before the publication, and the one for all behind it: each takes
/// it for the other's.
#[test]
fn return_that_both_outboxes_took_for_the_others_goes_up_when_the_publication_comes() {
    let mut world = World::new();
    let [early, later, unknown] = [1, 2, 3].map(|number| {
        let jid = format!("20260101{number:012}");
        Jid::parse(&jid).unwrap()
    });
    let sent = |world: &mut World, name| sent_by(world.outboxes.get_mut(name).unwrap());
    let other = |number| Write::Return(returned(&later, number, 1));
    let published = Write::Job(job(&later, "one:4506"));
    world.database.commit(&[published, other(0)]).unwrap();
    world.database.commit(&reported(&early, 0)).unwrap();
    world.database.commit(&[other(1)]).unwrap();
    assert_eq!(sent(&mut world, "one:4506"), 2, "those of the other job");
    let published = Write::JobPart(job(&early, "one:4506"));
    world.database.commit(&[published]).unwrap();
    assert_eq!(sent(&mut world, "any"), 0);
    assert_eq!(sent(&mut world, "one:4506"), 0);

    let own = world.outboxes.get_mut("one:4506").unwrap();
    let one = HashSet::from([unknown]);
    assert_eq!(own.go_back_to(&one).unwrap(), one, "it is not found");
    assert_eq!(sent(&mut world, "one:4506"), 0, "a job without a return");
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let early = HashSet::from([early]);
    own.go_back_to(&early).unwrap();
    assert_eq!(sent(&mut world, "one:4506"), 1, "it alone");
    let own = world.outboxes.get_mut("one:4506").unwrap();
    own.go_back_to(&early).unwrap();
    world.open("one:4506").unwrap();
    assert_eq!(
        sent(&mut world, "one:4506"),
        2,
        "it, and the one behind it, over a restart"
    );
}

/// The second job is published while the outbox is on its way for the first, which it has gone back further for.
#[test]
fn outbox_that_went_back_sends_returns_of_each_early_job_once_and_no_others() {
    let (mut world, jids) = with_returned_jobs(6);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    for early in [1, 4] {
        let early = HashSet::from([jids[early].clone()]);
        assert!(own.go_back_to(&early).unwrap().is_empty());
    }
    assert_eq!(sent_by(own), 2);
    let later = Write::Return(returned(&jids[0], 1, 1));
    world.database.commit(&[later]).unwrap();
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let early = HashSet::from([jids[5].clone()]);
    assert!(own.go_back_to(&early).unwrap().is_empty());
    assert_eq!(sent_by(own), 1, "those of before have gone up");
}

/// The process is killed when the publication is stored, and when it was begun and never came.
#[test]
fn killed_syndic_goes_back_for_the_job_that_it_was_about_to_publish() {
    for is_published in [true, false] {
        let mut world = World::new();
        let jid = Jid::parse("20260101000000000001").unwrap();
        world.database.commit(&reported(&jid, 0)).unwrap();
        assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 0);
        let open = |world: &World| {
            let reader = world.database.reader().unwrap();
            EarlyJobs::with_options(&world.options, "syndic_one", &*reader).unwrap()
        };
        open(&world).begin(&jid).unwrap();
        if is_published {
            let published = Write::JobPart(job(&jid, "one:4506"));
            world.database.commit(&[published]).unwrap();
        }

        world.open("one:4506").unwrap();
        let uppers = [Arc::new(upper(open(&world)))];
        assert_eq!(uppers[0].early.are_due(), is_published);
        let own = world.outboxes.get_mut("one:4506").unwrap();
        assert!(go_back(&uppers, own).unwrap().is_empty());
        assert_eq!(sent_by(own), u64::from(is_published));
        assert!(!open(&world).are_due(), "once");
    }
}

/// The report comes when the uplink has looked for one, and before the publication is stored.
#[test]
fn return_that_comes_while_its_job_is_being_published_is_an_early_one() {
    let mut world = World::new();
    let jid = Jid::parse("20260101000000000001").unwrap();
    let reader = world.database.reader().unwrap();
    let is_early = |known: Option<&StoredJob>| was_returned_early(known, &jid, &*reader);
    let known = reader.load(&jid).unwrap();
    assert!(known.is_none());
    world.database.commit(&reported(&jid, 0)).unwrap();
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 0);
    assert!(!is_early(known.as_ref()), "it is not published yet");
    let published = || Write::JobPart(job(&jid, "one:4506"));
    world.database.commit(&[published()]).unwrap();
    assert!(is_early(known.as_ref()));
    let known = reader.load(&jid).unwrap();
    world.database.commit(&[published()]).unwrap();
    assert!(!is_early(known.as_ref()), "a further part of a batch");
}

/// A world in which so many jobs of "one:4506" were returned by one minion each, whose returns were passed.
fn with_returned_jobs(count: usize) -> (World, Vec<Jid>) {
    let mut world = World::new();
    let jids = (0..count).map(|number| Jid::parse(&format!("20260101{number:012}")).unwrap());
    let jids: Vec<Jid> = jids.collect();
    for jid in &jids {
        let writes = [
            Write::Job(job(jid, "one:4506")),
            Write::Return(returned(jid, 0, 1)),
        ];
        world.database.commit(&writes).unwrap();
    }
    let own = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(own), count as u64);
    (world, jids)
}

/// The cursor cannot be saved: no job is forgotten, and one attempt is enough for all of them afterwards.
#[test]
fn jobs_for_which_an_outbox_could_not_go_back_wait_for_the_next_attempt() {
    let (mut world, jids) = with_returned_jobs(4);
    let reader = world.database.reader().unwrap();
    let early = EarlyJobs::with_options(&world.options, "syndic_one", &*reader).unwrap();
    let uppers = [Arc::new(upper(early))];
    for jid in &jids[1..] {
        assert!(uppers[0].returned_early(jid).unwrap());
    }
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let name = super::super::uplink::file_name("one:4506");
    let cursor = world
        .options
        .private_dir()
        .join(format!("syndic_{name}_place"));
    fs::remove_file(&cursor).unwrap();
    fs::create_dir(&cursor).unwrap();
    assert!(go_back(&uppers, own).is_err());
    fs::remove_dir(&cursor).unwrap();
    assert_eq!(uppers[0].early.due().len(), 3);
    assert_eq!(sent_by(own), 3, "it has gone back all the same");
    assert!(go_back(&uppers, own).unwrap().is_empty());
    assert!(!uppers[0].early.are_due());
    assert_eq!(sent_by(own), 3);
}

/// Returns that go up once more may not push out those that wait.
#[test]
fn outbox_goes_back_no_further_than_returns_may_wait() {
    let (mut world, jids) = with_returned_jobs(4);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    own.bound(None, 3);
    let one = |number: usize| HashSet::from([jids[number].clone()]);
    let none = HashSet::new();
    let mut lost = |number: usize| own.go_back_to(&one(number)).unwrap();
    assert_eq!(lost(0), one(0), "it would be the fourth");
    assert_eq!(lost(2), none);
    assert_eq!(lost(0), one(0), "counted at once: it comes no nearer");
    assert_eq!(lost(1), none);
    assert_eq!(sent_by(own), 2, "none is dropped");
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

/// A master above that answers as one of stock: nil, or something else whatever the reason is.
#[derive(Default)]
struct StockTop {
    above: Above,
    is_full: bool,
    /// Returns of these minions are refused.
    unreadable: BTreeSet<String>,
    /// Minions of the single returns that came, in their order.
    singles: Vec<String>,
}

impl StockTop {
    /// Whether all of these are stored.
    fn store(&mut self, batch: &Batch) -> bool {
        let load = batch.load("relay");
        let jobs = load.as_array().unwrap().iter();
        let minions = jobs.flat_map(|job| job.get("return").and_then(Value::as_map).unwrap());
        let minions: Vec<&str> = minions.map(|(id, _)| id.as_str().unwrap()).collect();
        if let [single] = *minions {
            self.singles.push(single.to_owned());
        }
        if self.is_full || minions.iter().any(|id| self.unreadable.contains(*id)) {
            return false;
        }
        self.above.store(&load);
        true
    }

    /// Attempts of the outbox; what was dropped in them.
    fn attempts(&mut self, queue: &mut OutboxQueue, count: usize) -> Vec<(&'static str, u64)> {
        let mut dropped = Vec::new();
        for _ in 0..count {
            match queue.next(2).unwrap() {
                Next::Idle => break,
                Next::Dropped(it) => dropped.push((it.reason, it.returns)),
                Next::Batch(batch) if self.store(&batch) => {
                    queue.acknowledged(batch, "one:4506").unwrap();
                }
                Next::Batch(batch) => {
                    let it = queue.refused(batch, "refused", "one:4506").unwrap();
                    dropped.extend(it.map(|it| (it.reason, it.returns)));
                }
            }
        }
        dropped
    }

    /// Minions whose returns are stored.
    fn stored(&self) -> Vec<&str> {
        let stored = self.above.stored.iter();
        stored.map(|(_, minion)| minion.as_str()).collect()
    }
}

/// A world in which so many returns of one job wait, and the jid of the job.
fn with_waiting(count: usize) -> (World, Jid) {
    let mut world = World::new();
    let jid = world.job_of("one:4506");
    commit_returns(&mut world, count);
    (world, jid)
}

#[test]
fn returns_that_are_too_old_or_too_many_are_dropped_and_named() {
    let mut world = World::new();
    let jid = world.job_of("one:4506");
    for number in 0..4 {
        let record = returned(&jid, number, number as i64 * 1_000_000);
        world.database.commit(&[Write::Return(record)]).unwrap();
    }
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(2)), 2);
    let mut dropped = Vec::new();
    while let Next::Dropped(it) = queue.next(3_000_000).unwrap() {
        dropped.push((it.reason, it.returns));
    }
    assert_eq!(dropped, [("age", 1), ("count", 1)]);
    let mut top = StockTop::default();
    assert_eq!(top.attempts(queue, 5), []);
    assert_eq!(top.stored(), ["m2", "m3"]);
}

/// Stock answers the same to a return that it cannot read and to any while its disk is full.
#[test]
fn returns_that_a_master_refuses_while_it_takes_none_wait_until_it_takes_them() {
    let (mut world, _) = with_waiting(30);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop {
        is_full: true,
        ..StockTop::default()
    };
    assert_eq!(top.attempts(queue, 500), []);
    top.is_full = false;
    assert_eq!(top.attempts(queue, 100), []);
    let expected: Vec<String> = (0..30).map(|number| format!("m{number}")).collect();
    let mut stored = top.stored();
    stored.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    assert_eq!(stored, expected, "each once");
    assert_eq!(queue.lag(), 0);
}

#[test]
fn return_that_its_master_refuses_while_it_takes_those_behind_it_is_dropped() {
    for (count, unreadable) in [(4, 0..1), (40, 0..12), (9, 4..5), (12, 0..5)] {
        let (mut world, _) = with_waiting(count);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let mut top = StockTop {
            unreadable: unreadable.clone().map(|it| format!("m{it}")).collect(),
            ..StockTop::default()
        };
        let dropped = top.attempts(queue, 1_000);
        let faults = unreadable.len();
        assert_eq!(dropped, vec![("refused", 1); faults], "{unreadable:?}");
        assert_eq!(top.stored().len(), count - faults, "{unreadable:?}");
        assert_eq!(queue.lag(), 0);
        let singles = top.singles.iter();
        let taken = singles.filter(|id| !top.unreadable.contains(*id));
        let once: BTreeSet<&String> = taken.clone().collect();
        assert_eq!(
            taken.count(),
            once.len(),
            "what was taken is not sent again"
        );
    }
}

#[test]
fn lone_return_that_is_refused_waits_until_another_is_taken_or_it_is_too_old() {
    let (mut world, jid) = with_waiting(1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop {
        unreadable: BTreeSet::from(["m0".to_owned()]),
        ..StockTop::default()
    };
    assert_eq!(top.attempts(queue, 100), []);
    let record = Write::Return(returned(&jid, 1, 1));
    world.database.commit(&[record]).unwrap();
    assert_eq!(top.attempts(queue, 10), [("refused", 1)]);
    assert_eq!(top.stored(), ["m1"]);

    let (mut world, _) = with_waiting(1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(2)), u64::MAX);
    assert_eq!(top.attempts(queue, 100), []);
    let Next::Dropped(dropped) = queue.next(3_000_000).unwrap() else {
        panic!("it is too old")
    };
    assert_eq!((dropped.reason, dropped.returns), ("age", 1));
}

/// Each of many that are at fault needs another one that is taken: none is dropped without.
#[test]
fn refused_returns_wait_for_as_many_that_are_taken() {
    let (mut world, jid) = with_waiting(6);
    let mut top = StockTop {
        unreadable: (0..5).map(|it| format!("m{it}")).collect(),
        ..StockTop::default()
    };
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(top.attempts(queue, 100), [("refused", 1)]);
    assert_eq!(top.stored(), ["m5"]);
    let records = (10..20).map(|number| Write::Return(returned(&jid, number, 1)));
    let records: Vec<Write> = records.collect();
    world.database.commit(&records).unwrap();
    let before = top.singles.len();
    let dropped = top.attempts(queue, 100);
    assert_eq!(dropped, vec![("refused", 1); 4]);
    assert_eq!(top.stored().len(), 11);
    let requests = top.singles.len() - before;
    assert!(
        requests < 40,
        "those behind the first need no five refusals: {requests}"
    );
}

/// One of two masters is full: what it refuses is not at fault because the other one takes others.
#[test]
fn return_that_a_full_master_refuses_is_not_dropped_because_another_master_takes_others() {
    let (mut world, _) = with_waiting(4);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut probes = 0;
    for _ in 0..100 {
        let Next::Batch(batch) = queue.next(2).unwrap() else {
            break;
        };
        if batch.is_probe {
            probes += 1;
            queue.acknowledged(batch, "healthy").unwrap();
        } else {
            assert_eq!(queue.refused(batch, "refused", "full").unwrap(), None);
        }
    }
    assert_eq!(probes, 3);
}

/// Killed while a return is refused and others behind it were taken.
#[test]
fn killed_syndic_sends_what_was_taken_behind_a_refused_return_once_more() {
    let (mut world, _) = with_waiting(4);
    let mut top = StockTop {
        unreadable: BTreeSet::from(["m0".to_owned()]),
        ..StockTop::default()
    };
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    while top.stored().is_empty() {
        assert_eq!(top.attempts(queue, 1), []);
    }
    world.open("one:4506").unwrap();
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(top.attempts(queue, 100), [("refused", 1)]);
    assert_eq!(top.stored().len(), 3);
    assert_eq!(queue.lag(), 0);
}

/// Removes the oldest jobs that ended, of more than so many.
fn keep_jobs(world: &mut World, most: u64) {
    let retention = saltern_store::Retention {
        most_jobs: Some(most),
        ..saltern_store::Retention::default()
    };
    while world
        .database
        .remove_slice(&retention, 100)
        .unwrap()
        .is_some()
    {}
}

/// Jobs of "one:4506" that ended, of one return each, an hour between them; the first at hour 1.
fn commit_hours(world: &mut World, hours: std::ops::Range<i64>) {
    for hour in hours {
        let jid = Jid::parse(&format!("20260101{hour:012}")).unwrap();
        let job = JobRecord {
            created: hour * HOUR,
            ..job(&jid, "one:4506")
        };
        let ended = Write::JobState {
            jid: jid.clone(),
            state: saltern_store::JobState::Complete,
            at: hour * HOUR,
            notes: None,
        };
        let returned = Write::Return(returned(&jid, 0, hour * HOUR));
        world
            .database
            .commit(&[Write::Job(job), returned, ended])
            .unwrap();
    }
}

const HOUR: i64 = 3_600_000_000;

#[test]
fn returns_that_retention_removes_before_they_went_up_are_counted_once_and_named() {
    for is_framed in [false, true] {
        let mut world = World::new();
        if is_framed {
            world = World::with_frames();
        }
        commit_hours(&mut world, 0..1);
        assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
        commit_hours(&mut world, 1..9);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Batch(_)));
        keep_jobs(&mut world, 5);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let Next::Dropped(dropped) = queue.next(9 * HOUR).unwrap() else {
            panic!("returns were removed")
        };
        assert_eq!((dropped.reason, dropped.returns), ("retention", 3));
        assert_eq!(queue.lag(), 5 + 5, "with their jobs, those that are there");
        world.open("one:4506").unwrap();
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert_eq!(sent_by(queue), 5, "they are not counted once more");
    }
}

/// Those that were removed are not among those that wait.
#[test]
fn removed_returns_do_not_push_out_those_that_are_left() {
    let mut world = World::new();
    commit_hours(&mut world, 0..1);
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
    commit_hours(&mut world, 1..9);
    keep_jobs(&mut world, 3);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    // Jobs count as rows that wait, where they are still there.
    queue.bound(None, 3 + 3);
    let Next::Dropped(dropped) = queue.next(9 * HOUR).unwrap() else {
        panic!("returns were removed")
    };
    assert_eq!((dropped.reason, dropped.returns), ("retention", 5));
    assert_eq!(sent_by(queue), 3);
}

/// None of them is dropped by a bound, whatever is: they went up.
#[test]
fn returns_are_left_to_a_salt_syndic_but_for_those_of_the_last_minute() {
    let mut world = World::new();
    commit_hours(&mut world, 0..9);
    keep_jobs(&mut world, 6);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(3_600)), 1);
    let minute = 60_000_000;
    queue.leave_to_another(8 * HOUR + minute).unwrap();
    assert_eq!(queue.waits_since(), Some(8 * HOUR));
    world.open("one:4506").unwrap();
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(queue), 1, "over a restart");
    queue.leave_to_another(8 * HOUR + minute + 1).unwrap();
    assert_eq!(queue.lag(), 0);
}

/// Returns that were removed behind the first one that waits are found when the cursor passes them.
#[test]
fn returns_that_retention_removes_among_others_are_counted_when_they_are_passed() {
    let mut world = World::new();
    let first = world.job_of("one:4506");
    let record = Write::Return(returned(&first, 0, 1));
    world.database.commit(&[record]).unwrap();
    commit_hours(&mut world, 100..104);
    // Those of before are open.
    let open = world.jobs.len() as u64;
    keep_jobs(&mut world, open + 1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop::default();
    assert_eq!(top.attempts(queue, 9), [("retention", 3)]);
    assert_eq!(top.stored().len(), 2);
    assert_eq!(queue.lag(), 0);
}

/// The outbox for all passes returns of others without saving its cursor each time.
#[test]
fn cursor_is_saved_before_retention_removes_returns_of_others_that_it_has_passed() {
    let mut world = World::new();
    commit_hours(&mut world, 0..1);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_moved().unwrap();
    commit_hours(&mut world, 1..4);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_due(1).unwrap();
    queue.save_if_due(59_000_000).unwrap();
    world.open("any").unwrap();
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(queue.lag() > 0, "not for each of them");
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_due(1).unwrap();
    queue.save_if_due(60_000_001).unwrap();
    world.open("any").unwrap();
    assert_eq!(world.outboxes["any"].lag(), 0, "within a minute");
    keep_jobs(&mut world, 1);
    commit_hours(&mut world, 4..5);
    world.open("any").unwrap();
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(2).unwrap(), Next::Idle));
    assert!(
        matches!(queue.next(2).unwrap(), Next::Idle),
        "none is missing"
    );
}

#[test]
fn outbox_waits_since_its_first_own_return_that_is_not_stored_above() {
    for is_framed in [false, true] {
        let mut world = World::new();
        if is_framed {
            world = World::with_frames();
        }
        let since = |world: &World, name: &str| world.outboxes[name].waits_since();
        assert_eq!(since(&world, "one:4506"), None);
        for name in ["one:4506", "any"] {
            let queue = world.outboxes.get_mut(name).unwrap();
            assert!(matches!(queue.next(HOUR).unwrap(), Next::Idle));
        }
        assert_eq!(since(&world, "one:4506"), Some(HOUR));
        commit_hours(&mut world, 2..4);
        let queue = world.outboxes.get_mut("any").unwrap();
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Idle));
        assert_eq!(
            since(&world, "any"),
            Some(9 * HOUR),
            "they are of the other"
        );
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let Next::Batch(batch) = queue.next(9 * HOUR).unwrap() else {
            panic!("there are returns")
        };
        assert_eq!(queue.waits_since(), Some(2 * HOUR));
        if is_framed {
            let (first, _) = queue.sent(batch);
            commit_hours(&mut world, 4..5);
            let queue = world.outboxes.get_mut("one:4506").unwrap();
            let Next::Batch(batch) = queue.next(9 * HOUR).unwrap() else {
                panic!("there is a return")
            };
            let (second, _) = queue.sent(batch);
            assert_eq!(queue.waits_since(), Some(2 * HOUR));
            queue.stored(first, 9 * HOUR).unwrap();
            assert_eq!(queue.waits_since(), Some(4 * HOUR));
            queue.stored(second, 9 * HOUR).unwrap();
        } else {
            queue.acknowledged(batch, "one:4506").unwrap();
        }
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert!(
            queue.waits_since() < Some(9 * HOUR),
            "it has not looked yet"
        );
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Idle));
        assert_eq!(queue.waits_since(), Some(9 * HOUR));
    }
}

/// A master above is away for three days, and jobs are kept for one. The other outboxes go on.
#[test]
fn returns_for_a_master_that_is_away_for_longer_than_jobs_are_kept_go_up() {
    const KEEP: Duration = Duration::from_secs(24 * 3600);
    let mut world = World::new();
    let expire = |world: &mut World, now: i64| {
        let waits_since = world.outboxes.values().map(OutboxQueue::waits_since);
        let waits_since = waits_since.map(|since| since.unwrap_or(i64::MIN)).min();
        let oldest = now - 7 * 24 * HOUR;
        let retention = saltern_store::Retention {
            before: Some(now - 24 * HOUR),
            held_from: waits_since.map(|since| held_from(KEEP, since, Some(oldest))),
            ..saltern_store::Retention::default()
        };
        while world
            .database
            .remove_slice(&retention, 9)
            .unwrap()
            .is_some()
        {}
    };
    for hour in 1..73 {
        commit_hours(&mut world, hour..hour + 1);
        let now = hour * HOUR;
        for name in MASTERS.into_iter().chain(["any"]) {
            if hour % 24 == 0 {
                // Expiry comes before the first look of the new process.
                world.open(name).unwrap();
                expire(&mut world, now);
            }
            let queue = world.outboxes.get_mut(name).unwrap();
            let next = queue.next(now).unwrap();
            assert_eq!(matches!(next, Next::Batch(_)), name == "one:4506");
        }
        expire(&mut world, now);
    }
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(queue), 72);
    assert!(matches!(queue.next(72 * HOUR).unwrap(), Next::Idle));
    for name in ["two:4506", "any"] {
        let queue = world.outboxes.get_mut(name).unwrap();
        assert!(matches!(queue.next(72 * HOUR).unwrap(), Next::Idle));
    }
    expire(&mut world, 72 * HOUR);
    let (jobs, _) = world.database.reader().unwrap().counts().unwrap();
    assert_eq!(jobs, 25, "those of the last day");
}

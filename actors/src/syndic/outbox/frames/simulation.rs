//! The frames' protocol on both sides, one seed after the other: the session and the window of a syndic,
//! and the numbers of two masters above it. Requests and answers are late, lost and out of order, either
//! side dies and starts anew, clocks are set back, masters above are full, refuse, and take no frames.
//! Every run follows from its seed; `SALTERN_SEED=<number>` runs it alone.
//!
//! What holds of order: the first copy of each return of a minion is stored before that of the next one. Where
//! returns may go to either of two masters, one of them may have both in another order (`Above::store`).
//!
//! Not here: rows, batches and the cursor's file, which are a list (`outbox::simulation` has them over a
//! real job database).
//!
//! Longer than 500 lines because the two sides, what can go wrong between them and what is checked mean
//! nothing without each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use saltern_config::{MasterConfig, load_master};
use saltern_model::MinionId;
use saltern_requests::{FrameHeader, FrameRefusal, SyndicFrames};

use super::*;

/// One run for so many of `SALTERN_SIMULATION_SEEDS`, or of these.
const ONE_OF: u64 = 5;
const SEEDS: u64 = 5_000;
/// Seeds in which each planted flaw has to show.
const SEEDS_OF_FLAW: u64 = 200;
const STEPS: usize = 300;
/// Steps after the last fault, in which all that is left has to go up.
const LAST_STEPS: usize = 2_000;
const MASTERS: [&str; 2] = ["one", "two"];
const MINIONS: u64 = 6;
const MAX_BATCHES: usize = 2;

/// A fault of the protocol that the simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The master above answers before it has committed.
    AnswersBeforeCommit,
    /// The first stored frame of a batch moves the cursor.
    FirstFrameIsBatch,
    /// Returns of one minion go by several lanes.
    LanesOfRows,
    /// Rows on their way when a frame fails are not read again.
    NoRewind,
    /// A master that could not store is taken for one that has.
    NotStoredIsStored,
    /// A syndic keeps its session whatever the master above answers.
    KeepsSession,
    /// A syndic that the master above does not know sends no start event.
    NoStartEvent,
}

/// Broken promise of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A return of a minion was stored before an earlier one of it.
    Order,
    /// The cursor passed a return that no master above has stored.
    Loss,
    /// More is on its way than the window allows.
    Window,
    /// Not all returns went up, though nothing fails any more.
    Progress,
}

type Ran = Result<(), Broken>;

struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn place(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }

    fn one_in(&mut self, end: u64) -> bool {
        self.below(end) == 0
    }
}

/// A frame under way. Returns are places in the list of the syndic.
struct Request {
    token: u64,
    master: usize,
    epoch: String,
    session: u64,
    number: u64,
    returns: Vec<usize>,
}

/// A master above.
struct Above<'a> {
    config: &'a MasterConfig,
    frames: SyndicFrames,
    takes_frames: bool,
    knows_syndic: bool,
    is_full: bool,
    /// Taken and not committed.
    taken: VecDeque<Request>,
    stored: BTreeSet<usize>,
    /// The last return of each minion that was stored for the first time.
    last: BTreeMap<u64, usize>,
}

impl<'a> Above<'a> {
    fn new(config: &'a MasterConfig) -> Self {
        Self {
            config,
            frames: SyndicFrames::new(config),
            takes_frames: true,
            knows_syndic: true,
            is_full: false,
            taken: VecDeque::new(),
            stored: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }

    /// Killed, and started anew: what it has committed is there.
    fn restart(&mut self, chance: &mut Chance) {
        self.frames = SyndicFrames::new(self.config);
        self.taken.clear();
        self.takes_frames = !chance.one_in(8);
        self.knows_syndic = chance.one_in(2);
    }

    /// The answer to a frame that is not taken.
    fn take(&mut self, request: Request, does_refuse: bool) -> Option<(u64, Value)> {
        let refused = |class: &str| Value::map([("result", "refused"), ("class", class)]);
        let answer = match request {
            _ if !self.knows_syndic => refused("not_syndic"),
            _ if !self.takes_frames => refused("not_agreed"),
            _ if does_refuse => refused("content"),
            _ => {
                let header = FrameHeader {
                    epoch: &request.epoch,
                    stream: 0,
                    session: request.session,
                    number: request.number,
                };
                let syndic = MinionId::parse("relay").unwrap();
                match self.frames.take(&syndic, header) {
                    Ok(()) => {
                        self.taken.push_back(request);
                        return None;
                    }
                    Err(FrameRefusal::BeginAnew(session)) => Value::map([
                        ("result", Value::from("begin_anew")),
                        ("epoch", Value::from(self.frames.epoch())),
                        ("session", number_value(session)),
                    ]),
                    Err(FrameRefusal::Refused(class, _)) => refused(class.word()),
                }
            }
        };
        Some((request.token, answer))
    }

    /// Commits returns, each once. One that the cursor has passed and that is not here is a copy of what the
    /// other master above has; order is that of the first copies.
    ///
    /// Such a copy comes late, and behind later returns of its minion, when all of this happens (seeds 3868 and
    /// 9442): the syndic sends it here in session 9, and the request is on its way for long. It is killed, its clock
    /// is set back, and the other master stores the return, so the cursor passes it. A later one comes here in session
    /// 5, which is taken, as nothing of session 9 was here yet. Then the late request comes: 9 is above 5.
    fn store(&mut self, returns: &[usize], rows: &Rows) -> Ran {
        for place in returns {
            if !self.stored.insert(*place) || *place < rows.passed {
                continue;
            }
            let before = self.last.insert(rows.minions[*place], *place);
            if before.is_some_and(|before| before > *place) {
                return Err(Broken::Order);
            }
        }
        Ok(())
    }

    /// Commits the oldest frame that it has taken; the answer to it.
    fn commit(&mut self, rows: &Rows) -> Result<Option<(u64, Value)>, Broken> {
        let Some(request) = self.taken.pop_front() else {
            return Ok(None);
        };
        let result = match self.is_full {
            true => "not_stored",
            false => {
                self.store(&request.returns, rows)?;
                "stored"
            }
        };
        Ok(Some((request.token, answer_to(&request, result))))
    }
}

fn number_value(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap())
}

fn answer_to(request: &Request, result: &str) -> Value {
    Value::map([
        ("result", Value::from(result)),
        ("number", number_value(request.number)),
        ("returns", number_value(request.returns.len() as u64)),
    ])
}

/// The returns of a syndic, each by its minion, and the cursor.
#[derive(Default)]
struct Rows {
    minions: Vec<u64>,
    passed: usize,
    read: usize,
    /// Of batches on their way: the number, the end, and whether they are stored.
    on_their_way: VecDeque<(u64, usize, bool)>,
    next_batch: u64,
}

impl Rows {
    fn rewind(&mut self) {
        self.read = self.passed;
        self.on_their_way.clear();
    }

    fn stored(&mut self, batch: u64) {
        let mut sent = self.on_their_way.iter_mut();
        if let Some(sent) = sent.find(|(number, ..)| *number == batch) {
            sent.2 = true;
        }
        while let Some((_, end, _)) = self.on_their_way.pop_front_if(|(.., is_stored)| *is_stored) {
            self.passed = end;
        }
    }
}

/// The syndic: what `outbox` does with its session and its window, one step at a time.
#[derive(Default)]
struct Syndic {
    rows: Rows,
    session: FrameSession,
    window: FrameWindow,
    /// The returns of the frames of this window, by their numbers.
    returns: BTreeMap<u64, Vec<usize>>,
    waiting: BTreeMap<u64, SentFrame>,
    /// The master above that this window is for.
    master: Option<usize>,
    has_failed: bool,
    /// The terms of each master's last sign-in.
    agreed: [Option<Arc<FrameAgreement>>; MASTERS.len()],
}

struct Simulation<'a> {
    chance: Chance,
    flaw: Flaw,
    above: [Above<'a>; MASTERS.len()],
    syndic: Syndic,
    requests: Vec<Request>,
    answers: Vec<(u64, Value)>,
    next_token: u64,
    /// All before this place is stored above.
    checked: usize,
    clock: u64,
    rows_of_batch: usize,
    rows_of_frame: usize,
}

impl<'a> Simulation<'a> {
    fn new(seed: u64, flaw: Flaw, config: &'a MasterConfig) -> Self {
        let mut chance = Chance::new(seed);
        let rows_of_batch = [8, 40, 200][chance.place(3)];
        let rows_of_frame = [1, 3][chance.place(2)];
        let mut simulation = Self {
            chance,
            flaw,
            above: [Above::new(config), Above::new(config)],
            syndic: Syndic::default(),
            requests: Vec::new(),
            answers: Vec::new(),
            next_token: 0,
            checked: 0,
            clock: 1_000_000,
            rows_of_batch,
            rows_of_frame,
        };
        (0..MASTERS.len()).for_each(|master| simulation.sign_in(master));
        simulation
    }

    fn sign_in(&mut self, master: usize) {
        let above = &self.above[master];
        let epoch = above.frames.epoch().to_owned();
        let bytes = MIN_REQUEST_BYTES;
        let terms = above
            .takes_frames
            .then(|| Arc::new(FrameAgreement { epoch, bytes }));
        self.syndic.agreed[master] = terms;
    }

    /// Returns come in from the minions.
    fn returns(&mut self, most: u64) {
        for _ in 0..=self.chance.below(most) {
            let minion = self.chance.below(MINIONS);
            self.syndic.rows.minions.push(minion);
        }
    }

    /// Reads, sends, and begins a new window behind one that has failed.
    fn send(&mut self, master: usize) -> Ran {
        let syndic = &mut self.syndic;
        if syndic.master.is_none() {
            let terms = syndic.agreed[master].clone();
            let Some(terms) = syndic.session.usable(MASTERS[master], terms) else {
                return self.send_without_frames(master);
            };
            syndic
                .session
                .take_over(MASTERS[master], &terms, self.clock);
            syndic.master = Some(master);
        }
        if !self.syndic.has_failed {
            self.fill();
            while let Some(sent) = self.syndic.window.ready() {
                self.send_frame(sent)?;
            }
        }
        self.end_window();
        Ok(())
    }

    /// Where nothing is on its way any more, a window ends.
    fn end_window(&mut self) {
        let syndic = &mut self.syndic;
        let is_empty = syndic.waiting.is_empty();
        let Some(master) = syndic.master.filter(|_| is_empty) else {
            return;
        };
        let window = std::mem::take(&mut syndic.window);
        if self.flaw == Flaw::NoRewind {
            syndic.rows.on_their_way.clear();
        } else {
            syndic.rows.rewind();
        }
        syndic.session.go_back(&window);
        if std::mem::take(&mut syndic.session.is_unknown) && self.flaw != Flaw::NoStartEvent {
            self.above[master].knows_syndic = true;
        }
        syndic.returns.clear();
        (syndic.master, syndic.has_failed) = (None, false);
    }

    /// Batches become frames, until two are on their way.
    fn fill(&mut self) {
        let syndic = &mut self.syndic;
        while syndic.rows.on_their_way.len() < MAX_BATCHES
            && syndic.rows.read < syndic.rows.minions.len()
        {
            let begin = syndic.rows.read;
            let end = syndic.rows.minions.len().min(begin + self.rows_of_batch);
            let mut frames: Vec<(usize, Vec<usize>)> = Vec::new();
            for place in begin..end {
                let key = match self.flaw {
                    Flaw::LanesOfRows => place,
                    _ => usize::try_from(syndic.rows.minions[place]).unwrap(),
                };
                let lane = key % LANES;
                let last = frames.iter_mut().rev().find(|(of, _)| *of == lane);
                match last.filter(|(_, returns)| returns.len() < self.rows_of_frame) {
                    Some((_, returns)) => returns.push(place),
                    None => frames.push((lane, vec![place])),
                }
            }
            let batch = syndic.rows.next_batch;
            syndic.rows.next_batch += 1;
            syndic.rows.read = end;
            syndic.rows.on_their_way.push_back((batch, end, false));
            let first = syndic.session.next;
            let mut made = Vec::new();
            for (number, (lane, returns)) in (first..).zip(frames) {
                let mut frame = Frame::default();
                (frame.lane, frame.returns) = (lane, returns.len() as u64);
                syndic.returns.insert(number, returns);
                made.push(frame);
            }
            syndic.window.push(batch, made, &mut syndic.session);
        }
    }

    fn send_frame(&mut self, sent: SentFrame) -> Ran {
        let syndic = &mut self.syndic;
        let fields = Value::map(syndic.session.fields(&sent, 0, "relay"));
        let number = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap();
        let epoch = fields.get("epoch").and_then(Value::as_str).unwrap();
        let token = self.next_token;
        self.next_token += 1;
        self.requests.push(Request {
            token,
            master: syndic.master.unwrap(),
            epoch: epoch.to_owned(),
            session: number("session"),
            number: number("number"),
            returns: syndic.returns[&sent.number].clone(),
        });
        syndic.waiting.insert(token, sent);
        let numbers = syndic.waiting.values().map(|sent| sent.number);
        let (lowest, highest) = (numbers.clone().min(), numbers.max());
        let distance = highest.unwrap_or(0) - lowest.unwrap_or(0);
        match syndic.waiting.len() <= LANES && distance < WINDOW {
            true => Ok(()),
            false => Err(Broken::Window),
        }
    }

    /// A batch goes up as `_syndic_return`, of which the request or the answer may be lost.
    fn send_without_frames(&mut self, master: usize) -> Ran {
        let rows = &mut self.syndic.rows;
        rows.rewind();
        let end = rows.minions.len().min(rows.read + self.rows_of_batch);
        let above = &mut self.above[master];
        if above.is_full || !above.knows_syndic || self.chance.one_in(4) {
            // A connection that stands anew announces the syndic.
            above.knows_syndic = true;
            return Ok(());
        }
        let returns: Vec<usize> = (rows.read..end).collect();
        above.store(&returns, rows)?;
        if !self.chance.one_in(4) {
            rows.passed = end;
        }
        Ok(())
    }

    /// A request arrives, at the master that is there by now.
    fn arrive(&mut self, does_refuse: bool) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.chance.place(self.requests.len());
        let request = self.requests.swap_remove(at);
        if self.flaw == Flaw::AnswersBeforeCommit {
            let early = answer_to(&request, "stored");
            self.answers.push((request.token, early));
        }
        let above = &mut self.above[request.master];
        self.answers.extend(above.take(request, does_refuse));
    }

    fn commit(&mut self, master: usize) -> Ran {
        let answer = self.above[master].commit(&self.syndic.rows)?;
        self.answers.extend(answer);
        Ok(())
    }

    /// An answer arrives; one to a frame that was given up counts no more.
    fn answer(&mut self) -> Ran {
        if self.answers.is_empty() {
            return Ok(());
        }
        let at = self.chance.place(self.answers.len());
        let (token, answer) = self.answers.swap_remove(at);
        let syndic = &mut self.syndic;
        let Some(sent) = syndic.waiting.remove(&token) else {
            return Ok(());
        };
        let mut answer = FrameAnswer::read(&answer, &sent);
        if self.flaw == Flaw::NotStoredIsStored && answer == FrameAnswer::NotStored {
            answer = FrameAnswer::Stored(0);
        }
        if self.flaw != Flaw::KeepsSession {
            syndic.session.learn(&answer, self.clock);
        }
        match answer {
            FrameAnswer::Stored(_) => {
                let is_last = syndic.window.stored(&sent);
                if is_last || self.flaw == Flaw::FirstFrameIsBatch {
                    syndic.rows.stored(sent.batch);
                }
            }
            _ => syndic.has_failed = true,
        }
        self.nothing_is_lost()
    }

    fn nothing_is_lost(&mut self) -> Ran {
        let passed = self.syndic.rows.passed;
        let mut unchecked = self.checked..passed;
        let is_stored = |place| self.above.iter().any(|above| above.stored.contains(&place));
        match unchecked.all(is_stored) {
            true => {
                self.checked = passed;
                Ok(())
            }
            false => Err(Broken::Loss),
        }
    }

    /// A frame has no answer in time. It may arrive later, or never.
    fn give_up(&mut self) {
        let waiting: Vec<u64> = self.syndic.waiting.keys().copied().collect();
        if waiting.is_empty() {
            return;
        }
        let token = waiting[self.chance.place(waiting.len())];
        self.syndic.waiting.remove(&token);
        self.syndic.has_failed = true;
        if self.chance.one_in(2) {
            self.requests.retain(|request| request.token != token);
        }
    }

    /// The syndic is killed, and started anew; its clock may have been set back.
    fn restart_syndic(&mut self) {
        let old = std::mem::take(&mut self.syndic);
        self.syndic.rows = old.rows;
        self.syndic.rows.rewind();
        if self.chance.one_in(3) {
            self.clock = 1 + self.chance.below(self.clock);
        }
        (0..MASTERS.len()).for_each(|master| self.sign_in(master));
    }

    fn step(&mut self) -> Ran {
        self.clock += self.chance.below(3);
        let master = self.chance.place(MASTERS.len());
        match self.chance.below(100) {
            0..12 => self.returns(40),
            12..40 => self.send(master)?,
            40..58 => {
                let does_refuse = self.chance.one_in(40);
                self.arrive(does_refuse);
            }
            58..74 => self.commit(master)?,
            74..90 => self.answer()?,
            90..93 => self.give_up(),
            93 => self.restart_syndic(),
            94..96 => self.above[master].restart(&mut self.chance),
            96 => self.above[master].is_full ^= true,
            97 => self.above[master].knows_syndic = false,
            98 => self.sign_in(master),
            _ => self.answers.clear(),
        }
        Ok(())
    }

    /// Nothing fails any more, and nobody signs in again: all goes up.
    fn finish(&mut self) -> Ran {
        for above in &mut self.above {
            (above.is_full, above.takes_frames) = (false, true);
        }
        for _ in 0..LAST_STEPS {
            if self.syndic.rows.passed == self.syndic.rows.minions.len() {
                return self.nothing_is_lost();
            }
            self.clock += 1;
            self.send(0)?;
            while !self.requests.is_empty() {
                self.arrive(false);
            }
            for master in 0..MASTERS.len() {
                while !self.above[master].taken.is_empty() {
                    self.commit(master)?;
                }
            }
            while !self.answers.is_empty() {
                self.answer()?;
            }
            // What was lost before.
            self.syndic.has_failed |= !self.syndic.waiting.is_empty();
            self.syndic.waiting.clear();
        }
        Err(Broken::Progress)
    }

    fn run(mut self) -> Ran {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.finish()
    }
}

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// A master above that takes frames, in a directory of its own.
fn with_config(run: impl FnOnce(&MasterConfig)) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let text =
        format!("root_dir: {root}\nuser: root\norder_masters: True\nsaltern_syndic_frames: True\n");
    std::fs::write(dir.path().join("master"), text).unwrap();
    let loaded = load_master(dir.path());
    run(&loaded.map_err(|errors| errors.to_string()).unwrap().config);
}

#[test]
fn simulated_frames_are_stored_in_order_and_the_cursor_passes_none_that_is_not() {
    let seeds = match given("SALTERN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("SALTERN_SIMULATION_SEEDS").unwrap_or(SEEDS) / ONE_OF,
    };
    let next = AtomicU64::new(seeds.start);
    with_config(|config| {
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let ran = Simulation::new(seed, Flaw::None, config).run();
                        assert_eq!(ran, Ok(()), "run it alone with SALTERN_SEED={seed}");
                    }
                });
            }
        });
    });
}

#[test]
fn simulation_of_frames_finds_planted_flaws() {
    with_config(|config| {
        for (flaw, expected) in [
            (Flaw::AnswersBeforeCommit, Broken::Loss),
            (Flaw::FirstFrameIsBatch, Broken::Loss),
            (Flaw::LanesOfRows, Broken::Order),
            (Flaw::NoRewind, Broken::Loss),
            (Flaw::NotStoredIsStored, Broken::Loss),
            (Flaw::KeepsSession, Broken::Progress),
            (Flaw::NoStartEvent, Broken::Progress),
        ] {
            let ran = |seed| Simulation::new(seed, flaw, config).run();
            let found = (0..SEEDS_OF_FLAW).find(|seed| ran(*seed) == Err(expected));
            assert!(found.is_some(), "{flaw:?} is not found");
        }
    });
}

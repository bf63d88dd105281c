//! A run: its plan, and what outlives the lives of its master.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use saltern_base::fail_point::FailPoint;
use saltern_base::planted_bug::PlantedBug;
use saltern_store::sqlite::{DatabaseLimits, open_reader};

use super::client::Client;
use super::history::{History, Line};
use super::minion::Minion;
use super::random::Random;
use super::site::{Template, config, directory};

/// Minions of a run.
pub(super) const MINIONS: usize = 3;

/// They and the client.
pub(super) const PEERS: usize = MINIONS + 1;

/// The time of day at which a run begins, since 1970.
pub(super) const START: Duration = Duration::from_secs(1_800_000_000);

/// From then on nothing fails.
pub(super) const CALM: Duration = Duration::from_secs(100);

/// The end of a run.
pub(super) const END: Duration = Duration::from_secs(260);

/// Places of the master's own thread at which it may die.
const FATAL: [FailPoint; 9] = [
    FailPoint::CommitBefore,
    FailPoint::CommitAfter,
    FailPoint::AnswerBefore,
    FailPoint::AnswerBetween,
    FailPoint::PublishBefore,
    FailPoint::PublishAnnounced,
    FailPoint::PublishSealed,
    FailPoint::PublishSent,
    FailPoint::SessionBetween,
];

/// How a master dies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kill {
    /// At this time of the run.
    At(Duration),
    /// When it passes a place for this time in its life.
    Passing(FailPoint, u64),
}

/// A run.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) planted: Option<PlantedBug>,
    root: tempfile::TempDir,
    /// Number of the master's life.
    pub(super) life: Cell<u64>,
    /// The time of the run at which it begins.
    pub(super) at: Cell<Duration>,
    kills: RefCell<VecDeque<Kill>>,
    random: RefCell<Random>,
    pub(super) history: Rc<History>,
    pub(super) minions: Vec<Rc<Minion>>,
    pub(super) client: Rc<Client>,
}

impl World {
    pub(super) fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let mut random = Random::new(seed, 2);
        let kills = (0..random.within(0..4)).map(|_| match random.one_in(3) {
            true => Kill::At(random.millis(1_000..90_000)),
            false => {
                let place = usize::try_from(random.within(0..FATAL.len() as u64)).unwrap();
                Kill::Passing(FATAL[place], random.within(1..8))
            }
        });
        let kills = kills.collect();
        let history = Rc::new(History::default());
        let template = Template::get();
        let root = directory();
        template.copy_to(&root.path().join("1"));
        let minions = template.minions.iter().enumerate();
        let minions = minions.map(|(number, keys)| {
            Rc::new(Minion::new(number, keys.clone(), seed, history.clone()))
        });
        Self {
            minions: minions.collect(),
            client: Rc::new(Client::new(seed, history.clone())),
            seed,
            planted,
            root,
            life: Cell::new(1),
            at: Cell::default(),
            kills: RefCell::new(kills),
            random: RefCell::new(random),
            history,
        }
    }

    /// Directory of the master in this life.
    pub(super) fn dir(&self) -> PathBuf {
        self.root.path().join(self.life.get().to_string())
    }

    /// Directory of the master in the next life.
    pub(super) fn next_dir(&self) -> PathBuf {
        self.root.path().join((self.life.get() + 1).to_string())
    }

    pub(super) fn next_kill(&self) -> Option<Kill> {
        self.kills.borrow_mut().pop_front()
    }

    /// The master died; some time later it is started again.
    pub(super) fn begin_again(&mut self) {
        self.life.set(self.life.get() + 1);
        let away = self.random.borrow_mut().millis(50..5_000);
        self.at.set(self.at.get() + away);
    }

    /// The history, and what is wrong with it.
    pub(super) fn judge(self) -> (Vec<Line>, Vec<String>) {
        let path = config(&self.dir()).saltern_job_database;
        let jobs = open_reader(&path, DatabaseLimits::default()).unwrap();
        self.history.judge(&*jobs);
        let Self {
            history,
            minions,
            client,
            ..
        } = self;
        drop((minions, client));
        let history = Rc::into_inner(history).expect("nobody else has it");
        history.into_parts()
    }
}

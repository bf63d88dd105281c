//! What a handled request leaves to be done.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use saltern_base::trace::{self, SpanParent};
use saltern_model::{Event, Jid, JobRecord, MinionId, Packed, ReturnRecord};

use crate::{BatchPlan, Handled, reply};

/// The answer to a request, and what must happen because of it.
pub struct Outcome {
    /// The bytes to send back. When effects are durable, only after all of them have been stored.
    pub reply: Bytes,
    /// The bytes to send back instead when one of them could not be.
    pub reply_if_not_stored: Bytes,
    /// What is to be done, in order.
    pub effects: Vec<Effect>,
    /// Work that finds the real answer; then `reply` is for when nobody does it, and there are no
    /// effects.
    pub later: Option<Later>,
}

impl Outcome {
    /// An answer without an effect.
    pub fn reply(reply: impl Into<Bytes>) -> Self {
        let reply = reply.into();
        Self {
            reply_if_not_stored: reply.clone(),
            reply,
            effects: Vec::new(),
            later: None,
        }
    }

    /// An answer that takes long to find: `work` is done beside the workers. Where nobody has time
    /// for it, the peer is told that its request was not handled.
    pub fn later(work: impl FnOnce() -> Finished + Send + 'static) -> Self {
        Self {
            later: Some(Later::new(work)),
            ..Self::reply(reply::no_answer())
        }
    }

    /// The same for a function that a user has the master run: it waits apart from what minions
    /// wait for.
    pub(crate) fn later_for(
        user: String,
        work: impl FnOnce() -> Finished + Send + 'static,
    ) -> Self {
        let later = Later::new(work);
        Self {
            later: Some(Later {
                user: Some(user),
                ..later
            }),
            ..Self::reply(reply::no_answer())
        }
    }

    /// Adds an event to be fired.
    pub fn and_fire(mut self, event: Event) -> Self {
        self.effects.push(Effect::Fire(event));
        self
    }
}

/// Work of a request that may take long, and is done on another thread.
pub struct Later {
    user: Option<String>,
    work: Box<dyn FnOnce() -> Finished + Send>,
}

impl Later {
    /// Work of nobody in particular, or of a minion.
    pub fn new(work: impl FnOnce() -> Finished + Send + 'static) -> Self {
        let place = trace::current();
        Self {
            user: None,
            work: Box::new(move || trace::within(place, work)),
        }
    }

    /// The user for whom it is done, if it is a function that a user has the master run.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Does the work; blocks for as long as it takes.
    pub fn run(self) -> Finished {
        (self.work)()
    }
}

/// What came of work that took long.
pub struct Finished {
    /// The bytes to send back.
    pub reply: Bytes,
    /// Events to fire, in order, before the reply is sent.
    pub events: Vec<Event>,
}

/// A log-in: a backend is asked who somebody is, which may take long. What is to be done about the
/// request is known when the backend has answered.
pub struct LogIn {
    from: IpAddr,
    user: String,
    work: Box<dyn FnOnce() -> LoginEnd + Send>,
}

impl LogIn {
    /// Characters of a name that are looked at to tell users apart.
    const NAME: usize = 64;

    /// A log-in from an address, in the name of a user.
    pub fn new(from: IpAddr, user: &str, work: impl FnOnce() -> LoginEnd + Send + 'static) -> Self {
        let place = trace::current();
        Self {
            from,
            user: user.chars().take(Self::NAME).collect(),
            work: Box::new(move || trace::within(place, work)),
        }
    }

    /// Where the request came from.
    pub fn from(&self) -> IpAddr {
        self.from
    }

    /// The beginning of the name that the request bears; nobody has proved it.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Asks the backend; blocks for as long as it takes.
    pub fn run(self) -> LoginEnd {
        (self.work)()
    }
}

/// What came of a [`LogIn`].
pub struct LoginEnd {
    /// What became of the request.
    pub handled: Handled,
    /// Who it is was not proved. The answer should not come at once, or passwords could be tried
    /// quickly.
    pub is_refused: bool,
}

/// One thing to be done because of a request.
pub enum Effect {
    /// Find out who it is, beside the workers; what comes of that is carried out in place of this
    /// outcome, whose answers are for when nobody has time to find out.
    LogIn(LogIn),
    /// EventSink an event on the bus.
    Fire(Event),
    /// Store a new job; then announce it and publish it.
    StartJob(Box<StartJob>),
    /// Store a new batch; then begin it.
    StartBatch(Box<BatchPlan>),
    /// Store a return; then fire its events.
    StoreReturn(Box<StoreReturn>),
    /// Store that jobs expect minions below a syndic too.
    ExpectSyndicMinions(Vec<SyndicMinions>),
    /// Take note of what a minion runs.
    TakeAnswer(ProbeAnswer),
    /// Run a function of the master, beside the workers. Where there is no room for it, the answer
    /// is the one for what could not be stored.
    Run(Box<Run>),
    /// Do what a minion waits for, beside the workers; it is answered when that is done. Where
    /// there is no room for it, the answer is the one for what could not be stored.
    RunPeerCall(Box<PeerCall>),
}

/// What a minion waits for.
pub struct PeerCall {
    /// Who waits.
    pub minion: MinionId,
    /// For how long.
    pub wait: Duration,
    /// What for.
    pub work: PeerCallWork,
}

/// See [`PeerCall`].
pub enum PeerCallWork {
    /// A function of the master.
    Run(PeerRun),
    /// A job.
    Job {
        /// What begins.
        start: Box<StartJob>,
        /// Makes the answer, when the job is over or the time is: of what has returned. That may
        /// be much, and is read beside whoever waits.
        returned: Later,
    },
}

/// A function of the master that a minion waits for.
pub struct PeerRun {
    /// What is fired if the work never comes to its end.
    pub lost: Event,
    /// The work, as of a [`Run`]; says what the minion is answered, too.
    pub work: PeerRunWork,
    /// The answer when the time is over.
    pub too_late: Bytes,
    /// Whether Python runs it: it may take very long.
    pub is_python: bool,
}

/// The work of a [`PeerRun`]; blocks for as long as it takes.
pub type PeerRunWork = Box<dyn FnOnce(EventSink<'_>) -> (Ran, Bytes) + Send>;

/// Takes the events of a run, in order, while it goes on.
pub type EventSink<'a> = &'a mut dyn FnMut(Event);

/// The work of a [`Run`]; blocks for as long as it takes.
pub type RunWork = Box<dyn FnOnce(EventSink<'_>) -> Ran + Send>;

/// A function of the master that is to run.
pub struct Run {
    work: RunWork,
    lost: Event,
    is_python: bool,
}

impl Run {
    /// `lost` is fired if the work never comes to its end.
    pub fn new(lost: Event, work: impl FnOnce(EventSink<'_>) -> Ran + Send + 'static) -> Self {
        Self {
            work: Box::new(work),
            lost,
            is_python: false,
        }
    }

    /// The same for a function that Python runs: it may take very long.
    pub fn in_python(self) -> Self {
        Self {
            is_python: true,
            ..self
        }
    }

    /// Whether Python runs it.
    pub fn is_python(&self) -> bool {
        self.is_python
    }

    /// The event for when it is lost, and the work.
    pub fn into_parts(self) -> (Event, RunWork) {
        (self.lost, self.work)
    }
}

/// What came of a [`Run`].
pub struct Ran {
    /// What is kept of it.
    pub store: Option<StoreReturn>,
    /// What is fired after that, or after it could not be kept; nothing of a run of which nobody is
    /// to be told.
    pub end: Option<Event>,
}

/// A job that is to begin.
pub struct StartJob {
    /// What is stored.
    pub job: JobRecord,
    /// What is fired once it is stored, before the first byte is published.
    pub announce: Vec<Event>,
    /// What goes out to the minions.
    pub publication: Publication,
    /// The other job that it is about, if it is about one.
    pub about: Option<JobRelation>,
    /// The minion that it is published for, if one asked for it.
    pub publisher: Option<MinionId>,
}

/// How a job is about another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRelation {
    /// A client that waits for that job asks who still runs it.
    Running(Jid),
    /// It ends processes by a signal.
    Signal(SignalTargets),
}

/// Whose processes a job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalTargets {
    /// Those of that job.
    Job(Jid),
    /// Those of all jobs that its minions run.
    All,
}

/// What a minion says of the jobs that it runs, because the master asked.
#[derive(Clone, Debug)]
pub struct ProbeAnswer {
    /// The question's jid.
    pub probe: Jid,
    /// Who answers.
    pub minion: MinionId,
    /// Those jobs, each as the minion describes it, bin dialect; `None` when it cannot say.
    pub running: Option<Vec<(Jid, Packed)>>,
}

/// What a syndic says of a job: the minions below it that have it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyndicMinions {
    /// The job.
    pub jid: Jid,
    /// The syndic.
    pub syndic: MinionId,
    /// Those minions, sorted.
    pub minions: Vec<MinionId>,
}

/// A return that is to be kept.
pub struct StoreReturn {
    /// What is stored.
    pub record: ReturnRecord,
    /// The job that the return brings with it: always for `salt-call` (jid `req`); otherwise what
    /// is to be stored when the job is not known.
    pub job: JobRecord,
    /// The peer that reports such a job, which this master has not published; none where the master
    /// itself ran it.
    pub reporter: Option<MinionId>,
    /// The minion asked the master to allot the jid, so the job is certainly new.
    pub standalone: bool,
    /// It came through a syndic: the job need not have expected this minion.
    pub forwarded: bool,
    /// What is fired once it is stored.
    pub events: Vec<Event>,
    /// `job_cache` is on and nothing asked for the return not to be kept.
    pub keep: bool,
}

/// A load for the minions, not yet numbered, encrypted or signed.
#[derive(Clone)]
pub struct Publication {
    /// How many entries `packed` holds.
    pub entries: usize,
    /// The entries of the load (keys and values, without the map's header), old dialect.
    pub packed: Bytes,
    /// Whom it is for, when the publish channel filters (`zmq_filtering`).
    pub topics: Topics,
    /// The place in a trace from which it is sent.
    pub trace: Option<SpanParent>,
}

/// Whom a publication is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// Everybody; each minion decides for itself.
    Broadcast,
    /// These minions only.
    Minions(Vec<MinionId>),
}

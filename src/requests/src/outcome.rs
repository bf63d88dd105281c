//! Outcome of a handled request: the reply, and effects for the actors to carry out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saltern_base::trace::{self, SpanParent};
use saltern_model::{AuditRecord, Event, Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_wire::msgpack::{Dialect, Encoder, Value};

use crate::audit::AuditNote;
use crate::{BatchPlan, Handled, reply};

/// Answer to a request, with the effects to carry out because of it.
pub struct Outcome {
    /// The bytes to send back. When effects are durable, only after all of them have been stored.
    pub reply: Bytes,
    /// The bytes to send back instead when one of them could not be stored.
    pub reply_if_not_stored: Bytes,
    /// The effects, in order.
    pub effects: Vec<Effect>,
    /// Work that computes the real answer; then `reply` is for when the work is not done, and there
    /// are no effects.
    pub later: Option<Later>,
    /// For the row of the request in the audit trail, if it has one.
    pub audit: AuditNote,
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
            audit: AuditNote::default(),
        }
    }

    /// An answer that takes long to compute: `work` is done beside the workers. When they are
    /// overloaded, the peer gets the answer that its request was not handled.
    pub fn later(work: impl FnOnce() -> Finished + Send + 'static) -> Self {
        Self {
            later: Some(Later::new(work)),
            ..Self::reply(reply::no_answer())
        }
    }

    /// Like [`Self::later`], for a function that a user runs on the master: it waits apart from
    /// work for minions.
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

    /// An answer that refuses the request, with the reason for the audit trail.
    pub(crate) fn refused(reply: impl Into<Bytes>, reason: impl Into<String>) -> Self {
        Self {
            audit: AuditNote {
                refusal: Some(reason.into()),
                jid: None,
            },
            ..Self::reply(reply)
        }
    }

    /// Names the call that the request led to, for the audit trail.
    pub(crate) fn naming(mut self, jid: Jid) -> Self {
        self.audit.jid = Some(jid);
        self
    }

    /// Adds an event to be fired.
    pub fn and_fire(mut self, event: Event) -> Self {
        self.effects.push(Effect::Fire(event));
        self
    }
}

/// Long work of a request, done on another thread.
pub struct Later {
    user: Option<String>,
    work: Box<dyn FnOnce() -> Finished + Send>,
}

impl Later {
    /// Work without a user, such as a minion's.
    pub fn new(work: impl FnOnce() -> Finished + Send + 'static) -> Self {
        let place = trace::current();
        Self {
            user: None,
            work: Box::new(move || trace::within(place, work)),
        }
    }

    /// The user for whom it is done, if it is a function that a user runs on the master.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Does the work; blocks for as long as it takes.
    pub fn run(self) -> Finished {
        (self.work)()
    }
}

/// Result of long work.
pub struct Finished {
    /// The bytes to send back.
    pub reply: Bytes,
    /// Events to fire, in order, before the reply is sent.
    pub events: Vec<Event>,
}

/// Log-in: a backend authenticates a user, which may take long. The effects of the request are
/// known when the backend has answered.
pub struct LogIn {
    from: IpAddr,
    user: String,
    work: Box<dyn FnOnce() -> LoginEnd + Send>,
}

impl LogIn {
    /// The most characters of a name that distinguish users.
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

    /// Address that the request came from.
    pub fn from(&self) -> IpAddr {
        self.from
    }

    /// The beginning of the name that the request claims; it is unproved.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Asks the backend; blocks for as long as it takes.
    pub fn run(self) -> LoginEnd {
        (self.work)()
    }
}

/// Result of a [`LogIn`].
pub struct LoginEnd {
    /// The outcome of the request.
    pub handled: Handled,
    /// The user was not proved. The answer is to be delayed, or passwords could be tried quickly.
    pub is_refused: bool,
}

/// One effect of a request.
pub enum Effect {
    /// Authenticate the user, beside the workers; the result replaces this outcome, whose answers
    /// are for when no worker is free.
    LogIn(LogIn),
    /// Fire an event on the bus.
    Fire(Event),
    /// Store a new job; then announce it and publish it.
    StartJob(Box<StartJob>),
    /// Store a new batch; then begin it.
    StartBatch(Box<BatchPlan>),
    /// Store a return; then fire its events.
    StoreReturn(Box<ReceivedReturn>),
    /// Store that jobs expect minions below a syndic too.
    ExpectSyndicMinions(Vec<SyndicMinions>),
    /// Keep what a syndic says of minions that have not returned.
    TakeVerdicts(Vec<SyndicVerdict>),
    /// Record the jobs that a minion runs.
    TakeAnswer(ProbeAnswer),
    /// Run a function of the master, beside the workers. When the queue is full, the answer is
    /// `reply_if_not_stored`.
    Run(Box<Run>),
    /// Run the call that a minion waits for, beside the workers; it is answered when that is done.
    /// When the queue is full, the answer is `reply_if_not_stored`.
    RunPeerCall(Box<PeerCall>),
}

/// Call that a minion waits for.
pub struct PeerCall {
    /// The minion that waits.
    pub minion: MinionId,
    /// The longest wait.
    pub wait: Duration,
    /// The work.
    pub work: PeerCallWork,
}

/// Work of a [`PeerCall`].
pub enum PeerCallWork {
    /// A function of the master.
    Run(PeerRun),
    /// A job.
    Job {
        /// The job to start.
        start: Box<StartJob>,
        /// Makes the answer, when the job has ended or the wait is over, from the returns so far.
        /// They may be large, and are read on another thread.
        returned: Later,
    },
}

/// Function of the master that a minion waits for.
pub struct PeerRun {
    /// Fired if the work never ends.
    pub lost: Event,
    /// The work, as of a [`Run`], with the minion's answer.
    pub work: PeerRunWork,
    /// The answer when the wait is over.
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

/// Function of the master that is to run.
pub struct Run {
    work: RunWork,
    lost: Event,
    is_python: bool,
    audit: Option<Box<AuditRecord>>,
}

impl Run {
    /// `lost` is fired if the work never ends.
    pub fn new(lost: Event, work: impl FnOnce(EventSink<'_>) -> Ran + Send + 'static) -> Self {
        Self {
            work: Box::new(work),
            lost,
            is_python: false,
            audit: None,
        }
    }

    /// Marks a function that Python runs: it may take very long.
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

    /// Gives a run of the master's own its row in the audit trail, which is handed to the store
    /// before the work begins.
    pub fn audited(self, row: AuditRecord) -> Self {
        Self {
            audit: Some(Box::new(row)),
            ..self
        }
    }

    /// Takes its row of the audit trail.
    pub fn take_audit(&mut self) -> Option<Box<AuditRecord>> {
        self.audit.take()
    }

    /// The event for a lost run, and the work.
    pub fn into_parts(self) -> (Event, RunWork) {
        (self.lost, self.work)
    }
}

/// Result of a [`Run`].
pub struct Ran {
    /// The return to store.
    pub store: Option<ReceivedReturn>,
    /// The event to fire after it was stored, or could not be; `None` for a silent run.
    pub end: Option<Event>,
}

/// Job to start.
pub struct StartJob {
    /// The record to store.
    pub job: JobRecord,
    /// The events to fire once it is stored, before the first byte is published.
    pub announce: Vec<Event>,
    /// The publication to the minions.
    pub publication: Publication,
    /// The other job that it is about, if it is about one.
    pub about: Option<JobRelation>,
    /// The minions of the record are all that can return: nobody has to wait for syndics to name others.
    pub expects_all: bool,
    /// The minion for which it is published, if one asked for it.
    pub publisher: Option<MinionId>,
    /// Its row in the audit trail, stored with it; `None` of a part of a batch, which has the row
    /// of the batch, and of a client's question about its own job.
    pub audit: Option<Box<AuditRecord>>,
}

/// Relation of a job to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRelation {
    /// A client that waits for that job asks which minions still run it.
    Running(Jid),
    /// A job that ends processes by a signal.
    Signal(SignalTargets),
}

/// Target processes of a job that sends a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalTargets {
    /// Returns of one job.
    Job(Jid),
    /// Returns of all jobs of its minions.
    All,
}

/// Answer of a minion to a probe: the jobs that it runs.
#[derive(Clone, Debug)]
pub struct ProbeAnswer {
    /// The probe's jid.
    pub probe: Jid,
    /// The minion.
    pub minion: MinionId,
    /// The jobs, each as the minion describes it, bin dialect; `None` when it cannot report them.
    pub running: Option<Vec<(Jid, Packed)>>,
}

/// A syndic's announcement of a job: the minions below it that have it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyndicMinions {
    /// The job.
    pub jid: Jid,
    /// The syndic.
    pub syndic: MinionId,
    /// The minions, sorted.
    pub minions: Vec<MinionId>,
}

/// Verdict of a syndic on minions below it that have not returned a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyndicVerdict {
    /// The job.
    pub jid: Jid,
    /// The syndic.
    pub syndic: MinionId,
    /// The minions; `None`: all of the job that are below the syndic.
    pub minions: Option<Vec<MinionId>>,
    /// The verdict for people, with the name of the syndic; `None`: an earlier one does not hold any more.
    pub text: Option<Arc<str>>,
    /// Number of syndics that it came through.
    pub depth: u8,
}

/// Return as a handler read it: what is to be stored, and what follows once it is.
pub struct ReceivedReturn {
    /// The record to store.
    pub record: ReturnRecord,
    /// The job that the return brings with it: always for `salt-call` (jid `req`); otherwise the
    /// one to store when the job is not known.
    pub job: JobRecord,
    /// The peer that reports such a job, which this master has not published; `None` where the
    /// master itself ran it.
    pub reporter: Option<MinionId>,
    /// The minion asked the master to allot the jid, so the job is certainly new.
    pub standalone: bool,
    /// The return came through a syndic: the job need not have expected this minion.
    pub forwarded: bool,
    /// It may only confirm, as an answer to a probe, that jobs run: it came by the second way of a minion whose first
    /// is open.
    pub confirms_only: bool,
    /// The events to fire once it is stored.
    pub events: Vec<Event>,
    /// `job_cache` is on and nothing asked for the return not to be kept.
    pub keep: bool,
}

/// A load for the minions, not yet numbered, encrypted or signed.
#[derive(Clone)]
pub struct Publication {
    /// The number of entries in `packed`.
    pub entries: usize,
    /// The entries of the load (keys and values, without the map's header), old dialect.
    pub packed: Bytes,
    /// The recipients, when the publish channel filters (`zmq_filtering`).
    pub topics: Topics,
    /// The span from which it is sent.
    pub trace: Option<SpanParent>,
}

impl Publication {
    /// A load of the master's own, which is in no database and on no bus.
    pub fn of_master(load: &[(&str, Value)], topics: Topics) -> Self {
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
        for (name, value) in load {
            encoder.str(name).value(value);
        }
        Self {
            entries: load.len(),
            packed: packed.into(),
            topics,
            trace: None,
        }
    }
}

/// Recipients of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// All subscribers; each minion decides for itself.
    Broadcast,
    /// These minions only, and all syndics.
    Minions(Vec<MinionId>),
    /// These only, be they minions or syndics.
    Exactly(Vec<MinionId>),
}

//! Messages to the actors of jobs: tracker, store, batches, and those who follow the store.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use actix::Message;
use saltern_model::{AuditRecord, Event, Jid, MinionId, Packed};
use saltern_requests::{
    BatchPlan, ProbeAnswer, Publication, ReceivedReturn, SignalTargets, StartJob, SyndicMinions,
    SyndicVerdict,
};
use saltern_store::jobs::{Retention, Write};
use saltern_store::{CachedJob, Imported, StoreError};
use saltern_wire::msgpack::MapView;

use crate::shared::answer::PendingReply;
use saltern_model::control::Account;

// ---- to JobTracker -----------------------------------------------------------------------------

/// A job begins. From MWorker, the parts of batches from Batches, and the ping after a rotation from
/// Maintenance; the answer goes to the client that asked for the job, or to Batches.
#[derive(Message)]
#[rtype(result = "()")]
pub struct BeginJob {
    /// The job.
    pub start: Box<StartJob>,
    /// The reply to the client, when it has begun.
    pub answer: PendingReply,
}

/// A minion has returned. From MWorker; the answer goes to the minion.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeReturn {
    /// The return.
    pub returned: Box<ReceivedReturn>,
    /// The reply to the minion, when it is stored.
    pub answer: PendingReply,
}

/// A syndic reports which minions below it have jobs too. From MWorker; the reply goes to the
/// syndic.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeSyndicMinions {
    /// Which.
    pub leaves: Vec<SyndicMinions>,
    /// The reply to the syndic, when they are stored.
    pub answer: PendingReply,
}

/// A minion has answered a probe. From MWorker.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeAnswer(pub ProbeAnswer);

/// A syndic says why minions below it have not returned. From MWorker.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeVerdicts(pub Vec<SyndicVerdict>);

/// A load that was to be reported has gone to subscribers, or never will. From Publisher; sent
/// without regard to the mailbox's bound, once for each load that the tracker or the store sent.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Departed {
    /// The job.
    pub jid: Jid,
    /// The minions that it was sent to.
    pub minions: Vec<MinionId>,
    /// Whether it left.
    pub has_left: bool,
}

/// A new subscriber of the bus, to which events can be sent alone.
pub trait NewSubscriber: Send {
    /// Frames queued for this subscriber; `None` when it is gone.
    fn waiting(&self) -> Option<usize>;

    /// Queues events for this subscriber behind what it has already, if it is still there.
    fn send(&self, events: Vec<Event>);
}

/// A client has subscribed to the bus: send it the state of the open jobs. From the event sockets.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Greet(pub Box<dyn NewSubscriber>);

/// These jobs and returns are in the store, or could not be. From JobStore, once a commit; sent
/// without regard to the mailbox's bound, because the tracker's own messages, each of which leads
/// to at most one of these, are bounded.
#[derive(Message, Default)]
#[rtype(result = "()")]
pub struct Stored {
    /// Jobs that have begun, before the returns of the same commit.
    pub jobs: Vec<JobBegun>,
    /// Minions below syndics that jobs expect too, before the returns of the same commit.
    pub leaves: Vec<SyndicMinions>,
    /// Returns.
    pub returns: Vec<MinionReturned>,
    /// How many of these returns were in the store before.
    pub repeated: u64,
    /// Jobs whose state could not be stored.
    pub refused: Vec<Jid>,
    /// Departures that could not be stored.
    pub lost_departures: Vec<JobDeparture>,
    /// Jobs of which a part could not be stored; sent only beside other failures.
    pub unbegun: Vec<Jid>,
    /// Jobs whose beginning was refused and is in the store nevertheless: they are not sent.
    pub unsent: Vec<JobBegun>,
}

/// The load of a job went to the publish port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDeparture {
    /// The job.
    pub jid: Jid,
    /// When, in microseconds since 1970.
    pub at: i64,
}

/// A job, or a part of one, whose beginning is in the store: what the tracker needs of its record.
#[derive(Clone, Debug)]
pub struct JobBegun {
    /// Its id.
    pub jid: Jid,
    /// Its function.
    pub fun: Arc<str>,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
    /// The minions that are expected to return.
    pub minions: Vec<MinionId>,
    /// Its returns are not stored, and nobody waits for them.
    pub nocache: bool,
    /// The processes that it signals.
    pub signals: Option<SignalTargets>,
    /// These are all minions that can return: no syndic names others.
    pub expects_all: bool,
}

/// A minion has returned a job: what the tracker and Batches need of the record of its return.
#[derive(Clone, Debug)]
pub struct MinionReturned {
    /// The job.
    pub jid: Jid,
    /// The minion.
    pub minion: MinionId,
    /// 0 when all went well.
    pub retcode: i64,
    /// It reports that the minion sent a signal to its process of another job.
    pub signalled: bool,
    /// It came through a syndic: the minion belongs to the job, whether that was known or not.
    pub forwarded: bool,
}

/// Close jobs that have been open since before this moment (microseconds since 1970). From
/// Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseOlderThan(pub i64);

/// The minions of a job that may still return: those that have not returned and are not given up.
/// From Batches; none for a job that is not remembered.
#[derive(Message)]
#[rtype(result = "Vec<MinionId>")]
pub struct AwaitedMinions {
    /// The job.
    pub jid: Jid,
    /// The minions.
    pub minions: Vec<MinionId>,
}

/// Account of an open job, for people; `None` when it is not open. From the control socket.
#[derive(Message)]
#[rtype(result = "Option<Account>")]
pub struct Explain(pub Jid);

/// The same for a caller on a thread that may wait. From the functions of the master.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ExplainTo {
    /// The job.
    pub jid: Jid,
    /// Gets the account.
    pub answer: SyncSender<Option<Account>>,
}

// ---- to JobStore -------------------------------------------------------------------------------

/// Write, commit, and only then do what follows. From JobTracker, Batches, the returner of the
/// master's own job database; rows of the audit trail from MWorker, Runner and Reactor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Persist {
    /// The writes, each with what follows its commit; in one transaction with all others that wait.
    pub writes: Vec<(Write, FollowUp)>,
    /// The reply to the sender, behind all that follows; it fails if nothing was stored.
    pub answer: Option<PendingReply>,
}

impl Persist {
    /// A row of the audit trail alone, for which nobody waits.
    pub(crate) fn row(row: Box<AuditRecord>) -> Self {
        Self {
            writes: vec![(Write::Audit(row), FollowUp::Nothing)],
            answer: None,
        }
    }
}

/// Work that follows the commit of one [`Write`], in the order of the writes.
pub enum FollowUp {
    /// Nothing.
    Nothing,
    /// Fire these events.
    Fire(Vec<Event>),
    /// Of a job: announce it, notify the tracker, publish it.
    Begin(Box<Beginning>),
    /// Of a return: fire its events, unless the same return was stored and they were fired before,
    /// and notify the tracker.
    Return {
        /// The return.
        returned: MinionReturned,
        /// Its events.
        events: Vec<Event>,
    },
    /// Of expected minions: notify the tracker of them, and write them for stock's tools, if there
    /// is such a job.
    Expect(SyndicMinions),
    /// Of a job's state: notify the tracker if it could not be written. Nothing follows the commit.
    ReportFailure(Jid),
    /// Of a job's departure: notify the tracker if it could not be written. Nothing follows the commit.
    ReportLostDeparture(JobDeparture),
}

impl FollowUp {
    /// The events that it fires.
    pub fn events(&self) -> &[Event] {
        match self {
            Self::Fire(events) | Self::Return { events, .. } => events,
            Self::Begin(beginning) => &beginning.announce,
            Self::Nothing
            | Self::Expect(_)
            | Self::ReportFailure(_)
            | Self::ReportLostDeparture(_) => &[],
        }
    }
}

/// Import jobs of stock's job cache, or, with none, record that it has been read. From JobImport;
/// the answer counts the new ones.
#[derive(Message)]
#[rtype(result = "Result<Imported, StoreError>")]
pub struct ImportJobs(pub Vec<CachedJob>);

/// See [`FollowUp::Begin`].
pub struct Beginning {
    /// The job as reported to the tracker.
    pub job: JobBegun,
    /// The events to fire before it is published.
    pub announce: Vec<Event>,
    /// The job's load, packed, for the files that stock's command line expects.
    pub load: Packed,
    /// The load for the minions.
    pub publication: Publication,
}

/// Delete what need not be kept, a slice at a time. From Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ExpireJobs(pub Retention);

/// A checkpoint pass is done but for a small rest; finish it. From JobCheckpointer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CheckpointDone;

// ---- to JobCheckpointer ------------------------------------------------------------------------

/// A checkpoint of the job database is due. From JobStore.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Checkpoint;

// ---- to Batches --------------------------------------------------------------------------------

/// A batch begins. From MWorker; the answer goes to the client that asked for it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct BeginBatch {
    /// Its plan.
    pub plan: Box<BatchPlan>,
    /// The reply to the client, when the plan is stored.
    pub answer: PendingReply,
}

/// Minions have returned jobs of batches. From JobTracker, once a commit; sent without regard to
/// the mailbox's bound, because the tracker may be waiting for Batches' own messages and each of
/// these was a bounded message before.
#[derive(Message)]
#[rtype(result = "()")]
pub struct BatchReturns(pub Vec<MinionReturned>);

/// A local program has fired an event about a batch, or a user asks for something. From the event
/// sockets and from runners.
#[derive(Message)]
#[rtype(result = "()")]
pub struct BatchCalled {
    /// The jid of the batch.
    pub jid: Jid,
    /// The message.
    pub call: BatchCall,
    /// The event's data.
    pub data: MapView,
    /// Of a user's request: receives whether it was done, when that is durable.
    pub done: Option<SyncSender<bool>>,
}

/// The statement of a local program about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCall {
    /// There is one; its state is in the data, if the program drives it, else in its file.
    New,
    /// It shall send no further part for now.
    Pause,
    /// It shall send parts again.
    Resume,
    /// It shall end.
    Stop,
    /// It shall go on.
    Recover,
    /// Its state, from the program that drives it, is in the data.
    Progress,
    /// The same, and it is over.
    Over,
}

// ---- to JobCache -------------------------------------------------------------------------------

/// Send this reply when the returner has the job, or on timeout. From JobStore, after the commit.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AnswerWhenGiven {
    /// The job.
    pub jid: Jid,
    /// The answer to the client that published it.
    pub answer: PendingReply,
}

// ---- to JobMirror ------------------------------------------------------------------------------

/// There are new rows in the job database. To JobCache too. From JobStore.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RowsCommitted;

/// Delete job files that are older than `keep_jobs_seconds`. From Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CleanJobFiles;

/// Delete the files of these jobs, which the store does not keep any more. From JobStore.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RemoveJobFiles(pub Vec<Jid>);

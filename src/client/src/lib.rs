//! The client of a master: publishes jobs, follows their events and reports their ends. It works
//! with the stock master as well as with ours.
//!
//! Suggested reading order: [`config`] (where the master's sockets and keys are), [`user`] (who
//! is asking), [`link`] (how it is reached), [`event`] (the event socket), [`publish`] (one job out), [`job`] (its answers),
//! [`follow`] (a job that somebody else published), [`batch`] (a batch that the master drives), [`client_batch`] (one that the client drives,
//! under a stock master), [`runner`] (functions of the master), [`control`] (the
//! control socket of a master of ours). It prints
//! nothing: what the answers look like is the business of `saltern-output`. Prompts of external
//! authentication and nodegroups are not here.

pub mod batch;
pub mod client_batch;
pub mod config;
pub mod control;
mod error;
pub mod event;
mod fire;
pub mod follow;
pub mod job;
pub mod link;
pub mod publish;
pub mod runner;
pub mod user;

pub use batch::{BatchChange, BatchEnd, BatchFollower, BatchNews, BatchWishes};
pub use client_batch::{BatchStep, ClientBatch};
pub use config::ClientConfig;
pub use error::{ClientError, WRONG_KEY};
pub use event::{EventListener, EventSource, ReceivedEvent};
pub use fire::EventSender;
pub use follow::{FollowNews, JobFollower};
pub use job::{Absence, Job, MinionOutcome, MinionReturn, Tally};
pub use link::MasterLink;
pub use publish::{Credentials, LocalClient, PublishRequest, Published};
pub use runner::{RunnerRequest, RunnerReturn};

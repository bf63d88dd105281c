//! Handlers of the wire commands: one file a command, named as on the wire.
//!
//! A request is a pure step: payload and [`Services`] in, [`Handled`] out, with the reply's bytes
//! and the [`Effect`]s that the actors carry out. Nothing here knows actors or sockets. A request
//! that fails a check has no effect and leaves no trace on disk.
//!
//! Suggested reading order: [`handle()`] (dispatch of one request), `envelope` (authentication of
//! the sender), `ping` (the smallest command), `return_` (the busiest one), `auth`, `publish`.
#![warn(clippy::indexing_slicing)]

/// Warns about a peer's request, as far as the rate limit of [`refusal_log`] allows.
macro_rules! complain {
    ($services:expr, $($line:tt)+) => {
        if $services.refusal_log.may_be_written() {
            tracing::warn!($($line)+);
        }
    };
}

pub mod audit;
mod audit_check;
mod auth;
mod batch_part;
mod batch_plan;
mod check;
mod client_targets;
mod commands;
mod credentials;
mod data_cache;
mod envelope;
pub mod event_data;
mod event_rules;
pub mod events;
pub mod explain;
mod files;
mod fleet;
mod get_token;
mod handle;
mod highstates;
pub mod job;
mod key_admission;
mod known_key;
mod master_gate;
mod master_opts;
mod master_tops;
mod mine;
mod minion_event;
mod minion_runner;
mod minions;
mod mk_token;
mod origin;
mod outcome;
mod peer_publish;
mod pillar;
mod ping;
pub mod probe;
mod proved;
mod pub_ret;
mod publish;
pub mod python_text;
mod refusal_log;
mod register_resources;
mod registration;
mod reply;
mod return_;
mod revoke_auth;
mod rotation_ping;
mod rules;
pub mod runner;
mod saltern_batch;
mod saltern_query;
mod saltern_syndic_frame;
mod saltern_syndic_inventory;
mod saltern_syndic_verdicts;
mod services;
mod signed_load;
mod site_functions;
mod site_options;
mod stores;
mod sub_events;
mod syndic_frames;
mod syndic_inventories;
mod syndic_path;
mod syndic_return;
mod syndics;
mod targets;
mod traces;
mod typed_arguments;
mod uptime;
mod verify_minion;
pub mod wheel;

pub use audit_check::AuditChecks;
pub use batch_part::{BatchPart, PartRefused, batch_part};
pub use batch_plan::{BatchDriver, BatchPlan, BatchSnapshot, time};
pub use check::check;
pub use client_targets::{matching_minions, without_nodegroups};
pub use commands::{clear_commands, minion_commands};
pub use credentials::Sender;
pub use event_data::{event, master_event};
pub use event_rules::{is_paced_by_master, is_tag_of_master};
pub use fleet::{InventoryError, MasterFleet, as_json};
pub use handle::{Class, Handled, handle, peek_class, retry_later};
pub use highstates::{Highstates, StateOutcome};
pub use job::again::{announced_again, publication_again};
pub use minions::Minions;
pub use origin::Origin;
pub use outcome::{
    Effect, EventSink, Finished, JobRelation, Later, LogIn, LoginEnd, Outcome, PeerCall,
    PeerCallWork, PeerRun, PeerRunWork, ProbeAnswer, Publication, Ran, ReceivedReturn, Run,
    RunWork, SignalTargets, StartJob, SyndicMinions, SyndicVerdict, Topics,
};
pub use proved::LOGINS_FULL;
pub use refusal_log::RefusalLog;
pub use registration::registered_minion;
pub use reply::NO_ANSWER;
pub use rotation_ping::rotation_ping;
pub use rules::{ExpireOverride, SiteRules};
pub use saltern_content::git::{Cancel, Fetch, Fetched};
pub use saltern_model::Standing;
pub use saltern_query::audit_line;
pub use saltern_syndic_verdicts::{COST_OF_ALL, MAX_VERDICT_TEXT};
pub use services::{
    Content, Context, Jobs, Keys, PresenceView, RequestMetrics, Services, Unwatched, Users,
};
pub use site_options::SiteOptions;
pub use stores::{OpenError, Stores};
pub use syndic_frames::{FrameHeader, FrameRefusal, RefusalClass, SyndicFrames};
pub use syndic_inventories::KeyDigest;
pub use syndic_path::{PathRefusal, SyndicPaths};
pub use syndics::{absence_below, inventories_are_whole, key_digest, minions_below, minions_moved};
pub use typed_arguments::{typed_argument, typed_arguments, yaml_value};

//! Automation: reactions to events, scheduled jobs, events of engines.
//!
//! The pure parts: rules, forecasts and events. Queues, clocks, programs and sockets are the
//! actors'. A reaction or a scheduled job is no wire command, but what it starts enters the gate of
//! `requests` as a user's request does: there are no rules of who may do what here.
//!
//! Suggested reading order: [`reactor`], [`schedule`], [`engines`].
#![warn(clippy::indexing_slicing)]

mod check;
pub mod engines;
pub mod reactor;
pub mod schedule;

pub use check::{check, missing_reactions};

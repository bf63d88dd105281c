//! Automation: reactions to events, scheduled functions, engines.

pub(crate) mod engine;
pub(crate) mod reactor;
pub(crate) mod scheduler;

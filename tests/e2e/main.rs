//! The end-to-end tests: stock Salt 3006.28, 3007.15 and 3008.3 against our master, and, for what
//! both can do, against stock's own master as the oracle. The harness is `saltern_tests`.

mod access;
mod alerts;
mod api;
mod bad_input;
mod batch;
mod bridge;
mod demo;
mod differential;
mod durability;
mod engines;
mod faults;
mod files;
mod jobs;
mod keys;
mod kill;
mod maintenance;
mod matrix;
mod metrics;
mod mine;
mod minion_events;
mod mixed;
mod peers;
mod pillar;
mod presence;
mod probe;
mod reactor;
mod runners;
mod service;
mod sessions;
mod shortage;
mod syndic;
mod targets;
mod torn;
mod transports;
mod wheels;

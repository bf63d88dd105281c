//! Every command of the wire as a table: the request, the bytes of the reply, the effects, and the
//! files afterwards.
//!
//! A [`site::Site`] is a master without actors and sockets; a [`client::Minion`] builds requests
//! and verifies answers as a stock minion does. The same rows go to a real stock master in
//! `tests/e2e/probe.rs`, so the replies here are facts, not expectations of our own.

mod attacks;
mod audit;
mod auth;
mod auth_decisions;
mod client;
mod credentials;
mod cves;
mod envelope;
mod events;
mod files;
mod gate_rules;
mod minion_data;
mod peers;
mod pillar;
mod publish;
mod refused_publish;
mod registration;
mod replay;
mod returns;
mod revoked;
mod rotation;
mod runner;
mod saltern_batch;
mod saltern_query;
mod sent_as;
mod site;
mod syndic_frames;
mod syndic_inventory;
mod syndic_verdicts;
mod syndics;
mod syndics_hostile;
mod taken_jids;
mod targets;
mod traces;
mod wheel;

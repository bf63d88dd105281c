//! Stock's command lines in our own program: `salt`, `salt-key`, `salt-run` and `salt-cp`.
//!
//! [`options`] holds what each of them takes, and reads it as stock reads it. A command publishes and
//! follows by `saltern-client` and prints by `saltern-output`; it knows no actor of the master.
//! What differs from stock is listed in `DIFFERENCES.md`.

mod account;
pub mod complete;
mod console;
pub mod cp;
mod interrupt;
pub mod key;
mod login;
pub mod minions;
pub mod options;
pub mod page_url;
pub mod run;
pub mod salt;
mod settings;
mod state_options;
mod table_options;
mod target;
pub mod terminal;

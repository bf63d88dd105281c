//! The end-to-end harness: real processes on real sockets, each test with a master of its own.
//!
//! A [`Site`] is a temporary directory with a master (ours or stock Salt's), minions of any of the
//! three releases, a stock event listener, and the stock command line. The same scenario runs
//! against [`Server::Stock`] and [`Server::Saltern`], so stock Salt itself is the oracle.
//!
//! Nothing here waits by sleeping for a guessed time: every wait names what it waits for and has a
//! deadline. A test fails when our own processes log a WARN or ERROR line it did not announce.
//! The harness knows no wire format; what it sees, it sees through stock Salt.

// The deadlines are about other processes, which no paused clock can reach.
#![allow(
    clippy::disallowed_types,
    reason = "waits for real processes in real time"
)]
#![allow(
    clippy::print_stderr,
    reason = "a failed test shows the logs of its processes"
)]

pub mod authority;
pub mod browser;
pub mod command_line;
pub mod config;
pub mod events;
pub mod fleet;
mod forkserver;
pub mod frozen;
pub mod haproxy;
pub mod hostile;
pub mod logs;
mod minion_keys;
pub mod minions;
pub mod pam;
pub mod port;
pub mod process;
pub mod prometheus;
mod readiness;
pub mod release;
pub mod session;
pub mod site;
pub mod sizes;
pub mod small_disk;
pub mod syndics;
pub mod terminal;
pub mod thread_limit;

pub use config::Config;
pub use events::{Event, Listener};
pub use fleet::{Accounts, Fleet};
pub use process::{Daemon, Run, first_jid, run, until_exists, wait_until};
pub use release::{Release, Server};
pub use site::{Site, TestResult};

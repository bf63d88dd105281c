//! Stock's salt-api contract over HTTP, in the master itself.
//!
//! ```text
//! request ─▶ dialect (cherrypy, tornado, wsgi) ─▶ low data ─▶ load ─▶ Master::ask ─▶ the gate
//!                 ▲                                  │
//!                 └── answer ◀── Job, RunnerReturn ◀─┘  events of this one jid
//! ```
//!
//! A dialect is how one of stock's servers spells requests and answers. All of them make the same
//! loads, which enter the master's gate like those of the request port: nothing here decides who may
//! do what. No thread waits for a job: a call is a future, and a client that goes away leaves its
//! job running.
//!
//! `/v1` is our own: see [`v1`].
//!
//! Suggested reading order: [`master`] (what is asked of the master), `low_data` (a command of low
//! data), `sessions`, `body` and `answer` (forms of requests and answers), then a dialect.
//!
//! Not here: connections, TLS and their limits (`saltern-http`), and the master's side of
//! [`Master`] (`actors/src/api`).

mod answer;
mod api;
mod body;
mod cherrypy;
mod events;
mod files;
pub mod hook;
mod hooks;
mod log_in;
mod low_data;
pub mod master;
mod permissions;
mod proved;
mod sessions;
pub mod stream;
mod stream_ends;
mod tornado;
pub mod v1;
mod wsgi;

pub use api::{Api, OpenError};
pub use log_in::LogInError;
pub use master::{Master, Sender, TokenOwner, UncheckedToken};
pub use sessions::{SessionError, Sessions};

//! What minions fetch.
//!
//! [`files`] is the file server. This crate opens no socket.

pub mod files;

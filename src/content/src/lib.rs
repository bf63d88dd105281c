//! What minions fetch.
//!
//! [`files`] is the file server. [`render`] turns SLS files into data: Salt's pipeline of
//! renderers, Jinja with Python's values, YAML 1.1, JSON and PGP; `DIFFERENCES.md` lists where it
//! differs from stock. This crate opens no socket.

pub mod files;
pub mod render;

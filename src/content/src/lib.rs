//! What minions fetch.
//!
//! [`files`] is the file server. [`render`] turns SLS files into data: Salt's pipeline of
//! renderers, Jinja with Python's values, YAML 1.1, JSON and PGP; `DIFFERENCES.md` lists where it
//! differs from stock. [`ext_pillar`] has the sources of pillar data beside the SLS files; those that
//! ask a server are the only ones here that open a socket.

pub mod ext_pillar;
pub mod files;
pub mod render;

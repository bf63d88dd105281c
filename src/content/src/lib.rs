//! What minions fetch. So far: the renderers that turn SLS files into data.
//!
//! [`render`] knows Salt's pipeline of renderers, Jinja with Python's values on the `minijinja`
//! engine, YAML 1.1, JSON and PGP. It reads no configuration, opens no socket, and finds
//! templates and functions only through what the caller hands in. `DIFFERENCES.md` lists where it
//! differs from stock, and why.

pub mod render;

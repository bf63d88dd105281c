//! Content for minions: files, pillars and top files, with the renderers behind them.
//!
//! [`files`] is the file server. [`render`] turns SLS files into data: Salt's pipeline of
//! renderers, Jinja with Python's values, YAML 1.1, JSON and PGP. [`pillar`] makes a minion's pillar
//! of them. [`ext_pillar`] has the sources of pillar data beside the SLS files; only those that
//! ask a server open a socket. [`tops`] adds states to top files,
//! [`reactions`] renders the files of the reactor. [`member_summary`] compares the members of a cluster.
//! `DIFFERENCES.md` lists what differs from stock.

pub mod ext_pillar;
pub mod files;
pub mod git;
pub mod member_summary;
pub mod pillar;
pub mod reactions;
pub mod render;
pub mod tops;

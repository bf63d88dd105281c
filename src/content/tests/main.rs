//! File server, renderers and pillars, compared with stock and attacked. One binary a crate, so
//! that it is linked once.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod ext_pillar_stock;
mod files_attacks;
mod files_stock;
mod functions_stock;
mod gitfs_stock;
mod pillar;
mod pillar_stock;
mod render_bounds;
mod render_gpg;
mod render_stock;

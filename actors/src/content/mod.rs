//! Slow content work: rendering, with its queue, and fetching git remotes.

pub(crate) mod remotes;
pub(crate) mod render_queue;
pub(crate) mod renderer;

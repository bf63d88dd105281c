//! What minions fetch, as far as it is slow: rendering, with its queue, and fetching git remotes.

pub(crate) mod remotes;
pub(crate) mod render_queue;
pub(crate) mod renderer;

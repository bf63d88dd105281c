//! What minions fetch: files and renderers.

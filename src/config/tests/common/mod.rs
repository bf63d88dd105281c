//! Fixtures of several tests of configurations.

use saltern_config::{ConfigErrors, Loaded, load_master};

/// This text as `master` in a directory of its own, with a `root_dir` and an `id`.
pub(crate) fn load(text: &str) -> Result<Loaded, ConfigErrors> {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().display();
    let text = format!("root_dir: {place}\nid: m\n{text}");
    std::fs::write(dir.path().join("master"), text).unwrap();
    load_master(dir.path())
}

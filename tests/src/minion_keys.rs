//! Ready-made RSA keys for minions, so that a test that is not about keys neither generates one nor
//! waits for its acceptance. A site takes a different one for each of its minions.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Installs the key number `index` (from 0) as that of a minion whose `pki_dir` is `minion_pki`,
/// and as accepted under `id` by the master whose `pki_dir` is `master_pki`.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn install(index: usize, minion_pki: &Path, master_pki: &Path, id: &str) -> Result<()> {
    let public = saltern_stock::keys::install(&format!("minion-{index}"), minion_pki, "minion")?;
    let accepted = master_pki.join("minions");
    fs::create_dir_all(&accepted)?;
    write(&accepted.join(id), 0o644, &public)
}

/// Writes a file that does not appear before it is whole: a running master watches the folder.
fn write(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let directory = path.parent().and_then(Path::parent);
    let beside = directory
        .context("a key lies in a folder")?
        .join(format!(".key-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(content)?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}

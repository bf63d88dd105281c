//! Ready-made RSA keys for minions, so that a test that is not about keys neither generates one nor
//! waits for its acceptance.
//!
//! They live in `~/.cache/saltern/minion-keys` over runs and are shared by all sites: a site takes
//! a different one for each of its minions. No test may use them to show that keys differ.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use openssl::rsa::Rsa;

const BITS: u32 = 2048;

/// Installs the key number `index` (from 0) as that of a minion whose `pki_dir` is `minion_pki`,
/// and as accepted under `id` by the master whose `pki_dir` is `master_pki`.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn install(index: usize, minion_pki: &Path, master_pki: &Path, id: &str) -> Result<()> {
    let pem = fs::read(cached(index)?)?;
    let public = Rsa::private_key_from_pem(&pem)?.public_key_to_pem()?;
    fs::create_dir_all(minion_pki)?;
    write(&minion_pki.join("minion.pem"), 0o400, &pem)?;
    write(&minion_pki.join("minion.pub"), 0o644, &public)?;
    let accepted = master_pki.join("minions");
    fs::create_dir_all(&accepted)?;
    write(&accepted.join(id), 0o644, &public)
}

/// The file of a key, generated on first use.
fn cached(index: usize) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let directory = Path::new(&home).join(".cache/saltern/minion-keys");
    let path = directory.join(format!("{index}.pem"));
    if !path.exists() {
        fs::create_dir_all(&directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&directory)?;
        file.write_all(&Rsa::generate(BITS)?.private_key_to_pem()?)?;
        // Another test may have been quicker: the first one counts.
        if let Err(error) = file.persist_noclobber(&path)
            && !path.exists()
        {
            return Err(error.into());
        }
    }
    Ok(path)
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

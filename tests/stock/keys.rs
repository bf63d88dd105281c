//! RSA keys of 2048 bits that tests need not make: one takes a fifth of a second of a processor, and each
//! site has several. They live in `~/.cache/saltern/keys` over runs. No test may use them to show that
//! keys differ.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use openssl::rsa::Rsa;

const BITS: u32 = 2048;

/// The key of this name in PEM (PKCS#1), made on first use: everybody who asks for a name gets the same one.
///
/// # Errors
/// When it is not there and cannot be written.
///
/// # Panics
/// When `HOME` is not set.
pub fn ready_made(name: &str) -> Result<Vec<u8>> {
    let home = env::var_os("HOME").expect("HOME is set");
    let directory = Path::new(&home).join(".cache/saltern/keys");
    let path = directory.join(format!("{name}.pem"));
    if !path.exists() {
        fs::create_dir_all(&directory)?;
        let beside = directory.join(format!(".{name}-{}", std::process::id()));
        write(&beside, 0o600, &Rsa::generate(BITS)?.private_key_to_pem()?)?;
        // Another test may have been quicker: the first one counts.
        let linked = fs::hard_link(&beside, &path);
        fs::remove_file(&beside)?;
        if !path.exists() {
            linked?;
        }
    }
    fs::read(path)
}

/// Writes both halves of the key of this name as `<stem>.pem` and `<stem>.pub` into a directory, as stock's
/// `gen_keys` does (`salt/crypt.py`). Returns the public half.
///
/// # Errors
/// As [`ready_made`].
///
/// # Panics
/// As [`ready_made`].
pub fn install(name: &str, directory: &Path, stem: &str) -> Result<Vec<u8>> {
    let pem = ready_made(name)?;
    let public = Rsa::private_key_from_pem(&pem)?.public_key_to_pem()?;
    fs::create_dir_all(directory)?;
    write(&directory.join(format!("{stem}.pem")), 0o400, &pem)?;
    write(&directory.join(format!("{stem}.pub")), 0o644, &public)?;
    Ok(public)
}

fn write(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)
}

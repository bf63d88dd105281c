//! The `gpg` renderer: texts that hold a PGP message are decrypted by the system's `gpg`.
//!
//! The key stays where it is; this starts the program and never reads a key. A message that
//! cannot be decrypted is an error, or stays as it is where the site allows that
//! (`gpg_decrypt_must_succeed`).

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::error::{ErrorClass, RenderError};

const START: &str = "-----BEGIN PGP MESSAGE-----";
const END: &str = "-----END PGP MESSAGE-----";
/// The longest decrypted text.
const LONGEST: u64 = 16 << 20;
/// How deep data is searched.
const DEEPEST: usize = 200;

/// How messages are decrypted.
#[derive(Debug, Clone)]
pub struct Gpg {
    /// The program.
    pub program: PathBuf,
    /// The directory of the keys: `gpg_keydir`, else `gpgkeys` in the configuration's directory.
    pub key_directory: PathBuf,
    /// Whether a message that cannot be decrypted is an error. Off in 3006, on since 3007.
    pub must_succeed: bool,
    /// The longest time for one message.
    pub time: Duration,
}

impl Default for Gpg {
    fn default() -> Gpg {
        Gpg {
            program: PathBuf::from("gpg"),
            key_directory: PathBuf::from("/etc/salt/gpgkeys"),
            must_succeed: true,
            time: Duration::from_secs(10),
        }
    }
}

/// Decrypts all PGP messages in data.
///
/// # Errors
/// If a message cannot be decrypted and must be.
pub fn decrypt(data: Value, gpg: &Gpg, name: &str) -> Result<Value, RenderError> {
    decrypt_at(data, gpg, name, 0)
}

fn decrypt_at(data: Value, gpg: &Gpg, name: &str, depth: usize) -> Result<Value, RenderError> {
    if depth > DEEPEST {
        return Err(RenderError::new(
            ErrorClass::Limit,
            name,
            "the data is nested too deeply",
        ));
    }
    Ok(match data {
        Value::Str(text) if text.contains(START) => Value::Str(decrypt_text(&text, gpg, name)?),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| decrypt_at(item, gpg, name, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| Ok((key, decrypt_at(value, gpg, name, depth + 1)?)))
                .collect::<Result<_, RenderError>>()?,
        ),
        other => other,
    })
}

/// Replaces each message in a text.
fn decrypt_text(text: &str, gpg: &Gpg, name: &str) -> Result<String, RenderError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(START) {
        let (before, from) = rest.split_at(start);
        let Some(end) = from.find(END).map(|end| end + END.len()) else {
            break;
        };
        let (message, after) = from.split_at(end);
        out.push_str(before);
        match run(message, gpg) {
            Ok(plain) => out.push_str(&plain),
            Err(reason) if gpg.must_succeed => {
                return Err(RenderError::new(
                    ErrorClass::Data,
                    name,
                    format!("Could not decrypt cipher: {reason}"),
                ));
            }
            Err(reason) => {
                tracing::warn!(template = name, reason, "could not decrypt a PGP message");
                out.push_str(message);
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn run(message: &str, gpg: &Gpg) -> Result<String, String> {
    let mut child = Command::new(&gpg.program)
        .arg("--homedir")
        .arg(&gpg.key_directory)
        .args(["--status-fd", "2", "--no-tty", "--batch", "-d"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start \"{}\": {error}", gpg.program.display()))?;
    let mut input = child.stdin.take().ok_or("gpg has no input")?;
    let output = child.stdout.take().ok_or("gpg has no output")?;
    let message = message.to_owned();
    // Threads of their own, so that neither pipe can block the other; both end with the child.
    let writer = thread::spawn(move || input.write_all(message.as_bytes()));
    let reader = thread::spawn(move || {
        let mut plain = Vec::new();
        output
            .take(LONGEST + 1)
            .read_to_end(&mut plain)
            .map(|_| plain)
    });
    let deadline = Instant::now() + gpg.time;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline && !reader.is_finished() => {
                thread::sleep(Duration::from_millis(2));
            }
            Ok(None) if reader.is_finished() && Instant::now() < deadline => {
                break child.wait().ok();
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let _ = writer.join();
    let plain = reader
        .join()
        .map_err(|_| "reading failed")?
        .map_err(|error| error.to_string())?;
    match status {
        None => Err(format!("gpg took longer than {} ms", gpg.time.as_millis())),
        Some(status) if !status.success() => Err("gpg refused the message".to_owned()),
        Some(_) if plain.len() as u64 > LONGEST => Err("the plain text is too long".to_owned()),
        Some(_) => String::from_utf8(plain).map_err(|_| "the plain text is not UTF-8".to_owned()),
    }
}

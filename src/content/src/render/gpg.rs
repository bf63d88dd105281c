//! The `gpg` renderer: texts that hold a PGP message are decrypted by the system's `gpg`.
//!
//! The key stays where it is; this starts the program and never reads a key. A message that
//! cannot be decrypted is an error, or stays as it is where the site allows that
//! (`gpg_decrypt_must_succeed`).

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use saltern_wire::msgpack::Value;

use super::error::{ErrorClass, RenderError};
use super::jinja::Limits;
use super::process::{self, ProcessError};

const START: &str = "-----BEGIN PGP MESSAGE-----";
const END: &str = "-----END PGP MESSAGE-----";
/// The longest decrypted text.
const MAX_PLAINTEXT_BYTES: u64 = 16 << 20;
/// How deep data is searched.
const MAX_DEPTH: usize = 200;

/// Why a message is not decrypted.
#[derive(Debug, thiserror::Error)]
enum GpgError {
    /// The program gave no result.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The program printed no plain text.
    #[error("gpg refused the message")]
    Refused,
}

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

/// Decrypts all PGP messages in data; what stands before a failure is decrypted.
///
/// # Errors
/// If a message cannot be decrypted and must be, or the deadline of `limits` has passed.
pub(super) fn decrypt(
    data: &mut Value,
    gpg: &Gpg,
    name: &str,
    limits: &Limits,
) -> Result<(), RenderError> {
    let job = Job { gpg, name, limits };
    decrypt_at(data, &job, 0)
}

/// Settings for all messages.
struct Job<'a> {
    gpg: &'a Gpg,
    /// The template, for messages.
    name: &'a str,
    limits: &'a Limits,
}

fn decrypt_at(data: &mut Value, job: &Job<'_>, depth: usize) -> Result<(), RenderError> {
    if depth > MAX_DEPTH {
        return Err(RenderError::new(
            ErrorClass::Limit,
            job.name,
            "the data is nested too deeply",
        ));
    }
    match data {
        Value::Str(text) if text.contains(START) => {
            if let Some(plain) = decrypt_text(text, job)? {
                *data = plain;
            }
        }
        Value::Array(items) => {
            for item in items {
                decrypt_at(item, job, depth + 1)?;
            }
        }
        Value::Map(entries) => {
            for (_, value) in entries {
                decrypt_at(value, job, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Replaces each message in a text, and takes the line ends off its end: a message in a block of
/// YAML has one behind it that nobody wanted. `None` for a text without a whole message.
fn decrypt_text(text: &str, job: &Job<'_>) -> Result<Option<Value>, RenderError> {
    let Job { gpg, name, limits } = job;
    let mut out = Vec::new();
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find(START) {
        let (before, from) = rest.split_at(start);
        let Some(end) = from.find(END).map(|end| end + END.len()) else {
            break;
        };
        let (message, after) = from.split_at(end);
        found = true;
        out.extend_from_slice(before.as_bytes());
        let time = limits.left_of(gpg.time);
        if time.is_zero() {
            let message = "decrypting took too long";
            return Err(RenderError::new(ErrorClass::Limit, name, message));
        }
        match run(message, gpg, time) {
            Ok(plain) => out.extend_from_slice(&plain),
            Err(reason) if gpg.must_succeed => {
                return Err(RenderError::new(
                    ErrorClass::Data,
                    name,
                    format!("Could not decrypt cipher: {reason}"),
                ));
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(template = *name, reason, "could not decrypt a PGP message");
                out.extend_from_slice(message.replace("\\n", "\n").as_bytes());
            }
        }
        rest = after;
    }
    if !found {
        return Ok(None);
    }
    out.extend_from_slice(rest.as_bytes());
    while out.last() == Some(&b'\n') {
        out.pop();
    }
    Ok(Some(match String::from_utf8(out) {
        Ok(text) => Value::Str(text),
        Err(binary) => Value::Bin(binary.into_bytes().into()),
    }))
}

/// The plain text of one message. As in stock a plain text is accepted whatever the exit code,
/// because that also reports signatures that cannot be verified.
fn run(message: &str, gpg: &Gpg, time: Duration) -> Result<Vec<u8>, GpgError> {
    let mut command = Command::new(&gpg.program);
    command
        .arg("--homedir")
        .arg(&gpg.key_directory)
        .args(["--no-tty", "--batch", "-d"])
        .stderr(Stdio::null());
    // A message on one line has its line ends written out.
    let message = message.replace("\\n", "\n").into_bytes();
    let done = process::run(command, message, time, MAX_PLAINTEXT_BYTES)?;
    if done.output.is_empty() {
        return Err(GpgError::Refused);
    }
    Ok(done.output)
}

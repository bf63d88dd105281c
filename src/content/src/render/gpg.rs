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
use super::process;

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
    let mut command = Command::new(&gpg.program);
    command
        .arg("--homedir")
        .arg(&gpg.key_directory)
        .args(["--no-tty", "--batch", "-d"])
        .stderr(Stdio::null());
    let done = process::run(command, message.as_bytes().to_vec(), gpg.time, LONGEST)?;
    if done.code != Some(0) {
        return Err("gpg refused the message".to_owned());
    }
    String::from_utf8(done.output).map_err(|_| "the plain text is not UTF-8".to_owned())
}

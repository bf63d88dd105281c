//! External authentication: what a command sends so that the master lets somebody else than its own
//! user in.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use saltern_client::{Credentials, LocalClient, user};
use saltern_config::MasterConfig;
use saltern_store::files::{self, Create};
use saltern_wire::msgpack::Value;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::console::{complain, say};
use crate::options::{EauthOptions, Ending};

/// Exit code of a failed log-in.
const FAILED: u8 = 1;

/// How long a token lasts by default (`token_expire`), in seconds.
const TOKEN_SECONDS: f64 = 43_200.0;

/// Bytes that end a prompt: Ctrl-C, Ctrl-D.
const ENDS: [u8; 2] = [3, 4];

/// The load of the command `mk_token`.
#[derive(Serialize)]
struct TokenLoad<'a> {
    cmd: &'static str,
    #[serde(flatten)]
    credentials: &'a Credentials,
}

/// Asks for what the options leave out. `None` without `--eauth`: the key of the user counts then.
///
/// # Errors
/// Nobody answers the prompt.
pub(crate) fn ask(options: &EauthOptions) -> Result<Option<Credentials>, Ending> {
    let Some(eauth) = options.eauth.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let failed = |error: io::Error| {
        let text = match error.kind() {
            io::ErrorKind::Interrupted => "Exiting gracefully on Ctrl-c\n".to_owned(),
            _ => format!("{error}\n"),
        };
        Ending::failed(FAILED, text)
    };
    let mut username = match &options.username {
        Some(name) => name.clone(),
        None => prompt("username: ").map_err(failed)?,
    };
    if username.is_empty() {
        username = user::current_user();
    }
    let password = match &options.password {
        Some(password) => Zeroizing::new(password.reveal().to_owned()),
        None => hidden_prompt("password: ").map_err(failed)?,
    };
    Ok(Some(Credentials::Password {
        eauth: eauth.to_owned(),
        username,
        password,
    }))
}

/// With `-T`, trades the password for a token and keeps that in a file of the user.
///
/// # Errors
/// The master is not reached, or lets nobody in.
pub(crate) async fn with_token(
    credentials: Credentials,
    options: &EauthOptions,
    config: &MasterConfig,
    client: &LocalClient,
) -> Result<Credentials, Ending> {
    if options.make_token != Some(true) {
        return Ok(credentials);
    }
    let load = TokenLoad {
        cmd: "mk_token",
        credentials: &credentials,
    };
    let reply = client.clear_request(&load).await;
    let reply = reply
        .map_err(|error| Ending::failed(FAILED, format!("{}\n", saltern_base::chain(&error))))?;
    let Some(token) = reply.get("token").and_then(Value::as_str) else {
        return Err(Ending::failed(FAILED, "[ERROR   ] Authentication failed\n"));
    };
    if let Some(path) = token_file(config)
        && let Err(error) = files::write_atomic(&path, token.as_bytes(), Create::PRIVATE)
    {
        complain(&format!("[WARNING ] the token is not kept: {error}"));
    }
    Ok(with_the_token(token))
}

/// The token that an earlier `-T` kept, while it is younger than `token_expire`.
pub(crate) fn kept_token(config: &MasterConfig) -> Option<Credentials> {
    let path = token_file(config)?;
    let age = path.metadata().ok()?.modified().ok()?.elapsed();
    let lasts = config
        .command_default("token_expire")
        .and_then(|node| node.as_f64())
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .unwrap_or(TOKEN_SECONDS);
    if age.is_ok_and(|age| age.as_secs_f64() >= lasts) {
        return None;
    }
    let token = std::fs::read_to_string(path).ok()?;
    let token = token.trim();
    (!token.is_empty()).then(|| with_the_token(token))
}

fn with_the_token(token: &str) -> Credentials {
    let token = Zeroizing::new(token.to_owned());
    Credentials::Token { token }
}

/// `token_file`, else `.salt_token` in the home directory.
fn token_file(config: &MasterConfig) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let configured = config
        .command_default("token_file")
        .and_then(|node| node.as_str());
    match configured.map(|path| path.strip_prefix("~/").ok_or(path)) {
        Some(Ok(below)) => Some(home?.join(below)),
        Some(Err(path)) if !path.is_empty() => Some(PathBuf::from(path)),
        _ => Some(home?.join(".salt_token")),
    }
}

fn prompt(text: &str) -> io::Result<String> {
    say(text);
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "EOF when reading a line",
        ));
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line from the terminal without showing it; without a terminal from standard input.
fn hidden_prompt(text: &str) -> io::Result<Zeroizing<String>> {
    let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return prompt(text).map(Zeroizing::new);
    };
    let mut screen = &terminal;
    let line = {
        // Whoever sees the prompt may press Ctrl-C.
        let _quiet = Quiet::new(&terminal)?;
        screen.write_all(text.as_bytes())?;
        read_hidden(&terminal)
    };
    screen.write_all(b"\n")?;
    line
}

/// Byte by byte, because the terminal does not edit lines meanwhile.
fn read_hidden(mut input: impl Read) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(Vec::new());
    let mut byte = [0];
    while input.read(&mut byte)? == 1 {
        match byte {
            [b'\r' | b'\n'] => break,
            [end] if ENDS.contains(&end) => return Err(io::ErrorKind::Interrupted.into()),
            [8 | 127] => _ = line.pop(),
            [letter] => line.push(letter),
        }
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    Ok(Zeroizing::new(text))
}

/// Keeps a terminal from showing what is typed, until it is dropped. Ctrl-C comes as a byte, so that
/// the terminal is always put back.
struct Quiet<'a, F: AsFd> {
    terminal: &'a F,
    before: Termios,
}

impl<'a, F: AsFd> Quiet<'a, F> {
    fn new(terminal: &'a F) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Quiet<'_, F> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_line_is_edited_and_ends() {
        let read = |typed: &[u8]| read_hidden(typed).map(|line| line.to_string());
        assert_eq!(read(b"secret\nmore").unwrap(), "secret");
        assert_eq!(read(b"secx\x7fret\r").unwrap(), "secret");
        assert_eq!(read(b"no end").unwrap(), "no end");
        assert!(read(b"sec\x03").is_err());
    }

    #[test]
    fn nothing_is_asked_without_eauth() {
        assert!(ask(&EauthOptions::default()).is_ok_and(|asked| asked.is_none()));
    }
}

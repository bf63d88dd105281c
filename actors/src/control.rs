//! A door for tests: `saltern_control.ipc` in `sock_dir`, only in builds with the feature
//! `fault-injection`.
//!
//! One line in, one line out: `panic NAME [INSTANCE]` makes an actor panic at its next poll,
//! `actors` lists the actors with their restarts.

use std::io;
use std::path::Path;

/// The socket's name.
pub const SOCKET: &str = "saltern_control.ipc";

/// Why the door did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("the control socket does not answer; was the master built with fault-injection?")]
    Socket(#[from] io::Error),
    /// The master said no.
    #[error("the master refused: {0}")]
    Refused(String),
}

/// Asks a running master; gives its answer.
pub fn ask(sock_dir: &Path, line: &str) -> Result<String, ControlError> {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(sock_dir.join(SOCKET))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    for line in BufReader::new(stream).lines() {
        answer.push_str(&line?);
        answer.push('\n');
    }
    match answer.strip_prefix("error: ") {
        Some(reason) => Err(ControlError::Refused(reason.trim().to_owned())),
        None => Ok(answer),
    }
}

/// Opens the door.
#[cfg(feature = "fault-injection")]
pub(crate) fn serve(
    sock_dir: &Path,
    tree: saltern_supervise::Tree,
    stop: tokio_util::sync::CancellationToken,
) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    let path = sock_dir.join(SOCKET);
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tracing::warn!("fault injection is built in: this is a test build");
    actix_rt::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let Ok((mut stream, _)) = accepted else { return };
            let tree = tree.clone();
            actix_rt::spawn(async move {
                let (reader, mut writer) = stream.split();
                let mut line = String::new();
                if BufReader::new(reader).read_line(&mut line).await.is_ok() {
                    let _ = writer.write_all(answer(&tree, &line).as_bytes()).await;
                }
            });
        }
    });
    Ok(())
}

#[cfg(feature = "fault-injection")]
fn answer(tree: &saltern_supervise::Tree, line: &str) -> String {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("panic"), Some(name)) => {
            let instance = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            if tree.inject_panic(name, instance) {
                "ok\n".to_owned()
            } else {
                format!("error: there is no actor \"{name}\" {instance}\n")
            }
        }
        (Some("actors"), None) => tree
            .liveness()
            .iter()
            .map(|child| format!("{} {} {}\n", child.name, child.instance, child.restarts))
            .collect(),
        _ => "error: say \"panic NAME [INSTANCE]\" or \"actors\"\n".to_owned(),
    }
}

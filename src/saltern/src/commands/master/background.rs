//! `salt-master -d`: starts the master as a process of its own in the background.
//!
//! The program starts itself anew instead of forking, which no process with threads may do safely. Unlike
//! stock's, the command ends only when the master serves or has ended, with the exit code of that.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_base::stdio::complain;
use tokio::time::Instant;

use super::Arguments;
use crate::commands::load_config;

/// A start is waited for no longer than this; the recovery of a damaged database may take as long.
const START: Duration = Duration::from_secs(60);

/// Between two looks at a start.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Begins a session, which no terminal ends.
pub(super) fn begin_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Starts the master and waits until it serves.
pub(super) fn start(arguments: &Arguments) -> Exit {
    // What is wrong with the configuration is said here; the other process has no terminal.
    let mut loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    arguments.apply(&mut loaded.config);
    let pid_file = absolute(&loaded.config.pidfile);
    let child = command(arguments, &pid_file).and_then(|mut command| command.spawn());
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            complain(&format!("cannot start the master: {error}"));
            return Exit::Failure;
        }
    };
    let exit = wait(&mut child, &pid_file);
    if exit != Exit::Ok {
        complain(&format!(
            "the master did not start; why is in its log \"{}\", or on the terminal without -d",
            loaded.config.log.file
        ));
    }
    exit
}

fn command(arguments: &Arguments, pid_file: &Path) -> io::Result<Command> {
    let mut words: Vec<OsString> = vec!["master".into(), "--in-background".into()];
    let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
    option("--config-dir", absolute(&arguments.config.config).into());
    option("--pid-file", pid_file.into());
    if let Some(level) = arguments.log_level {
        option("--log-level", level.name().into());
    }
    if let Some(level) = arguments.log_file_level {
        option("--log-file-level", level.name().into());
    }
    if let Some(file) = &arguments.log_file {
        let is_uri = file.contains("://");
        let file = if is_uri {
            file.into()
        } else {
            absolute(Path::new(file)).into()
        };
        option("--log-file", file);
    }
    if let Some(user) = &arguments.user {
        option("--user", user.into());
    }
    let mut command = Command::new(env::current_exe()?);
    command
        .args(words)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// The other process is in another directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Waits until the master has written its process id, which it does when it serves.
fn wait(child: &mut Child, pid_file: &Path) -> Exit {
    let pid = child.id().to_string();
    let begun = Instant::now();
    while begun.elapsed() < START {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return exit_of(status.code()),
            Err(_) => return Exit::Failure,
        }
        if std::fs::read_to_string(pid_file).is_ok_and(|text| text.trim() == pid) {
            return Exit::Ok;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    complain("the master still starts");
    Exit::Ok
}

/// The exit code of the master that ended before it served.
fn exit_of(code: Option<i32>) -> Exit {
    let all = [
        Exit::Usage,
        Exit::Data,
        Exit::NoInput,
        Exit::Unavailable,
        Exit::GaveUp,
        Exit::CannotCreate,
        Exit::Io,
        Exit::NoPermission,
    ];
    let found = all.into_iter().find(|exit| Some(*exit as i32) == code);
    found.unwrap_or(Exit::Failure)
}

//! Programs of stock Salt without its start-up: forked off a process that has imported Salt once.
//!
//! Each release has one such server (`peers/forkserver.py`) a test run. The first test that needs
//! it starts it; all test processes of the run share it, and it ends with the run. A connection to
//! it is one process, forked for it: the connection carries its id and its exit status, and closing
//! the connection ends it, so that no process outlives the test that started it.
//!
//! A command that changes its environment is started afresh, because Python and Salt read some of
//! it while they start; `SALTERN_TESTS_WITHOUT_FORKSERVER=1` has all of them start afresh.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::process::{ExitStatusExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};
use rustix::process::{Pid, Resource, getrlimit, getuid};
use serde_json::{Map, Value, json};

use crate::process::peer;

/// How often a process is asked for once more when the server ended at that moment.
const ATTEMPTS: usize = 3;

/// A process that the server forked.
pub(crate) struct Forked {
    pid: Pid,
    connection: OwnedFd,
    status: Option<ExitStatus>,
}

impl Forked {
    /// Has the command forked, with these descriptors as its standard ones; none when it is not a
    /// program of a release or has to start afresh.
    pub(crate) fn start(command: &Command, stdio: [BorrowedFd<'_>; 3]) -> Result<Option<Self>> {
        let Some(program) = Program::of(command) else {
            return Ok(None);
        };
        let Some(request) = program.request(command)? else {
            return Ok(None);
        };
        let mut attempts = 1;
        loop {
            match fork(program.server()?, &request, stdio) {
                Ok(forked) => return Ok(Some(forked)),
                Err(_) if attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    /// The exit status, once it has ended.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            match receive(&self.connection, RecvFlags::DONTWAIT) {
                Ok(status) => self.status = Some(ExitStatus::from_raw(status)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.status)
    }

    /// The exit status, awaited.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        match self.status {
            Some(status) => Ok(status),
            None => {
                let status = ExitStatus::from_raw(receive(&self.connection, RecvFlags::empty())?);
                self.status = Some(status);
                Ok(status)
            }
        }
    }
}

/// A script of a release, and its interpreter.
struct Program {
    release: String,
    python: PathBuf,
    script: PathBuf,
    /// Whether the script is the command's first argument, and not its program.
    is_argument: bool,
}

impl Program {
    fn of(command: &Command) -> Option<Self> {
        if env::var_os("SALTERN_TESTS_WITHOUT_FORKSERVER").is_some() {
            return None;
        }
        let program = Path::new(command.get_program());
        let inside = program.strip_prefix(saltern_stock::environments()).ok()?;
        let release = inside.iter().next()?.to_str()?.to_owned();
        if program.file_name()?.to_str()?.starts_with("python") {
            let script = PathBuf::from(command.get_args().next()?);
            let is_script = script.extension().is_some_and(|name| name == "py");
            return is_script.then(|| Self {
                release,
                python: program.to_owned(),
                script,
                is_argument: true,
            });
        }
        let mut first = String::new();
        let file = File::open(program).ok()?.take(256);
        BufReader::new(file).read_line(&mut first).ok()?;
        Some(Self {
            release,
            python: PathBuf::from(first.trim().strip_prefix("#!")?),
            script: program.to_owned(),
            is_argument: false,
        })
    }

    /// The request to the server; `None` when the process has to start afresh.
    fn request(&self, command: &Command) -> Result<Option<String>> {
        if command.get_envs().next().is_some() {
            return Ok(None);
        }
        let mut environment = Map::new();
        for (name, value) in env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                return Ok(None);
            };
            environment.insert(name.to_owned(), value.into());
        }
        let mut arguments = vec![self.script.to_str().context("a path in UTF-8")?];
        for argument in command.get_args().skip(usize::from(self.is_argument)) {
            let Some(argument) = argument.to_str() else {
                return Ok(None);
            };
            arguments.push(argument);
        }
        let directory = command.get_current_dir().map(Path::to_owned);
        let open_files = getrlimit(Resource::Nofile).current;
        let name = Path::new(command.get_program()).file_name();
        let request = json!({
            "name": name.and_then(OsStr::to_str),
            "python": self.python,
            "arguments": arguments,
            "directory": directory.map_or_else(env::current_dir, Ok)?,
            "environment": Value::Object(environment),
            "open_files": open_files.map_or(-1, |limit| i64::try_from(limit).unwrap_or(-1)),
        });
        Ok(Some(request.to_string()))
    }

    /// A connection to the server of this release, which is started if it is not there.
    fn server(&self) -> Result<OwnedFd> {
        let directory = runtime_directory()?;
        // Tests that nextest started are of one run, all others are one by themselves.
        let (run, process) = match env::var("NEXTEST_RUN_ID") {
            Ok(run) => (run, parent_id()),
            Err(_) => (std::process::id().to_string(), std::process::id()),
        };
        let path = directory.join(format!("{}-{run}", self.release));
        if let Ok(connection) = connected(&path) {
            return Ok(connection);
        }
        let lock = File::create(directory.join(format!("{}.lock", self.release)))?;
        lock.lock()?;
        // Another test may have been quicker.
        if let Ok(connection) = connected(&path) {
            return Ok(connection);
        }
        fs::remove_file(&path).ok();
        start_server(&self.python, &path, process)?;
        Ok(connected(&path)?)
    }
}

/// The directory of the sockets: this user's alone.
fn runtime_directory() -> Result<PathBuf> {
    let user = getuid().as_raw();
    let path = env::temp_dir().join(format!("saltern-tests-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let found = fs::symlink_metadata(&path)?;
    ensure!(
        found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0,
        "{} is not a directory of this user alone",
        path.display()
    );
    Ok(path)
}

/// Starts a server and waits until it accepts connections. It ends by itself after this process.
fn start_server(python: &Path, path: &Path, process: u32) -> Result<()> {
    let mut errors = path.as_os_str().to_owned();
    errors.push(".log");
    let mut child = Command::new(python)
        .arg(peer("forkserver.py"))
        .arg(path)
        .arg(process.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&errors)?)
        .spawn()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let mut said = String::new();
    let stdout = child.stdout.take().expect("stdout is piped");
    BufReader::new(stdout).read_line(&mut said)?;
    if said.is_empty() {
        child.wait()?;
        let errors = fs::read_to_string(&errors)?;
        anyhow::bail!("the forkserver ended: {errors}");
    }
    // Not awaited: it outlives this process.
    Ok(())
}

fn connected(path: &Path) -> rustix::io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn fork(connection: OwnedFd, request: &str, stdio: [BorrowedFd<'_>; 3]) -> Result<Forked> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut descriptors = SendAncillaryBuffer::new(&mut space);
    ensure!(
        descriptors.push(SendAncillaryMessage::ScmRights(&stdio)),
        "no space for three descriptors"
    );
    let data = [IoSlice::new(request.as_bytes())];
    sendmsg(&connection, &data, &mut descriptors, SendFlags::NOSIGNAL)?;
    let pid = Pid::from_raw(receive(&connection, RecvFlags::empty())?);
    Ok(Forked {
        pid: pid.context("the forkserver gives positive process ids")?,
        connection,
        status: None,
    })
}

fn receive(connection: &OwnedFd, flags: RecvFlags) -> io::Result<i32> {
    let mut number = [0; 4];
    loop {
        match recv(connection, &mut number, flags) {
            Ok((_, 4)) => return Ok(i32::from_ne_bytes(number)),
            Ok(_) => return Err(io::Error::other("the forkserver ended")),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

//! Child program in a process group of its own, which is killed as a whole.
//!
//! Its own children belong to the group unless they leave it (`setsid`); whatever becomes of the
//! program, nothing of the group outlives it.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Access;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use saltern_base::{blocking, umask};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Interval of the looks for the end of a program that no thread waits for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Process group of one child program. Killed on drop.
pub(super) struct Group {
    child: Child,
    /// Becomes readable when the program has ended.
    end: Arc<OwnedFd>,
    is_over: bool,
}

impl Group {
    /// Starts a program that reads nothing, and gives both of its outputs as one.
    pub(super) fn spawn(program: &str, arguments: &[String]) -> io::Result<(Self, Receiver)> {
        let (output, input) = io::pipe()?;
        let child = command(program, arguments)
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0)
            .spawn()?;
        let mut group = Unwatched(Some(child));
        let end = Arc::new(pidfd_open(group.pid(), PidfdFlags::empty())?);
        let output = receiver(output)?;
        let child = group.0.take().ok_or(io::ErrorKind::NotFound)?;
        let is_over = false;
        Ok((
            Self {
                child,
                end,
                is_over,
            },
            output,
        ))
    }

    /// Waits for the end of the program, ends what is left of its group, and says how it ended.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.wait().await?;
        self.reap()
    }

    /// Sends SIGTERM to the group, and SIGKILL after `within`.
    pub(super) async fn end(&mut self, within: Duration) {
        // A group that has gone already needs no signal.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        let _ = timeout(within, self.wait()).await;
        let _ = self.reap();
    }

    /// Waits for the end of the program, on a thread that only waits: tokio takes no descriptor of
    /// a process without `unsafe`. Where none starts, and until it has begun, it is looked for now and then.
    async fn wait(&self) -> io::Result<()> {
        let end = self.end.clone();
        let wait = move || has_ended(&end, None).map(drop);
        let none = Timespec::default();
        watch(wait, || has_ended(&self.end, Some(&none))).await
    }

    /// Kills the group first: until the program is reaped, its number cannot be used again.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        if !self.is_over {
            self.is_over = true;
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.child.wait()
    }
}

/// Waits for an end on a thread, and looks for it as long as none does.
async fn watch(
    wait: impl FnOnce() -> io::Result<()> + Send + 'static,
    mut has_ended: impl FnMut() -> io::Result<bool>,
) -> io::Result<()> {
    let (begin, begun) = oneshot::channel();
    let waiting = blocking::run(move || {
        let _ = begin.send(());
        wait()
    });
    let looking = async {
        while !has_ended()? {
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    };
    tokio::pin!(waiting, looking);
    let waited = tokio::select! {
        waited = &mut waiting => waited,
        looked = &mut looking => return looked,
        Ok(()) = begun => waiting.await,
    };
    match waited {
        Ok(waited) => waited,
        Err(_) => looking.await,
    }
}

/// Whether a program has ended, after a wait for it, which may be for ever.
fn has_ended(end: &OwnedFd, within: Option<&Timespec>) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(end, PollFlags::IN)], within) {
            Err(rustix::io::Errno::INTR) => {}
            waited => return Ok(waited? > 0),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

/// A program that cannot be watched yet.
struct Unwatched(Option<Child>);

impl Unwatched {
    fn pid(&self) -> Pid {
        let child = self.0.as_ref().expect("invariant: taken last of all");
        Pid::from_child(child)
    }
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

fn receiver(pipe: PipeReader) -> io::Result<Receiver> {
    rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
    Receiver::from_owned_fd(pipe.into())
}

/// Sets the umask that its first argument is, and becomes the program that the others are.
const WITH_UMASK: &str = r#"umask "$0" && exec "$@""#;

/// The program with the umask that it has under a stock master. The master's own is the whole
/// process's, and other threads write files meanwhile, so a shell sets it. Without one, or with a
/// program that is not there or may not be run, the attempt itself says what is wrong.
fn command(program: &str, arguments: &[String]) -> Command {
    let shell = Path::new("/bin/sh");
    let mut command = match umask::of_children() {
        Some(bits) if is_executable(shell) && is_found(program) => {
            let mut command = Command::new(shell);
            command.args(["-c", WITH_UMASK, &format!("{bits:04o}"), program]);
            command
        }
        _ => Command::new(program),
    };
    command.args(arguments);
    command
}

/// Whether it is a program, by its path or by that of the environment.
fn is_found(program: &str) -> bool {
    if program.contains('/') {
        return is_executable(Path::new(program));
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| is_executable(&directory.join(program)))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use rustix::fs::Mode;
    use tokio::io::AsyncReadExt;
    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;

    /// A shell whose child holds the output for as long as it lives.
    fn shell(script: &str) -> (Group, Receiver) {
        let arguments = ["-c".to_owned(), script.to_owned()];
        Group::spawn("/bin/sh", &arguments).expect("there is a shell")
    }

    #[tokio::test]
    async fn background_children_end_with_the_program() {
        let (mut group, mut output) = shell("sleep 600 & echo here; echo there >&2; exit 3");
        let status = group.ended().await.expect("it ends");
        assert_eq!(status.code(), Some(3));
        let mut printed = String::new();
        output
            .read_to_string(&mut printed)
            .await
            .expect("it is text");
        assert_eq!(printed, "here\nthere\n");
    }

    /// The process of a test is its own, so its umask is, too.
    #[tokio::test]
    async fn program_has_the_umask_that_it_has_under_stock_and_its_arguments() {
        umask::remember_inherited(0o002);
        rustix::process::umask(Mode::from_raw_mode(0o027));
        let arguments = ["-c", r#"umask; echo "$1""#, "x", "$HOME 'a' *"].map(str::to_owned);
        let (mut group, mut output) = Group::spawn("sh", &arguments).expect("there is a shell");
        let mut printed = String::new();
        output
            .read_to_string(&mut printed)
            .await
            .expect("it is text");
        assert_eq!(printed, "0022\n$HOME 'a' *\n");
        assert!(group.ended().await.expect("it ends").success());
        let absent = Group::spawn("/none/such", &[]).err();
        assert_eq!(
            absent.map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }

    #[tokio::test]
    async fn program_that_ignores_sigterm_is_killed() {
        let (mut group, mut output) = shell("trap '' TERM; echo up; sleep 600 & wait; wait");
        output.read_exact(&mut [0; 3]).await.expect("it is up");
        group.end(Duration::from_millis(50)).await;
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).await.expect("it is over");
    }

    fn without_threads() -> tokio::runtime::Runtime {
        let runtime = blocking::without_threads().build();
        runtime.expect("a runtime")
    }

    #[tokio::test(start_paused = true)]
    async fn end_is_not_looked_for_while_a_thread_waits_for_it() {
        let (go, gone) = mpsc::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let wait = move || {
            let _ = begin.send(());
            let _ = gone.recv();
            Ok(())
        };
        let looks = Arc::<AtomicUsize>::default();
        let counted = looks.clone();
        let look = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(false)
        };
        let watched = tokio::spawn(watch(wait, look));
        begun.await.expect("it waits");
        yield_now().await;
        let before = looks.load(Ordering::SeqCst);
        for _ in 0..5 {
            advance(LOOK_INTERVAL).await;
            yield_now().await;
        }
        assert_eq!(looks.load(Ordering::SeqCst), before);
        drop(go);
        watched.await.expect("no panic").expect("the end");
    }

    #[test]
    fn end_of_a_program_is_seen_where_no_thread_starts() {
        without_threads().block_on(async {
            let (mut group, _output) = shell("exit 3");
            let status = group.ended().await.expect("it ends");
            assert_eq!(status.code(), Some(3));
        });
    }

    #[test]
    fn program_has_its_time_to_end_where_no_thread_starts() {
        without_threads().block_on(async {
            let script =
                "exec 2>/dev/null; trap 'sleep 0.2; echo bye; exit' TERM; echo up; while :; do sleep 0.05; done";
            let (mut group, mut output) = shell(script);
            output.read_exact(&mut [0; 3]).await.expect("it is up");
            group.end(Duration::from_secs(120)).await;
            let mut rest = String::new();
            output.read_to_string(&mut rest).await.expect("it is over");
            assert_eq!(rest, "bye\n");
        });
    }

    #[test]
    fn program_that_ignores_sigterm_is_killed_in_time_where_no_thread_is_free() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let busy = blocking::begin(move || gone.recv()).expect("a thread");
            let (mut group, mut output) = shell("trap '' TERM; echo up; sleep 600 & wait; wait");
            output.read_exact(&mut [0; 3]).await.expect("it is up");
            group.end(Duration::from_millis(50)).await;
            let mut rest = Vec::new();
            output.read_to_end(&mut rest).await.expect("it is over");
            drop(go);
            assert!(busy.await.expect("it ends").is_err());
        });
    }
}

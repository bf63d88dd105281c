//! What the service manager that started us is told (`sd_notify(3)`) and what it hands over
//! (`sd_listen_fds(3)`).
//!
//! Written for systemd and asking nothing of it: a process that nobody manages tells nobody, and
//! goes on as well. It says nothing about how the service is set up; that is `packaging/`.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use saltern_actors::Master;
use saltern_wire::port::Inherited;
use tokio::net::UnixDatagram;
use tokio::time::Instant;

/// `SD_LISTEN_FDS_START`: the number of the first descriptor that is handed over.
const FIRST: RawFd = 3;

/// More sockets than a master has ports for, in case the environment is not systemd's.
const MAX_SOCKETS: u32 = 64;

/// The sockets that the manager holds for us, from now on closed to the programs that we start.
/// Must be called once, before anything else opens files.
///
/// # Errors
/// One of them is no TCP socket.
pub(crate) fn inherited() -> io::Result<Inherited> {
    let is_ours = number("LISTEN_PID") == Some(u64::from(std::process::id()));
    let count = number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0);
    let count = u32::try_from(count).unwrap_or(MAX_SOCKETS).min(MAX_SOCKETS);
    let listeners = (FIRST..)
        .zip(0..count)
        .map(|(descriptor, _)| listener(descriptor));
    Inherited::new(listeners.collect::<io::Result<Vec<_>>>()?)
}

#[allow(
    unsafe_code,
    reason = "a descriptor that comes by number can be owned in no other way"
)]
fn listener(descriptor: RawFd) -> io::Result<TcpListener> {
    // SAFETY: `LISTEN_FDS` gives this descriptor to this process, and nobody else takes it.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)?;
    Ok(TcpListener::from(owned))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A manager that does not listen for so long is not waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Where news of this process go, if anybody wants them.
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// It ends us after so long without a sign of life.
    watchdog: Option<Duration>,
    /// What an operator reads of a master that is ready.
    serving: String,
}

impl ServiceManager {
    /// Finds the manager that started this process, if one did. One that cannot be reached is
    /// a warning: it will miss us and end us, and then it should be known why.
    ///
    /// # Panics
    /// Outside a runtime.
    pub(crate) fn find(master: &Master) -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|address| {
            connect(&address)
                .inspect_err(|error| {
                    tracing::warn!(?address, %error, "the service manager cannot be told anything");
                })
                .ok()
        });
        Self {
            socket,
            watchdog: watchdog_limit(),
            serving: format!(
                "serving on {} and {}",
                master.request_address(),
                master.publish_address()
            ),
        }
    }

    /// Everything is served from now on, or again after a reload.
    pub(crate) async fn ready(&self) {
        let serving = &self.serving;
        self.tell(&format!("READY=1\nSTATUS={serving}")).await;
    }

    /// The configuration is read again, until [`ready`](Self::ready) is said. The time lets a manager
    /// of 253 and later tell this reload from an earlier one.
    pub(crate) async fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        let status = "reading the configuration again";
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}"
        ))
        .await;
    }

    /// Nothing new is taken any more.
    pub(crate) async fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}")).await;
    }

    /// Feeds the watchdog with the heartbeats of the actors, never with a timer of its own: when
    /// one of them is stuck, the manager hears nothing more. Does not end.
    pub(crate) async fn feed_watchdog(&self, master: &Master) {
        let Some(limit) = self.watchdog else {
            return std::future::pending().await;
        };
        let mut fed = Instant::now();
        loop {
            master.heartbeat().await;
            // Often enough to be missed in time, seldom enough to cost nothing.
            if fed.elapsed() >= limit / 4 {
                fed = Instant::now();
                self.tell("WATCHDOG=1").await;
            }
        }
    }

    async fn tell(&self, news: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        let told = tokio::time::timeout(SEND_TIMEOUT, socket.send(news.as_bytes())).await;
        if let Err(error) = told.unwrap_or_else(|late| Err(late.into())) {
            tracing::warn!(%error, news, "the service manager cannot be told");
        }
    }
}

/// A path, or a name without a file that begins with `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// `sd_watchdog_enabled(3)`: meant is the process that `WATCHDOG_PID` names, if it names one.
fn watchdog_limit() -> Option<Duration> {
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0)?;
    Some(Duration::from_micros(micros))
}

//! Service manager protocol: state notification and watchdog (`sd_notify(3)`), socket activation
//! (`sd_listen_fds(3)`).
//!
//! Written for systemd and optional: without a service manager nothing is sent. The units are in
//! `packaging/`.

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

/// Maximum wait for a manager that does not read its socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Notification socket of the service manager, if there is one.
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Watchdog timeout: the manager ends this process after this time without a heartbeat.
    watchdog: Option<Duration>,
    /// `STATUS=` of a master that is ready.
    serving: String,
}

impl ServiceManager {
    /// Finds the manager that started this process, if one did. One that cannot be reached is
    /// logged as a warning: it will end this process for want of notifications.
    ///
    /// # Panics
    /// Outside a runtime.
    pub(crate) fn find(master: &Master) -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|address| {
            connect(&address)
                .inspect_err(|error| {
                    tracing::warn!(?address, %error, "the service manager cannot be reached");
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
        self.notify(&format!("READY=1\nSTATUS={serving}")).await;
    }

    /// The configuration is read again, until [`ready`](Self::ready). The time lets a manager
    /// of 253 and later distinguish this reload from an earlier one.
    pub(crate) async fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        let status = "reading the configuration again";
        self.notify(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}"
        ))
        .await;
    }

    /// Nothing new is taken any more.
    pub(crate) async fn stopping(&self, status: &str) {
        self.notify(&format!("STOPPING=1\nSTATUS={status}")).await;
    }

    /// Feeds the watchdog with the heartbeats of the actors, never with a timer of its own: when
    /// one of them is stuck, no more notifications are sent. Does not end.
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
                self.notify("WATCHDOG=1").await;
            }
        }
    }

    async fn notify(&self, state: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(state.as_bytes())).await;
        if let Err(error) = sent.unwrap_or_else(|late| Err(late.into())) {
            tracing::warn!(%error, state, "the service manager cannot be notified");
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

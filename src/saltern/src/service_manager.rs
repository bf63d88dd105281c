//! Service manager protocol: state notification and watchdog (`sd_notify(3)`), socket activation
//! (`sd_listen_fds(3)`).
//!
//! Written for systemd and optional: without a service manager nothing is sent. The units are in
//! `packaging/`. `sd-notify` reads the variables and words the states; they are sent here, as
//! `docs/decisions` says.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use saltern_wire::port::Inherited;
use sd_notify::NotifyState;
use tokio::net::UnixDatagram;
use tokio::time::Instant;

/// The sockets that the manager holds for us, from now on closed to the programs that we start.
/// Must be called once, before anything else opens files.
///
/// # Errors
/// One of them is no TCP socket, or the variables name none.
pub(crate) fn inherited() -> io::Result<Inherited> {
    Inherited::new(sd_notify::listen_fds()?.map(listener))
}

#[allow(
    unsafe_code,
    reason = "a descriptor that comes by number can be owned in no other way"
)]
fn listener(descriptor: RawFd) -> TcpListener {
    // SAFETY: `LISTEN_FDS` gives this descriptor to this process, and nobody else takes it.
    unsafe { TcpListener::from_raw_fd(descriptor) }
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
    /// Finds the manager that started this process, if one did; `serving` is the status of a process
    /// that is ready. One that cannot be reached is logged as a warning: it will end this
    /// process for want of notifications.
    ///
    /// # Panics
    /// Outside a runtime.
    pub(crate) fn find(serving: String) -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|address| {
            connect(&address)
                .inspect_err(|error| {
                    tracing::warn!(?address, %error, "the service manager cannot be reached");
                })
                .ok()
        });
        Self {
            socket,
            watchdog: sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()),
            serving,
        }
    }

    /// Reports that all ports serve, after the start or a reload.
    pub(crate) async fn ready(&self) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(&self.serving)])
            .await;
    }

    /// The configuration is read again, until [`ready`](Self::ready). The time lets a manager
    /// of 253 and later distinguish this reload from an earlier one.
    pub(crate) async fn reloading(&self) {
        let mut states = vec![NotifyState::Reloading];
        states.extend(NotifyState::monotonic_usec_now());
        states.push(NotifyState::Status("reading the configuration again"));
        self.notify(&states).await;
    }

    /// Nothing new is taken any more.
    pub(crate) async fn stopping(&self, status: &str) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status(status)])
            .await;
    }

    /// Reports what a process that is ready does meanwhile.
    pub(crate) async fn ready_but(&self, status: &str) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)])
            .await;
    }

    /// Reports what a process does that may or may not be ready yet.
    pub(crate) async fn status(&self, status: &str) {
        self.notify(&[NotifyState::Status(status)]).await;
    }

    /// Feeds the watchdog with heartbeats, such as those of the actors, never with a timer of its own:
    /// when one of them is stuck, no more notifications are sent. Does not end.
    pub(crate) async fn feed_watchdog(&self, heartbeat: impl AsyncFn()) {
        let Some(limit) = self.watchdog else {
            return std::future::pending().await;
        };
        let mut fed = Instant::now();
        loop {
            heartbeat().await;
            // Often enough to be missed in time, seldom enough to cost nothing.
            if fed.elapsed() >= limit / 4 {
                fed = Instant::now();
                self.notify(&[NotifyState::Watchdog]).await;
            }
        }
    }

    async fn notify(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else {
            return;
        };
        let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
        let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(lines.as_bytes())).await;
        if let Err(error) = sent.unwrap_or_else(|late| Err(late.into())) {
            tracing::warn!(%error, ?states, "the service manager cannot be notified");
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

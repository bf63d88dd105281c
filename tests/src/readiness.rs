//! Readiness of a master of ours, as it notifies a service manager of it (sd_notify(3)).
//!
//! An open port does not show it: the processes of a master that was killed before may still hold
//! theirs, and the HTTP servers come after the ports of minions.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

/// Bytes of a notification that are read; the rest of a longer one is dropped by the kernel.
const LIMIT: usize = 4096;

/// A notification socket, read until this is dropped: a full one would hold up its sender.
pub(crate) struct Readiness {
    path: PathBuf,
    socket: Arc<UnixDatagram>,
    is_ready: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Readiness {
    /// Listens on a socket at `path`, in place of one that was there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn listen(path: PathBuf) -> Result<Self> {
        std::fs::remove_file(&path).ok();
        let socket = Arc::new(UnixDatagram::bind(&path)?);
        let is_ready = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (socket, is_ready) = (Arc::clone(&socket), Arc::clone(&is_ready));
            move || read(&socket, &is_ready)
        });
        Ok(Self {
            path,
            socket,
            is_ready,
            reader: Some(reader),
        })
    }

    /// The value of `NOTIFY_SOCKET`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the master has been ready once.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        // Wakes the reader, which sees an empty notification.
        self.socket.shutdown(std::net::Shutdown::Both).ok();
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
    }
}

fn read(socket: &UnixDatagram, is_ready: &AtomicBool) {
    let mut notification = [0; LIMIT];
    while let Ok(length @ 1..) = socket.recv(&mut notification) {
        let text = String::from_utf8_lossy(notification.get(..length).unwrap_or_default());
        if text.lines().any(|line| line == "READY=1") {
            is_ready.store(true, Ordering::Release);
        }
    }
}

//! Fires events on the master's event bus, through `master_event_pull.ipc`, as stock's tools do.
//! Needs no runtime: a tool that fires a few events waits for nothing.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use saltern_base::clock::Clock;
use saltern_model::Compat;
use saltern_model::compat::stamp;
use saltern_wire::ipc::{EventFrame, Framing};
use saltern_wire::msgpack::{Dialect, pack};
use serde::Serialize;

/// The name of the socket in `sock_dir`.
const SOCKET: &str = "master_event_pull.ipc";

/// A master that takes nothing for so long is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Data of an event with what every event has.
#[derive(Serialize)]
struct Stamped<'a, T> {
    #[serde(flatten)]
    data: &'a T,
    #[serde(rename = "_stamp")]
    stamp: String,
}

/// Fires events to a running master.
pub struct EventSender {
    stream: UnixStream,
    compat: Compat,
}

impl EventSender {
    /// Connects; `None` where no master runs, or this user may not fire events.
    #[must_use]
    pub fn connect(sock_dir: &Path, compat: Compat) -> Option<Self> {
        let stream = UnixStream::connect(sock_dir.join(SOCKET)).ok()?;
        stream.set_write_timeout(Some(MAX_WAIT)).ok()?;
        Some(Self { stream, compat })
    }

    /// Fires an event, stamped with the time.
    ///
    /// # Errors
    /// The master has gone away, or takes nothing.
    pub fn fire(&mut self, tag: &str, data: &impl Serialize) -> std::io::Result<()> {
        let now = Clock::system().now().duration_since(UNIX_EPOCH);
        let micros = now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        let stamped = Stamped {
            data,
            stamp: stamp(self.compat, micros),
        };
        let frame = EventFrame::new(tag, &pack(&stamped, Dialect::Bin));
        self.stream.write_all(&frame.bytes(Framing::Prefixed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn event_reaches_the_socket_with_its_stamp() {
        let folder = tempfile::tempdir().unwrap();
        assert!(EventSender::connect(folder.path(), Compat::V3008).is_none());
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let mut sender = EventSender::connect(folder.path(), Compat::V3008).unwrap();
        let data = BTreeMap::from([("act", "delete")]);
        sender.fire("salt/key", &data).unwrap();
        drop(sender);
        let mut bytes = Vec::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut bytes)
            .unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for part in ["salt/key\n\n", "delete", "_stamp", "+00:00"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

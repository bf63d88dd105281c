//! Log lines for systemd's journal, when standard error leads there: with their level, and with
//! each field under a name of its own, so that `journalctl SALTERN_JID=…` finds a job.
//!
//! Source of the protocol: `systemd.io/JOURNAL_NATIVE_PROTOCOL` and `JOURNAL_STREAM` in
//! `systemd.exec(5)`. A line that the journal does not take at once goes to standard error, as all
//! do without this: logging never blocks on the journal, and no line is lost.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::Level;

use super::line::LogLine;

/// Socket of the journal.
const SOCKET: &str = "/run/systemd/journal/socket";

/// An open way to the journal.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// The journal, if standard error leads to it.
    pub(super) fn of_standard_error() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stat = rustix::fs::fstat(io::stderr()).ok()?;
        if !is_same(&stream, stat.st_dev, stat.st_ino) {
            return None;
        }
        Self::connect(Path::new(SOCKET)).ok()
    }

    /// The journal that listens there.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Hands a line over.
    ///
    /// # Errors
    /// The journal has no room at the moment, is gone, or the line is too long for one datagram.
    pub(super) fn write(&self, line: &LogLine) -> io::Result<()> {
        self.0.send(&datagram(line)).map(drop)
    }
}

/// Whether `device:inode`, as in `JOURNAL_STREAM`, is this file.
fn is_same(stream: &str, device: u64, inode: u64) -> bool {
    let Some((stream_device, stream_inode)) = stream.split_once(':') else {
        return false;
    };
    stream_device.parse() == Ok(device) && stream_inode.parse() == Ok(inode)
}

fn datagram(line: &LogLine) -> Vec<u8> {
    // The priorities of syslog(3).
    let priority = match *line.metadata.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut out = Vec::with_capacity(512);
    entry(&mut out, "MESSAGE", &line.text());
    entry(&mut out, "PRIORITY", priority);
    entry(&mut out, "SYSLOG_IDENTIFIER", "saltern");
    entry(&mut out, "SALTERN_TARGET", line.metadata.target());
    if let (Some(file), Some(number)) = (line.metadata.file(), line.metadata.line()) {
        entry(&mut out, "CODE_FILE", file);
        entry(&mut out, "CODE_LINE", &number.to_string());
    }
    for (name, value) in &line.fields {
        let name = name.to_ascii_uppercase().replace(['.', '-'], "_");
        entry(&mut out, &format!("SALTERN_{name}"), value.text());
    }
    out
}

/// Appends an entry with its length in front, which any value may have, whatever is in it.
fn entry(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_stream_is_recognized_by_device_and_inode() {
        assert!(is_same("9:1234", 9, 1234));
        for other in ["9:1235", "8:1234", "9", "", "9:1234:0", "x:y"] {
            assert!(!is_same(other, 9, 1234), "{other}");
        }
    }

    #[test]
    fn line_feed_in_a_value_begins_no_entry() {
        let mut out = Vec::new();
        entry(&mut out, "SALTERN_MINION", "a\nPRIORITY=0");
        let mut expected = b"SALTERN_MINION\n".to_vec();
        expected.extend([12, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"a\nPRIORITY=0\n");
        assert_eq!(out, expected);
    }
}

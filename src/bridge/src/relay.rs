//! Relays the standard error of helpers into the log, line by line and rate-limited.
//!
//! Lines that begin with a mark are records of Salt's own log with their level; the others were
//! printed by modules. Salt's errors are warnings here: the caller receives its own failure.

use std::time::Duration;

use tokio::time::Instant;

/// The longest line that is kept, in bytes.
const MAX_LINE_BYTES: usize = 4096;
/// Lines of one helper in [`WINDOW`].
const MAX_LINES: u32 = 200;
const WINDOW: Duration = Duration::from_secs(10);

/// The mark at the beginning of a line with a level.
const MARK: u8 = 1;

/// The lines of one helper.
pub(crate) struct Relay {
    /// The kind of helper, or the engine.
    lane: String,
    pid: u32,
    line: Vec<u8>,
    /// The last line that was an error.
    last_error: Option<String>,
    window: Instant,
    relayed: u32,
    /// Lines dropped since the count was last taken.
    dropped: u64,
}

impl Relay {
    pub(crate) fn new(lane: &str, pid: u32) -> Self {
        Self {
            lane: lane.to_owned(),
            pid,
            line: Vec::new(),
            last_error: None,
            window: Instant::now(),
            relayed: 0,
            dropped: 0,
        }
    }

    /// The kind of helper, or the engine, that printed the lines.
    pub(crate) fn lane(&self) -> &str {
        &self.lane
    }

    /// Takes printed bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte if self.line.len() < MAX_LINE_BYTES => self.line.push(*byte),
                _ => {}
            }
        }
    }

    /// The last error that was printed; the beginning of a line counts as one.
    pub(crate) fn last_error(&mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.last_error.take()
    }

    /// How many lines were left out since the last time.
    pub(crate) fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let (level, text) = match line.split_first() {
            Some((&MARK, [level, text @ ..])) => (*level, text),
            _ => (b'-', line.as_slice()),
        };
        let text = String::from_utf8_lossy(text);
        if text.is_empty() || !self.is_in_time() {
            return;
        }
        let (lane, pid) = (self.lane.as_str(), self.pid);
        match level {
            b'E' => {
                tracing::warn!(lane, pid, %text, "python");
                self.last_error = Some(text.into_owned());
            }
            b'W' => tracing::info!(lane, pid, %text, "python"),
            b'D' => tracing::debug!(lane, pid, %text, "python"),
            _ => {
                tracing::info!(lane, pid, %text, "python printed");
                self.last_error = Some(text.into_owned());
            }
        }
    }

    fn is_in_time(&mut self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.window) >= WINDOW {
            self.window = now;
            self.relayed = 0;
        }
        self.relayed = self.relayed.saturating_add(1);
        if self.relayed > MAX_LINES {
            self.dropped += 1;
        }
        self.relayed <= MAX_LINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn relay_drops_and_counts_lines_beyond_the_rate_limit() {
        let mut relay = Relay::new("pillar", 1);
        for _ in 0..MAX_LINES + 5 {
            relay.take(b"a line\n");
        }
        assert_eq!(relay.dropped(), 5);
        assert_eq!(relay.dropped(), 0);
        tokio::time::advance(WINDOW).await;
        relay.take(b"another\n");
        assert_eq!(relay.dropped(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn relay_keeps_the_last_error_and_cuts_long_lines() {
        let mut relay = Relay::new("pillar", 1);
        relay.take(b"\x01Eit is br");
        relay.take(b"oken\n\x01Wa warning\n");
        assert_eq!(relay.last_error().as_deref(), Some("it is broken"));
        relay.take(&[b'x'; MAX_LINE_BYTES * 2]);
        assert_eq!(
            relay.last_error().map(|line| line.len()),
            Some(MAX_LINE_BYTES)
        );
    }
}

//! The progress line of a job: one line on standard error, where that is a terminal.
//!
//! It is drawn over itself, erased before anything else is printed, and gone at the end. A job whose
//! returns come faster than a person reads shows none. In a pipe nothing is written.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use tokio::time::{Instant, timeout};

use super::plain;

/// Between two drawings while nothing happens.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Silence before the line is drawn, so that it does not flicker between returns.
const SILENCE: Duration = Duration::from_millis(80);

/// Without silence it is drawn this often all the same.
const MAX_HIDDEN: Duration = Duration::from_secs(1);

/// Columns of a terminal that does not say how many it has.
const DEFAULT_COLUMNS: usize = 80;

/// Erases the line that the cursor is on.
const ERASE: &[u8] = b"\r\x1b[K";

/// Progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Minions that are to return.
    pub expected: usize,
    /// Minions that have returned.
    pub returned: usize,
    /// How many of these failed.
    pub failed: usize,
    /// Since the job began.
    pub elapsed: Duration,
    /// A minion that is still awaited, if one is.
    pub slowest: Option<String>,
}

impl JobProgress {
    /// The line, at most `columns` wide.
    #[must_use]
    pub fn line(&self, columns: usize) -> String {
        let mut text = format!("{} of {} returned", self.returned, self.expected);
        if self.failed > 0 {
            text += &format!(", {} failed", self.failed);
        }
        text += &format!(", {} s", self.elapsed.as_secs());
        if let Some(slowest) = &self.slowest {
            let others = self.expected.saturating_sub(self.returned + 1);
            text += &match others {
                0 => format!("; waiting for {slowest}"),
                others => format!("; waiting for {slowest} and {others} more"),
            };
        }
        plain(&text, columns)
    }
}

/// Draws and erases the line.
pub struct ProgressLine<W: Write = io::Stderr> {
    /// None where nobody looks.
    output: Option<W>,
    columns: fn() -> usize,
    is_drawn: bool,
    /// When it was last drawn, or first could have been.
    drawn_at: Instant,
}

impl ProgressLine {
    /// A line on standard error; nothing is ever drawn unless that is a terminal.
    #[must_use]
    pub fn on_stderr() -> Self {
        let stderr = io::stderr();
        Self::new(stderr.is_terminal().then_some(stderr), columns)
    }
}

impl<W: Write> ProgressLine<W> {
    fn new(output: Option<W>, columns: fn() -> usize) -> Self {
        Self {
            output,
            columns,
            is_drawn: false,
            drawn_at: Instant::now(),
        }
    }

    /// Awaits `work`, and shows the text of `progress` meanwhile. The line is removed afterwards.
    pub async fn beside<T>(
        &mut self,
        work: impl Future<Output = T>,
        progress: impl Fn() -> JobProgress,
    ) -> T {
        if self.output.is_none() {
            return work.await;
        }
        let mut work = std::pin::pin!(work);
        let mut wait = match self.drawn_at.elapsed() < MAX_HIDDEN {
            true => SILENCE,
            false => Duration::ZERO,
        };
        loop {
            if let Ok(done) = timeout(wait, &mut work).await {
                self.erase();
                return done;
            }
            self.draw(&progress());
            wait = REDRAW_INTERVAL;
        }
    }

    /// Draws the line over itself.
    pub fn draw(&mut self, progress: &JobProgress) {
        // The last column stays free: a terminal goes on to the next line behind it.
        let width = (self.columns)().saturating_sub(1);
        let Some(output) = &mut self.output else {
            return;
        };
        let mut bytes = ERASE.to_vec();
        bytes.extend(progress.line(width).into_bytes());
        // A terminal that is gone is no error.
        let _ = output.write_all(&bytes).and_then(|()| output.flush());
        self.is_drawn = true;
        self.drawn_at = Instant::now();
    }

    /// Erases the line if it is there, before something else is printed.
    pub fn erase(&mut self) {
        if let Some(output) = self.output.as_mut().filter(|_| self.is_drawn) {
            let _ = output.write_all(ERASE).and_then(|()| output.flush());
        }
        self.is_drawn = false;
    }
}

impl<W: Write> Drop for ProgressLine<W> {
    fn drop(&mut self) {
        self.erase();
    }
}

fn columns() -> usize {
    let size = tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => DEFAULT_COLUMNS,
        columns => columns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(returned: usize, slowest: Option<&str>) -> JobProgress {
        JobProgress {
            expected: 20,
            returned,
            failed: usize::from(returned > 10),
            elapsed: Duration::from_secs(12),
            slowest: slowest.map(str::to_owned),
        }
    }

    #[test]
    fn line_says_what_is_done_failed_awaited_and_how_long() {
        let line = |progress: JobProgress| progress.line(80);
        assert_eq!(
            line(progress(3, Some("web1"))),
            "3 of 20 returned, 12 s; waiting for web1 and 16 more"
        );
        assert_eq!(
            line(progress(19, Some("web1"))),
            "19 of 20 returned, 1 failed, 12 s; waiting for web1"
        );
        assert_eq!(
            line(progress(20, None)),
            "20 of 20 returned, 1 failed, 12 s"
        );
    }

    #[test]
    fn line_fits_and_cannot_steer_the_terminal() {
        let long = progress(3, Some("web1"));
        assert_eq!(long.line(20), "3 of 20 returned, 1…");
        let hostile = progress(19, Some("a\x1b[2Jb\n"));
        assert!(!hostile.line(200).contains(char::is_control));
    }

    #[tokio::test(start_paused = true)]
    async fn line_is_drawn_in_silence_and_gone_afterwards() {
        let mut written = Vec::new();
        {
            let mut line = ProgressLine::new(Some(&mut written), || 80);
            let quick = line.beside(async { 1 }, JobProgress::default).await;
            assert_eq!(quick, 1);
            let work = tokio::time::sleep(Duration::from_secs(1));
            line.beside(work, || progress(3, None)).await;
        }
        let text = String::from_utf8(written).unwrap();
        let drawn = "\r\x1b[K3 of 20 returned, 12 s";
        assert_eq!(text, format!("{drawn}{drawn}\r\x1b[K"));
    }

    #[tokio::test(start_paused = true)]
    async fn line_is_drawn_now_and_then_though_returns_never_pause() {
        let mut written = Vec::new();
        {
            let mut line = ProgressLine::new(Some(&mut written), || 80);
            for _ in 0..50 {
                let work = tokio::time::sleep(SILENCE / 2);
                line.beside(work, || progress(3, None)).await;
            }
        }
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.matches("3 of 20").count(), 1, "{text:?}");
    }

    #[tokio::test]
    async fn nothing_is_drawn_where_nobody_looks() {
        let mut line = ProgressLine::<Vec<u8>>::new(None, || 80);
        line.draw(&JobProgress::default());
        assert_eq!(line.beside(async { 1 }, JobProgress::default).await, 1);
    }
}

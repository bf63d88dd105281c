//! Rate limit on the lines of one program: faster output waits in the pipe, and the program with
//! it.

use std::time::Duration;

use tokio::time::Instant;

/// Lines of one engine per [`WINDOW`].
const MAX_LINES: u32 = 5_000;
const WINDOW: Duration = Duration::from_secs(1);

/// Rate limiter of one engine's lines.
pub(super) struct Pace {
    window: Instant,
    taken: u32,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            window: Instant::now(),
            taken: 0,
        }
    }

    /// Waits until another line may be taken.
    pub(super) async fn wait(&mut self) {
        if self.window.elapsed() >= WINDOW {
            self.window = Instant::now();
            self.taken = 0;
        }
        if self.taken >= MAX_LINES {
            tokio::time::sleep_until(self.window + WINDOW).await;
            self.window = Instant::now();
            self.taken = 0;
        }
        self.taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_over_the_limit_wait_for_the_next_second() {
        let began = Instant::now();
        let mut pace = Pace::new();
        for _ in 0..MAX_LINES {
            pace.wait().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        pace.wait().await;
        assert_eq!(began.elapsed(), WINDOW);
    }
}

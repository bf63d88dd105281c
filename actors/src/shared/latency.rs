//! Request latency as clients see it: from a request's arrival until its reply is sent, or
//! dropped. The time in the queue, the worker's time, a commit and all else that the reply waits
//! for are included. A request that is shed is counted and not timed.

use saltern_base::metrics::Histogram;
use tokio::time::Instant;

/// Measures until it is dropped.
pub struct Latency {
    since: Instant,
    taking: Histogram,
}

impl Latency {
    /// Of a request that came in then.
    pub(crate) fn since(since: Instant, taking: &Histogram) -> Self {
        let taking = taking.clone();
        Self { since, taking }
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        self.taking.observe(self.since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use saltern_base::metrics::{Registry, SECONDS, histogram};
    use tokio::time::advance;

    use super::*;
    use crate::shared::answer::PendingReply;

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_the_last_part_of_an_answer() {
        let taking = histogram(&Registry::new(), "t_seconds", "t", SECONDS);
        let came = Instant::now();
        advance(Duration::from_secs(2)).await;
        let (answer, _) = PendingReply::inside();
        let answer = answer.timed(Some(Latency::since(came, &taking)));
        let answer = answer.leaving().with(Bytes::new(), Bytes::new());
        let mut parts = answer.split(2);
        parts.remove(0).done();
        assert_eq!(taking.get_sample_count(), 0);
        advance(Duration::from_secs(1)).await;
        drop(parts);
        assert_eq!(
            (taking.get_sample_count(), taking.get_sample_sum()),
            (1, 3.0)
        );
    }
}

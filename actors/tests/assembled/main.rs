//! Tests of the whole actor tree behind real sockets.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "helpers of tests; a failure shows where"
)]

mod batches;
mod cves;
mod faults;
mod jobs;
#[cfg(feature = "fault-injection")]
mod killed;
mod master_key;
mod net_api;
mod remotes;
mod schedules;
#[cfg(feature = "fault-injection")]
mod simulation;
mod site;
mod sockets;
mod status;
mod stopping;

use std::future::Future;
use std::time::Duration;

/// Timeout of each test, long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// Runs a test with a master, which has threads of its own, so the clock is the real one.
pub fn in_system(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(async {
        let ended = tokio::time::timeout(TEST_TIMEOUT, test).await;
        ended.expect("the test ends in time");
    });
}

/// Resolves when another thread has made a condition true.
pub async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

//! Tests of `schedule` in a running master.

use crate::site::Site;
use crate::{in_system, until};

#[test]
fn scheduler_panic_starts_no_job_twice() {
    in_system(async {
        let site = Site::new(
            "schedule:\n  first: {function: test.arg, hours: 1}\n  \
             off: {function: test.arg, hours: 1, enabled: False}\n",
        );
        let running = site.start();
        let runs = || running.metric("saltern_schedule_runs_total");
        until(|| runs() == 1.0).await;
        assert!(running.master.inject_panic("scheduler", 0));
        let restarts = || running.master.restarts("scheduler", 0);
        until(|| restarts() == Some(1)).await;
        // Behind the first look of the new one.
        assert!(running.master.inject_panic("scheduler", 0));
        until(|| restarts() == Some(2)).await;
        assert_eq!(runs(), 1.0);
        running.master.shutdown().await;
    });
}

//! Observability of supervision: metrics, and the name of the actor that panics.
//!
//! A panic hook belongs to the whole process: cargo-nextest runs each test in one of its own.

use std::sync::Arc;

use crate::common::*;
use parking_lot::Mutex;
use prometheus::{Registry, TextEncoder};
use saltern_supervise::{Budget, Tree, current_actor};

#[test]
fn panic_hook_names_the_actor_and_metrics_count_the_panic() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    std::panic::set_hook(Box::new(move |_| {
        into.lock()
            .push(current_actor().map(|actor| actor.to_string()));
    }));
    let registry = Registry::new();
    paused(async {
        let budget = Budget::new(10, SECOND * 60);
        let tree = Tree::new("root", budget, &registry);
        let log = Log::default();
        let one = Script::new(1, &log).start(&tree.root());
        let two = Script::new(2, &log).start(&tree.root());
        let names = Log::default();
        assert_eq!(one.send(who(&names)).await, Ok(()));
        assert_eq!(names.take(), ["Some(\"probe-1\")"]);
        assert_eq!(current_actor(), None);
        assert!(two.send(boom()).await.is_err());
        assert!(two.send(Detached(SECOND, Outcome::Panic)).await.is_err());
        assert!(one.send(Later(SECOND, Outcome::Panic)).await.is_err());
        assert_eq!(one.send(Bump).await, Ok(1));
        assert_eq!(current_actor(), None);

        let waiting = one.send(Atomic(SECOND, Outcome::Count));
        for _ in 0..3 {
            one.do_send(Bump);
        }
        tokio::time::sleep(SECOND / 2).await;
        let text = text(&registry);
        for line in [
            "saltern_actor_restarts_total{actor=\"probe\"} 2",
            "saltern_actor_up{actor=\"probe\"} 2",
            "saltern_actor_mailbox_depth{actor=\"probe\"} 3",
            "saltern_actor_messages_total{actor=\"probe\"} 6",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        assert_eq!(tree.liveness()[0].mailbox_len, 3);
        assert_eq!(waiting.await, Ok(2));
        assert!(tree.shutdown().await.is_clean());
    });
    let _ = std::panic::take_hook();
    assert_eq!(
        *seen.lock(),
        [Some("probe-2".to_owned()), None, Some("probe-1".to_owned())]
    );
    let text = text(&registry);
    for line in [
        "saltern_actor_up{actor=\"probe\"} 0",
        "saltern_actor_mailbox_depth{actor=\"probe\"} 0",
        "saltern_actor_messages_total{actor=\"probe\"} 9",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert!(text.contains("saltern_actor_handling_seconds_count{actor=\"probe\"}"));
}

fn text(registry: &Registry) -> String {
    TextEncoder::new()
        .encode_to_string(&registry.gather())
        .expect("plain metrics")
}

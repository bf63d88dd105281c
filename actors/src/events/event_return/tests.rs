use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use saltern_base::clock::Clock;
use saltern_model::Compat;
use saltern_supervise::{ChildSpec, Tree};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::events::bus::QueueLimits;
use crate::shared::testing::{event, in_system, recorder, tree};

/// Returner that shows each batch to the test and ends it as the test says.
struct Shown {
    batches: UnboundedSender<Vec<PackedEvent>>,
    ends: Mutex<mpsc::Receiver<Ending>>,
    /// Calls for which no thread starts.
    threadless: Arc<AtomicUsize>,
}

/// How a batch ends.
type Ending = fn(Vec<PackedEvent>) -> End;

impl Sink for Shown {
    fn give(&self, batch: Vec<PackedEvent>) -> End {
        let end = self.batches.send(batch.clone()).is_ok();
        let end = end.then(|| self.ends.lock().recv().ok()).flatten();
        end.map_or(End::Returned, |end| end(batch))
    }

    fn start(&self, call: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let left = self.threadless.load(Ordering::SeqCst);
        if left > 0 {
            self.threadless.store(left - 1, Ordering::SeqCst);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        thread::Builder::new().spawn(call).map(drop)
    }
}

fn returned(_: Vec<PackedEvent>) -> End {
    End::Returned
}

fn failed(_: Vec<PackedEvent>) -> End {
    End::Failed("no".to_owned())
}

fn not_tried(batch: Vec<PackedEvent>) -> End {
    End::NotTried("nobody is there".to_owned(), batch)
}

struct Bench {
    bus: Arc<Bus>,
    tree: Tree,
    batches: UnboundedReceiver<Vec<PackedEvent>>,
    ends: mpsc::Sender<Ending>,
    threadless: Arc<AtomicUsize>,
    metrics: EventReturnMetrics,
    _fire: UnboundedReceiver<Fire>,
}

impl Bench {
    /// One returner, already found to exist.
    async fn new(options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        std::fs::write(
            directory.path().join("master"),
            format!("root_dir: {root}\nid: m\n{options}\n"),
        )
        .unwrap();
        let config = saltern_config::load_master(directory.path());
        let config = config.unwrap_or_else(|errors| panic!("{errors}")).config;
        let registry = Registry::new();
        let limits = QueueLimits {
            frames: 1000,
            bytes: 1 << 20,
        };
        let bus = Bus::new(Compat::V3008, limits, Clock::system(), &registry);
        let (fire, fired) = recorder();
        let (shown, batches) = unbounded_channel();
        let (ends, given) = mpsc::channel();
        let sink = Shown {
            batches: shown,
            ends: Mutex::new(given),
            threadless: Arc::default(),
        };
        let threadless = sink.threadless.clone();
        let metrics = EventReturnMetrics::new(&registry);
        let seed = Seed::new("it", Box::new(sink), &config, (&bus, fire), metrics.clone());
        let tree = tree(&registry);
        let spec = ChildSpec::permanent().with_shutdown(Duration::from_secs(30));
        let _: Addr<EventReturn> = tree.root().start_child(spec, seed, 1);
        let mut bench = Self {
            bus,
            tree,
            batches,
            ends,
            threadless,
            metrics,
            _fire: fired,
        };
        assert_eq!(bench.next().await, Vec::<String>::new());
        bench.say(returned);
        bench
    }

    fn fire(&self, tags: &[&str]) {
        for tag in tags {
            self.bus.publish(&event(tag));
        }
    }

    /// Ends the batch that was shown last.
    fn say(&self, end: fn(Vec<PackedEvent>) -> End) {
        self.ends.send(end).unwrap();
    }

    /// The tags of the next batch.
    async fn next(&mut self) -> Vec<String> {
        let batch = self.batches.recv().await.unwrap();
        batch.into_iter().map(|(tag, _)| tag).collect()
    }

    fn counted(&self, result: &str) -> u64 {
        self.metrics.events.with_label_values(&["it", result]).get()
    }
}

#[test]
fn events_are_returned_in_order_and_in_configured_batches() {
    in_system(async {
        let options = "event_return_queue: 3\nevent_return_blacklist: ['not/*']";
        let mut bench = Bench::new(options).await;
        bench.fire(&["a", "not/this", "b", "c"]);
        assert_eq!(bench.next().await, ["a", "b", "c"]);
        bench.fire(&["d", "e", "f", "g"]);
        bench.say(failed);
        // A failed batch is not retried, and does not hold up the rest.
        assert_eq!(bench.next().await, ["d", "e", "f", "g"]);
        bench.say(returned);
        bench.tree.shutdown().await;
        assert_eq!((bench.counted("returned"), bench.counted("failed")), (4, 3));
    });
}

#[test]
fn stop_returns_all_events_and_unsubscribes() {
    in_system(async {
        let mut bench = Bench::new("event_return_queue: 1000").await;
        let tags: Vec<String> = (0..250).map(|number| format!("t/{number}")).collect();
        tags.iter().for_each(|tag| bench.fire(&[tag]));
        for _ in 0..3 {
            bench.say(returned);
        }
        let stopped = bench.tree.shutdown().await;
        assert!(stopped.is_clean(), "{stopped:?}");
        assert_eq!(bench.bus.subscriber_count(), 0);
        let mut seen = bench.next().await;
        while seen.len() < tags.len() {
            seen.extend(bench.next().await);
        }
        assert_eq!(seen, tags);
    });
}

#[test]
fn hanging_returner_fills_its_own_queue_and_gets_a_gap() {
    in_system(async {
        let mut bench = Bench::new("saltern_event_queue_length: 3").await;
        bench.fire(&["first"]);
        assert_eq!(bench.next().await, ["first"]);
        // It hangs. The bus itself is listened to all the while.
        let quick = bench.bus.subscribe();
        bench.fire(&["1", "2", "3", "4", "5"]);
        assert_eq!(quick.take(10).await.0.len(), 5);
        while bench.counted("dropped") < 2 {
            tokio::task::yield_now().await;
        }
        bench.say(returned);
        assert_eq!(bench.next().await, ["1", "2", "3"]);
        bench.fire(&["6"]);
        bench.say(returned);
        assert_eq!(bench.next().await, ["saltern/bus/gap", "6"]);
        assert_eq!(bench.counted("dropped"), 2);
        bench.say(returned);
        bench.tree.shutdown().await;
    });
}

#[test]
fn actor_panic_loses_no_event() {
    in_system(async {
        let mut bench = Bench::new("").await;
        bench.fire(&["a"]);
        assert_eq!(bench.next().await, ["a"]);
        assert!(bench.tree.inject_panic("event_return", 1));
        bench.fire(&["b"]);
        while bench
            .tree
            .liveness()
            .iter()
            .all(|child| child.restarts == 0)
        {
            tokio::task::yield_now().await;
        }
        bench.fire(&["c"]);
        // One call at a time, also across the restart.
        assert!(bench.batches.try_recv().is_err());
        bench.say(returned);
        let mut seen = bench.next().await;
        bench.say(returned);
        if seen.len() < 2 {
            seen.extend(bench.next().await);
            bench.say(returned);
        }
        assert_eq!(seen, ["b", "c"]);
        bench.tree.shutdown().await;
    });
}

#[test]
fn batch_for_which_no_thread_starts_is_kept() {
    in_system(async {
        let mut bench = Bench::new("").await;
        bench.threadless.store(1, Ordering::SeqCst);
        bench.fire(&["a"]);
        let waiting = bench.metrics.waiting.with_label_values(&["it"]);
        while bench.threadless.load(Ordering::SeqCst) > 0 || waiting.get() < 1 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(RETRY).await;
        tokio::time::resume();
        assert_eq!(bench.next().await, ["a"]);
        bench.say(returned);
        bench.tree.shutdown().await;
        assert_eq!(bench.counted("failed"), 0);
        assert_eq!(bench.counted("returned"), 1);
    });
}

#[test]
fn batch_that_was_not_run_is_retried_in_order() {
    in_system(async {
        let mut bench = Bench::new("").await;
        bench.fire(&["a"]);
        assert_eq!(bench.next().await, ["a"]);
        bench.say(not_tried);
        bench.fire(&["b"]);
        let waiting = bench.metrics.waiting.with_label_values(&["it"]);
        while waiting.get() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(bench.batches.try_recv().is_err());
        tokio::time::pause();
        tokio::time::advance(RETRY).await;
        tokio::time::resume();
        assert_eq!(bench.next().await, ["a", "b"]);
        bench.say(returned);
        bench.tree.shutdown().await;
        assert_eq!(bench.counted("failed"), 0);
    });
}

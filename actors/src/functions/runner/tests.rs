use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::{Ran, ReceivedReturn};
use saltern_supervise::{ChildSpec, Placement, Tree};
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::shared::testing::{event, in_system, recorder, tree};

struct Place {
    queue: Arc<RunQueue>,
    tree: Tree,
    fired: UnboundedReceiver<Fire>,
    stored: UnboundedReceiver<TakeReturn>,
}

impl Place {
    fn new() -> Self {
        let registry = Registry::new();
        let queue = RunQueue::new("users", MAX_WAITING, &RunMetrics::new(&registry));
        let tree = tree(&registry);
        let (bus, fired) = recorder();
        let (take_return, stored) = recorder();
        let seed = Seed {
            queue: queue.clone(),
            bus,
            take_return,
            store: recorder().0,
        };
        let spec = ChildSpec::permanent().on(Placement::thread("run"));
        tree.root().start_child::<Runner>(spec, seed, 0);
        Self {
            queue,
            tree,
            fired,
            stored,
        }
    }

    async fn tag(&mut self) -> String {
        let fired = self.fired.recv().await.unwrap();
        fired.0.iter().map(|event| event.tag.to_string()).collect()
    }
}

fn ends(tag: &'static str) -> Run {
    Run::new(event("lost"), move |fire| {
        fire(event("new"));
        Ran {
            store: None,
            end: Some(event(tag)),
        }
    })
}

fn kept() -> ReceivedReturn {
    let jid = Jid::parse("20261121070622637714").unwrap();
    let load = Packed::new(&b"\x80"[..]);
    ReceivedReturn {
        record: ReturnRecord {
            jid: jid.clone(),
            minion: MinionId::parse("m").unwrap(),
            received: 0,
            fun: String::new(),
            retcode: 0,
            success: true,
            load: load.clone(),
        },
        job: JobRecord {
            jid,
            created: 0,
            user: String::new(),
            fun: String::new(),
            tgt: String::new(),
            tgt_type: String::new(),
            load,
            minions: Vec::new(),
            nocache: false,
        },
        reporter: None,
        standalone: true,
        forwarded: false,
        confirms_only: false,
        events: Vec::new(),
        keep: true,
    }
}

#[test]
fn end_is_announced_after_the_store_answers() {
    in_system(async {
        for is_stored in [true, false] {
            let mut place = Place::new();
            let run = Run::new(event("lost"), |_| Ran {
                store: Some(kept()),
                end: Some(event("end")),
            });
            place.queue.push(run).ok().unwrap();
            let message = place.stored.recv().await.unwrap();
            assert!(place.fired.try_recv().is_err());
            match is_stored {
                true => message.answer.done(),
                false => drop(message),
            }
            assert_eq!(place.tag().await, "end");
            assert!(place.tree.shutdown().await.is_clean());
            assert!(place.fired.try_recv().is_err());
        }
    });
}

#[test]
fn panicking_call_is_announced_as_lost_and_the_next_runs() {
    in_system(async {
        let mut place = Place::new();
        let bad = Run::new(event("lost"), |_| {
            panic!("a function that breaks the runner")
        });
        place.queue.push(bad).ok().unwrap();
        place.queue.push(ends("second")).ok().unwrap();
        for tag in ["lost", "new", "second"] {
            assert_eq!(place.tag().await, tag);
        }
        assert!(place.tree.shutdown().await.is_clean());
    });
}

#[test]
fn each_call_notifies_one_idle_runner() {
    in_system(async {
        let queue = RunQueue::new("users", MAX_WAITING, &RunMetrics::new(&Registry::new()));
        let ((one, mut looks_of_one), (other, mut looks_of_other)) = (recorder(), recorder());
        for runner in [&one, &other, &one] {
            assert!(queue.pop_or_rest(runner.clone()).is_none());
        }
        for _ in 0..3 {
            queue.push(ends("end")).ok().unwrap();
        }
        // Both were notified once, and for the third call there was no idle runner left.
        looks_of_one.recv().await.unwrap();
        looks_of_other.recv().await.unwrap();
        assert!(queue.lines.lock().idle.is_empty());
        for _ in 0..3 {
            assert!(queue.pop_or_rest(one.clone()).is_some());
        }
        assert_eq!(queue.depth.get(), 0);
    });
}

#[test]
fn dead_runners_call_goes_to_another_runner() {
    in_system(async {
        let queue = RunQueue::new("users", MAX_WAITING, &RunMetrics::new(&Registry::new()));
        let ((one, mut looks_of_one), (other, mut looks_of_other)) = (recorder(), recorder());
        for runner in [&one, &other] {
            assert!(queue.pop_or_rest(runner.clone()).is_none());
        }
        queue.push(ends("end")).ok().unwrap();
        looks_of_other.recv().await.unwrap();
        queue.leave(&other);
        looks_of_one.recv().await.unwrap();
        // It has started again, and takes the call before the other one.
        assert!(queue.pop_or_rest(other.clone()).is_some());
        assert!(queue.pop_or_rest(one).is_none());
        assert!(!queue.lines.lock().idle.contains(&other));
    });
}

#[test]
fn queue_refuses_calls_beyond_its_bound() {
    let queue = RunQueue::new("users", MAX_WAITING, &RunMetrics::new(&Registry::new()));
    for _ in 0..MAX_WAITING {
        queue.push(ends("end")).ok().unwrap();
    }
    assert!(queue.push(ends("end")).is_err());
    assert_eq!(queue.shed.get(), 1);
    assert!(queue.pop().is_some());
    assert!(queue.push(ends("end")).is_ok());
}

#[test]
fn python_functions_wait_in_their_own_queue() {
    let metrics = RunMetrics::new(&Registry::new());
    let python = RunQueue::new("python", MAX_WAITING, &metrics);
    let queue = RunQueue::before(&python, "users", MAX_WAITING, &metrics);
    for _ in 0..MAX_WAITING {
        queue.push(ends("end").in_python()).ok().unwrap();
    }
    assert!(queue.push(ends("end").in_python()).is_err());
    assert!(queue.pop().is_none());
    assert!(queue.push(ends("end")).is_ok());
    assert!(python.pop().is_some());
}

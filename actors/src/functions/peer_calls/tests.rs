use std::time::Duration;

use saltern_requests::{Finished, Publication, Ran, Topics};
use saltern_supervise::{ChildSpec, Reserved, Tree};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::functions::runner::{MAX_WAITING, RunMetrics};
use crate::shared::testing::{NOT_HANDLED, Port, event, in_system, ping, recorder, tree};

struct Place {
    peer_calls: actix::Addr<PeerCalls>,
    runs: Arc<RunQueue>,
    renderings: Arc<RenderQueue>,
    ends: Arc<JobCompletions>,
    begun: UnboundedReceiver<BeginJob>,
    metrics: PeerCallMetrics,
    port: Port,
    tree: Tree,
}

const WAIT: Duration = Duration::from_secs(50);

impl Place {
    fn new() -> Self {
        let registry = Registry::new();
        let runs = RunQueue::new("minions", MAX_WAITING, &RunMetrics::new(&registry));
        let renderings = RenderQueue::new(10, Vec::new(), &registry);
        let (begin_job, begun) = recorder();
        let reserved = Reserved::<PeerCalls>::new();
        let ends = Arc::new(JobCompletions::new(reserved.recipient()));
        let metrics = PeerCallMetrics::new(&registry);
        let seed = Seed {
            begin_job,
            ends: ends.clone(),
            runs: runs.clone(),
            renderings: renderings.clone(),
            numbers: Arc::default(),
            metrics: metrics.clone(),
        };
        let tree = tree(&registry);
        let port = Port::open();
        tokio::time::pause();
        let root = tree.root();
        let peer_calls = root.start_reserved(reserved, ChildSpec::permanent(), seed, 0);
        Self {
            peer_calls,
            runs,
            renderings,
            ends,
            begun,
            metrics,
            port,
            tree,
        }
    }

    async fn wants(&mut self, minion: &str, work: PeerCallWork) -> JoinHandle<Bytes> {
        let (request, reply) = self.port.ask(b"errand").await;
        let failed = Bytes::from_static(b"failed");
        let call = PeerCall {
            minion: MinionId::parse(minion).expect("an id"),
            wait: WAIT,
            work,
        };
        let take = TakePeerCall {
            call: Box::new(call),
            answer: PendingReply::without_place(request.reply, failed),
        };
        self.peer_calls.send(take).await.expect("the desk is there");
        reply
    }

    /// Runs the function that was begun first, as a runner would.
    fn run_next(&self) {
        let run = self.runs.pop().expect("a function was begun");
        let (_, work) = run.into_parts();
        work(&mut |_| ());
    }

    /// Renders the returns, as a renderer would, once that was requested.
    async fn render_next(&self) {
        let (rendering, _turn) = loop {
            match self.renderings.pop() {
                Some(popped) => break popped,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!(rendering.command, "minion_publish");
        let finished = rendering.work.run();
        rendering.answer.saying(finished.reply).done();
    }

    fn unfinished(&self, reason: &str) -> u64 {
        self.metrics.unfinished.with_label_values(&[reason]).get()
    }
}

fn function(reply: &'static str) -> PeerCallWork {
    PeerCallWork::Run(peer_run(reply))
}

fn peer_run(reply: &'static str) -> PeerRun {
    PeerRun {
        lost: event("lost"),
        too_late: Bytes::from_static(b"too late"),
        is_python: false,
        work: Box::new(move |_| {
            let ran = Ran {
                store: None,
                end: Some(event("end")),
            };
            (ran, Bytes::from_static(reply.as_bytes()))
        }),
    }
}

fn job() -> PeerCallWork {
    let start = StartJob {
        job: ping(jid()),
        announce: Vec::new(),
        publication: Publication {
            entries: 0,
            packed: Bytes::new(),
            topics: Topics::Broadcast,
            trace: None,
        },
        about: None,
        expects_all: false,
        publisher: None,
        audit: None,
    };
    PeerCallWork::Job {
        start: Box::new(start),
        returned: Later::new(|| Finished {
            reply: Bytes::from_static(b"returns"),
            events: Vec::new(),
        }),
    }
}

fn jid() -> Jid {
    Jid::parse("20261121210000123456").expect("a jid")
}

#[test]
fn minion_runs_one_function_and_delays_no_other_minion() {
    in_system(async {
        let mut place = Place::new();
        let first = place.wants("a", function("first")).await;
        let second = place.wants("a", function("second")).await;
        let other = place.wants("b", function("other")).await;
        place.run_next();
        place.run_next();
        assert_eq!(first.await.unwrap(), "first");
        assert_eq!(other.await.unwrap(), "other");
        // Now that the first one is done.
        place.run_next();
        assert_eq!(second.await.unwrap(), "second");
        assert_eq!(place.metrics.waiting.get(), 0);
    });
}

#[test]
fn one_minion_cannot_take_all_slots() {
    in_system(async {
        let mut place = Place::new();
        let mut waiting = Vec::new();
        for _ in 0..MAX_PER_MINION {
            waiting.push(place.wants("greedy", function("done")).await);
        }
        let refused = place.wants("greedy", function("done")).await;
        assert_eq!(refused.await.unwrap(), "failed");
        assert_eq!(place.unfinished("full"), 1);
        let modest = place.wants("modest", function("modest")).await;
        place.run_next();
        place.run_next();
        assert_eq!(modest.await.unwrap(), "modest");
    });
}

#[test]
fn timed_out_call_is_answered_and_its_function_never_begun() {
    in_system(async {
        let mut place = Place::new();
        let under_way = place.wants("a", function("done")).await;
        let in_line = place.wants("a", function("done")).await;
        tokio::time::advance(WAIT + Duration::from_millis(1)).await;
        assert_eq!(under_way.await.unwrap(), "too late");
        assert_eq!(in_line.await.unwrap(), "too late");
        assert_eq!(place.unfinished("late"), 2);
        place.run_next();
        let third = place.wants("a", function("third")).await;
        place.run_next();
        assert_eq!(third.await.unwrap(), "third");
        assert!(place.runs.pop().is_none());
    });
}

#[test]
fn panicking_function_is_answered_and_the_next_begun() {
    in_system(async {
        let mut place = Place::new();
        let lost = place.wants("a", function("lost")).await;
        let next = place.wants("a", function("next")).await;
        // What is left of it when its thread unwinds.
        drop(place.runs.pop().expect("a function was begun"));
        assert_eq!(lost.await.unwrap(), "failed");
        place.run_next();
        assert_eq!(next.await.unwrap(), "next");
    });
}

#[test]
fn job_call_is_answered_at_the_end_of_its_job() {
    in_system(async {
        let mut place = Place::new();
        let reply = place.wants("a", job()).await;
        place.begun.recv().await.unwrap().answer.done();
        place.ends.notify(&jid());
        place.render_next().await;
        assert_eq!(reply.await.unwrap(), "returns");
        assert_eq!(place.unfinished("late"), 0);
    });
}

#[test]
fn timed_out_job_call_is_answered_with_the_returns_so_far() {
    in_system(async {
        let mut place = Place::new();
        let reply = place.wants("a", job()).await;
        place.begun.recv().await.unwrap().answer.done();
        tokio::time::advance(WAIT + Duration::from_millis(1)).await;
        place.render_next().await;
        assert_eq!(reply.await.unwrap(), "returns");
        assert_eq!(place.unfinished("late"), 1);
        // An end that no call waits for is not reported.
        place.ends.notify(&jid());
    });
}

#[test]
fn job_call_that_cannot_be_stored_is_answered_at_once() {
    in_system(async {
        let mut place = Place::new();
        let reply = place.wants("a", job()).await;
        drop(place.begun.recv().await.unwrap());
        assert_eq!(reply.await.unwrap(), "failed");
    });
}

#[test]
fn waiting_calls_are_answered_when_the_actor_panics() {
    in_system(async {
        let mut place = Place::new();
        let reply = place.wants("a", function("done")).await;
        assert!(place.tree.inject_panic("peer_calls", 0));
        let next = place.wants("b", function("next"));
        let next = next.await;
        assert_eq!(reply.await.unwrap(), NOT_HANDLED);
        place.run_next();
        place.run_next();
        assert_eq!(next.await.unwrap(), "next");
    });
}

#[test]
fn python_functions_have_a_queue_of_their_own() {
    in_system(async {
        let mut place = Place::new();
        let mut run = peer_run("done");
        run.is_python = true;
        let reply = place.wants("m1", PeerCallWork::Run(run)).await;
        let run = place.runs.pop().expect("it was begun");
        assert!(run.is_python());
        run.into_parts().1(&mut |_| ());
        assert_eq!(reply.await.expect("no panic"), "done");
        assert!(place.tree.shutdown().await.is_clean());
    });
}

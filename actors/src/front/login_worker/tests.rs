use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use saltern_base::metrics::Registry;
use saltern_requests::{Handled, LogIn, LoginEnd, Outcome};
use saltern_supervise::{ChildSpec, Placement, Reserved, Tree};
use tokio::task::JoinHandle;

use super::*;
use crate::content::render_queue::RenderQueue;
use crate::front::logins::Login;
use crate::functions::runner::{MAX_WAITING, RunMetrics, RunQueue};
use crate::shared::answer::PendingReply;
use crate::shared::testing::{NOT_HANDLED, Port, event, in_system, recorder, tree};

const BUSY: &[u8] = b"too many";

struct Place {
    logins: Arc<Logins>,
    sinks: Sinks,
    reserved: Option<Reserved<LoginWorker>>,
    tree: Tree,
    port: Port,
    fired: tokio::sync::mpsc::UnboundedReceiver<crate::messages::Fire>,
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn end(reply: &'static str, is_refused: bool) -> LoginEnd {
    LoginEnd {
        handled: Handled {
            outcome: Outcome::reply(reply).and_fire(event("logged_in")),
            command: "publish",
            minion: None,
            span: None,
            audit: None,
        },
        is_refused,
    }
}

impl Place {
    fn new() -> Self {
        let registry = Registry::new();
        let reserved = Reserved::new();
        let logins = Logins::new(vec![reserved.recipient()], None, &registry);
        let (bus, fired) = recorder();
        let sinks = Sinks {
            begin_job: recorder().0,
            begin_batch: recorder().0,
            take_return: recorder().0,
            take_leaves: recorder().0,
            take_answer: recorder().0,
            take_verdicts: recorder().0,
            audit: recorder().0,
            peer_calls: recorder().0,
            bus,
            renderings: RenderQueue::new(10, Vec::new(), &registry),
            wheels: RenderQueue::of_wheels(Vec::new(), &registry),
            runs: RunQueue::new("users", MAX_WAITING, &RunMetrics::new(&registry)),
            logins: logins.clone(),
        };
        Self {
            logins,
            sinks,
            reserved: Some(reserved),
            tree: tree(&registry),
            port: Port::open(),
            fired,
        }
    }

    /// Starts a login worker, on a thread of its own or here, where the test's clock is.
    fn start(&mut self, placement: Option<Placement>) {
        let seed = Seed {
            logins: self.logins.clone(),
            sinks: self.sinks.clone(),
        };
        let spec = ChildSpec::permanent();
        let spec = match placement {
            Some(placement) => spec.on(placement),
            None => spec,
        };
        let reserved = self.reserved.take().expect("it is started once");
        self.tree.root().start_reserved(reserved, spec, seed, 0);
    }

    /// A log-in of one user at one address; resolves when it is answered. Needs no socket, so that
    /// the test's clock may stand still.
    fn ask(&self, is_refused: bool) -> impl Future<Output = bool> + use<> {
        let (answer, answered) = PendingReply::inside();
        let log_in = LogIn::new(address(1), "ana", move || end("done", is_refused));
        self.logins.push(Login { log_in, answer });
        answered
    }

    /// A log-in from an address, and the answer to come.
    async fn log_in(
        &mut self,
        from: IpAddr,
        work: impl FnOnce() -> LoginEnd + Send + 'static,
    ) -> JoinHandle<Bytes> {
        let (request, reply) = self.port.ask(b"log in").await;
        let answer = PendingReply::without_place(request.reply, Bytes::from_static(BUSY));
        let log_in = LogIn::new(from, "ana", work);
        self.logins.push(Login { log_in, answer });
        reply
    }
}

#[test]
fn accepted_log_in_is_answered_and_its_effects_carried_out() {
    in_system(async {
        let mut place = Place::new();
        // Queued before there is a login worker: a starting one looks.
        let first = place.log_in(address(1), || end("first", false)).await;
        place.start(Some(Placement::thread("door")));
        assert_eq!(first.await.unwrap(), "first");
        let second = place.log_in(address(1), || end("second", false)).await;
        assert_eq!(second.await.unwrap(), "second");
        for _ in 0..2 {
            assert_eq!(place.fired.recv().await.unwrap().0.len(), 1);
        }
        assert!(place.tree.shutdown().await.is_clean());
    });
}

#[test]
fn panicking_backend_fails_its_own_log_in_only() {
    in_system(async {
        let mut place = Place::new();
        let lost = place.log_in(address(1), || panic!("a backend breaks"));
        let lost = lost.await;
        let kept = place.log_in(address(1), || end("kept", false)).await;
        place.start(Some(Placement::thread("door")));
        assert_eq!(lost.await.unwrap(), NOT_HANDLED);
        assert_eq!(kept.await.unwrap(), "kept");
        assert!(place.tree.shutdown().await.is_clean());
    });
}

#[test]
fn delayed_refusal_blocks_no_other_log_in() {
    in_system(async {
        let mut place = Place::new();
        // No socket is waited for here: time stands still until all tasks wait for a timer.
        tokio::time::pause();
        let began = Instant::now();
        let ask = |is_refused| place.ask(is_refused);
        let (refused, known) = (ask(true), ask(false));
        place.start(None);
        assert!(known.await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(refused.await);
        let waited = began.elapsed();
        let (least, most) = (REFUSAL.mul_f64(0.75), REFUSAL.mul_f64(1.26));
        assert!((least..most).contains(&waited), "{waited:?}");
        tokio::time::resume();
        assert!(place.tree.shutdown().await.is_clean());
    });
}

#[test]
fn waiting_log_ins_are_answered_at_the_stop() {
    in_system(async {
        let mut place = Place::new();
        let waiting = place.log_in(address(1), || end("done", false)).await;
        let mut login_worker = LoginWorker::build(&Seed {
            logins: place.logins.clone(),
            sinks: place.sinks.clone(),
        });
        assert!(login_worker.drain(&mut Context::new()).is_none());
        assert_eq!(waiting.await.unwrap(), BUSY);
    });
}

/// Wrong passwords delay the right one and do not refuse it.
#[test]
fn right_password_behind_wrong_ones_is_late() {
    in_system(async {
        let mut place = Place::new();
        tokio::time::pause();
        let began = Instant::now();
        let ask = |is_refused| place.ask(is_refused);
        let wrong: Vec<_> = (0..6).map(|_| ask(true)).collect();
        let right = ask(false);
        place.start(None);
        assert!(right.await);
        let waited = began.elapsed();
        assert!(
            (REFUSAL.mul_f64(0.75)..REFUSAL.mul_f64(2.6)).contains(&waited),
            "{waited:?}"
        );
        for answered in wrong {
            assert!(answered.await);
        }
        tokio::time::resume();
        assert!(place.tree.shutdown().await.is_clean());
    });
}

/// More wrong passwords than may wait of one name push each other out, not the right one.
#[test]
fn right_password_behind_too_many_wrong_ones_is_late_and_not_refused() {
    in_system(async {
        let mut place = Place::new();
        tokio::time::pause();
        let began = Instant::now();
        let ask = |is_refused| place.ask(is_refused);
        let wrong: Vec<_> = (0..100).map(|_| ask(true)).collect();
        let right = ask(false);
        place.start(None);
        assert!(right.await, "answered, and not for want of a place");
        // Four guesses in the time of a refusal, and 64 wait.
        let (least, most) = (REFUSAL.mul_f64(0.75 * 15.0), REFUSAL.mul_f64(1.26 * 16.0));
        let waited = began.elapsed();
        assert!((least..most).contains(&waited), "{waited:?}");
        let mut pushed_out = 0;
        for answered in wrong {
            pushed_out += usize::from(!answered.await);
        }
        assert_eq!(pushed_out, 37);
        tokio::time::resume();
        assert!(place.tree.shutdown().await.is_clean());
    });
}

/// Delayed answers are bounded, and a new log-in is still served.
#[test]
fn oldest_refusal_beyond_the_bound_is_answered_early() {
    in_system(async {
        let mut place = Place::new();
        tokio::time::pause();
        let began = Instant::now();
        let logins = place.logins.clone();
        let ask = |user: &str, is_refused| {
            let (answer, answered) = PendingReply::inside();
            let log_in = LogIn::new(address(1), user, move || end("done", is_refused));
            logins.push(Login { log_in, answer });
            answered
        };
        place.start(None);
        let mut refused = Vec::new();
        for number in 0..=MAX_HELD_BACK {
            refused.push(ask(&number.to_string(), true));
            // One after the other, so that each is served.
            assert!(ask("guest", false).await);
        }
        let last = refused.pop().unwrap();
        assert!(refused.remove(0).await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(place.logins.early.get(), 1);
        assert!(last.await);
        assert!(began.elapsed() >= REFUSAL.mul_f64(0.75));
        tokio::time::resume();
        assert!(place.tree.shutdown().await.is_clean());
    });
}

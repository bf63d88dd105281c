use bytes::Bytes;
use saltern_supervise::{ChildSpec, Reserved};
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::shared::testing::{NOT_HANDLED, Port, in_system, recorder, tree};

const CLEAR: &[u8] = b"\x82\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping";
const MINION: &[u8] = b"\x82\xa3enc\xa3aes\xa4load\xa0";
const AUTH: &[u8] = b"\x82\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa5_auth";

struct Rig {
    tree: saltern_supervise::Tree,
    router: Addr<ReqRouter>,
    windows: Arc<Windows>,
    metrics: RouterMetrics,
    work: UnboundedReceiver<Work>,
    port: Port,
}

fn rig(places: usize, backlog: usize) -> Rig {
    let (worker, work) = recorder();
    let registry = Registry::new();
    let metrics = RouterMetrics::new(&registry);
    let reserved = Reserved::<ReqRouter>::new();
    let windows = Windows::new(1, places, reserved.recipient());
    let seed = Seed {
        workers: Arc::new(vec![worker]),
        windows: windows.clone(),
        backlog,
        auth_backlog: 5,
        metrics: metrics.clone(),
        listener: Arc::default(),
        stop: CancellationToken::new(),
    };
    let tree = tree(&registry);
    let root = tree.root();
    let router = root.start_reserved(reserved, ChildSpec::permanent(), seed, 0);
    Rig {
        tree,
        router,
        windows,
        metrics,
        work,
        port: Port::open(),
    }
}

#[test]
fn classes_take_turns_and_none_starves() {
    in_system(async {
        let mut rig = rig(1, 100);
        let mut replies = Vec::new();
        let kinds = [(MINION, 40), (AUTH, 3), (CLEAR, 6)];
        for (payload, count) in kinds {
            for _ in 0..count {
                let (request, reply) = rig.port.ask(payload).await;
                rig.router.send(Accept(request)).await.unwrap();
                replies.push(reply);
            }
        }
        let mut order = String::new();
        for _ in 0..replies.len() {
            let work = rig.work.recv().await.unwrap();
            assert_eq!(rig.windows.in_hand(), 1);
            order.push(match peek_class(&work.request.payload) {
                Class::Clear => 'c',
                Class::Minion => 'm',
                Class::Auth => 'a',
            });
            // Answered and done: the slot is free for the next one.
            work.request.reply.send(Bytes::from_static(b"ok"));
        }
        let turn = "m".repeat(16);
        let rest = "m".repeat(40 - 1 - 32);
        // The first one found the worker free.
        let expected = format!("m{turn}acccc{turn}acc{rest}a");
        assert_eq!(order, expected);
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"ok"[..]);
        }
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

#[test]
fn full_backlog_sheds_requests_of_its_class() {
    in_system(async {
        let mut rig = rig(1, 1);
        let mut replies = Vec::new();
        for payload in [MINION, MINION, MINION, CLEAR] {
            let (request, reply) = rig.port.ask(payload).await;
            rig.router.send(Accept(request)).await.unwrap();
            replies.push(reply);
        }
        assert_eq!(replies.remove(2).await.unwrap(), NOT_HANDLED);
        let shed: Vec<u64> = rig
            .metrics
            .classes
            .iter()
            .map(|class| class.shed.get())
            .collect();
        assert_eq!(shed, [0, 1, 0]);
        for _ in 0..3 {
            let work = rig.work.recv().await.unwrap();
            work.request.reply.send(Bytes::from_static(b"ok"));
        }
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"ok"[..]);
        }
    });
}

#[test]
fn panicking_router_answers_its_backlog_and_restarts() {
    in_system(async {
        let mut rig = rig(1, 10);
        let (request, first) = rig.port.ask(MINION).await;
        rig.router.send(Accept(request)).await.unwrap();
        let (request, second) = rig.port.ask(MINION).await;
        rig.router.send(Accept(request)).await.unwrap();
        assert!(rig.tree.inject_panic("req_router", 0));
        assert_eq!(second.await.unwrap(), NOT_HANDLED);
        // The window is still full, and its slot goes to the request at the new router.
        let (request, third) = rig.port.ask(MINION).await;
        rig.router.send(Accept(request)).await.unwrap();
        assert_eq!(rig.metrics.classes[1].waiting.get(), 1);
        for _ in 0..2 {
            let work = rig.work.recv().await.unwrap();
            work.request.reply.send(Bytes::from_static(b"ok"));
        }
        assert_eq!(first.await.unwrap(), &b"ok"[..]);
        assert_eq!(third.await.unwrap(), &b"ok"[..]);
    });
}

#[test]
fn stopping_router_hands_over_its_backlog() {
    in_system(async {
        let mut rig = rig(1, 10);
        let mut replies = Vec::new();
        for _ in 0..3 {
            let (request, reply) = rig.port.ask(MINION).await;
            rig.router.send(Accept(request)).await.unwrap();
            replies.push(reply);
        }
        let working = async {
            for _ in 0..3 {
                let work = rig.work.recv().await.unwrap();
                work.request.reply.send(Bytes::from_static(b"ok"));
            }
        };
        let (stopped, ()) = tokio::join!(rig.tree.shutdown(), working);
        assert!(stopped.is_clean());
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"ok"[..]);
        }
    });
}

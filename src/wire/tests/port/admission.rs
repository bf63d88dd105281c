//! Tests of admission and memory: unread replies, refused requests, and reserved slots.

use std::sync::Arc;

use bytes::Bytes;
use saltern_wire::port::{PeerLimits, PubLimits, ReqLimits, Transport};
use saltern_wire::zmtp::ReqClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::port::common::{
    Echo, Raw, Running, message, publish_listener_with, request_listener, request_listener_after,
    request_listener_of, socket, soon,
};

const MIB: usize = 1 << 20;

/// Bytes of replies that wait for their readers.
fn waiting(running: &Running) -> u64 {
    running.metric("held_bytes", "replies")
}

async fn deaf(running: &Running, requests: &[&[u8]]) -> Raw {
    let mut raw = Raw::open(running.addr, 0, "DEALER", b"").await;
    for request in requests {
        raw.send(&message(&[b"", request])).await;
    }
    raw
}

#[tokio::test]
async fn replies_to_slow_readers_stay_within_their_budget() {
    let limits = ReqLimits {
        answers: 4 * 80 * MIB,
        ..ReqLimits::default()
    };
    let bound = 80 * MIB as u64;
    let running = request_listener(limits, Arc::new(Echo::default()));
    let mut slow = Vec::new();
    // Each is owed 32 MiB, of which the kernel takes a few.
    for _ in 0..6 {
        slow.push(deaf(&running, &[b"large"]).await);
        running
            .reaches("messages_total", "out", slow.len() as u64)
            .await;
        assert!(waiting(&running) <= bound, "{} of them", slow.len());
    }
    running.reaches("closed_total", "answer_memory", 4).await;
    // A peer that reads gets its reply, at the cost of one that does not.
    let mut honest = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let reply = soon("a reply", honest.request(Bytes::from_static(b"large"))).await;
    assert_eq!(reply.expect("reply").len(), 32 * MIB);
    running.reaches("closed_total", "answer_memory", 5).await;
    // The oldest ones were closed; the youngest is still owed its reply.
    let mut youngest = slow.pop().expect("the last one");
    assert_eq!(youngest.read(32 * MIB).await.len(), 32 * MIB);
    drop(slow);
    running.reaches("closed_total", "peer_closed", 0).await;
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(1));
    soon("the account to be empty", async {
        while waiting(&running) > 0 {
            pace.tick().await;
        }
    })
    .await;
    running.stopped().await;
}

/// The network that holds most is evicted, not the oldest connection.
#[tokio::test]
async fn full_reply_budget_closes_connections_of_network_that_holds_most() {
    let limits = ReqLimits {
        answers: 4 * 160 * MIB,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let request = message(&[b"", b"large"]);
    let mut first = Raw::open_from([127, 0, 0, 3], running.addr, 0, "DEALER", b"").await;
    first.send(&request).await;
    running.reaches("messages_total", "out", 1).await;
    let mut crowd = Vec::new();
    for number in 2..10 {
        let mut raw = Raw::open_from([127, 0, 0, 2], running.addr, 0, "DEALER", b"").await;
        raw.send(&request).await;
        running.reaches("messages_total", "out", number).await;
        crowd.push(raw);
    }
    running.reaches("closed_total", "answer_memory", 4).await;
    assert_eq!(first.read(32 * MIB).await.len(), 32 * MIB);
    running.stopped().await;
}

#[tokio::test]
async fn replies_of_one_connection_are_bounded_together() {
    let limits = ReqLimits {
        answers: 4 * 40 * MIB,
        ..ReqLimits::default()
    };
    let sink = Arc::new(Echo::default());
    let running = request_listener(limits, sink.clone());
    let mut honest = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let _slow = deaf(&running, &[&b"hold"[..]; 16]).await;
    running.reaches("messages_total", "in", 16).await;
    let large = Bytes::from(vec![0; 32 * MIB]);
    for reply in std::mem::take(&mut *sink.held.lock()) {
        reply.send(large.clone());
        assert!(waiting(&running) <= 40 * MIB as u64);
    }
    running.reaches("closed_total", "answer_memory", 1).await;
    let reply = soon("a reply", honest.request(Bytes::from_static(b"hi"))).await;
    assert_eq!(reply.expect("reply"), "hi");
    running.stopped().await;
}

#[tokio::test]
async fn many_small_replies_are_charged_too() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), sink.clone());
    let _slow = deaf(&running, &[&b"hold"[..]; 61]).await;
    running.reaches("messages_total", "in", 61).await;
    let mut held = std::mem::take(&mut *sink.held.lock()).into_iter();
    // The first reply is more than the kernel takes; those behind it wait.
    let (large, small) = (Bytes::from(vec![0; 32 * MIB]), Bytes::from(vec![0; 4000]));
    held.next().expect("the first").send(large.clone());
    running.reaches("messages_total", "out", 1).await;
    held.for_each(|reply| reply.send(small.clone()));
    let all = (large.len() + 59 * small.len()) as u64;
    running.reaches("held_bytes", "replies", all).await;
    running.stopped().await;
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * kibibytes
        .expect("a size")
        .parse::<usize>()
        .expect("a number")
}

/// One byte of a further message does not keep the allocation of a large one that was answered.
#[tokio::test]
async fn rest_behind_large_message_does_not_keep_its_memory() {
    const LARGE: usize = 8 * MIB;
    let sink = Arc::new(Echo::default());
    let running = request_listener_of(Transport::Tcp, None, ReqLimits::default(), sink.clone());
    // A short entry behind a long one: how much is missing is not announced, so the buffer doubles.
    let mut bytes = b"\x84\xa4head\x81\xa3mid\x01\xa4body\xa2hi\xa1p\xc6\x00\x80\x00\x00".to_vec();
    bytes.resize(bytes.len() + LARGE, b'x');
    bytes.extend_from_slice(b"\xa1q\xc4\x64");
    bytes.resize(bytes.len() + 100, b'x');
    bytes.push(0x84);
    let mut open = Vec::new();
    let mut before = 0;
    for number in 0..20_u64 {
        let mut peer = TcpStream::connect(running.addr).await.expect("connect");
        peer.write_all(&bytes).await.expect("the request");
        soon("a reply", peer.read_u8()).await.expect("a reply");
        running.reaches("messages_total", "out", number + 1).await;
        open.push(peer);
        sink.seen.lock().clear();
        if number == 3 {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 * MIB, "{} MiB", grown / MIB);
    drop(open);
    running.stopped().await;
}

#[tokio::test]
async fn connection_with_many_refused_requests_is_closed() {
    let limits = ReqLimits {
        refusals: 5,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let connect = || ReqClient::connect(running.addr, None);
    let mut client = connect().await.expect("connect");
    let mut ask = async |payload: &'static [u8]| {
        let reply = soon("a reply", client.request(Bytes::from_static(payload))).await;
        reply.expect("reply")
    };
    for _ in 0..4 {
        assert_eq!(ask(b"refuse").await, "refuse");
    }
    // An authenticated request resets the count.
    assert_eq!(ask(b"trust").await, "trust");
    for _ in 0..4 {
        assert_eq!(ask(b"refuse").await, "refuse");
    }
    assert_eq!(running.metric("closed_total", "refused"), 0);
    // The last one is answered, too.
    assert_eq!(ask(b"refuse").await, "refuse");
    running.reaches("closed_total", "refused", 1).await;
    let mut other = connect().await.expect("connect");
    let reply = soon("a reply", other.request(Bytes::from_static(b"hi"))).await;
    assert_eq!(reply.expect("reply"), "hi");
    running.stopped().await;
}

#[tokio::test]
async fn slots_of_known_networks_are_refused_to_strangers() {
    let limits = ReqLimits {
        peers: PeerLimits {
            connections: 8,
            ..PeerLimits::default()
        },
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let mut known = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let reply = soon("a reply", known.request(Bytes::from_static(b"trust"))).await;
    assert_eq!(reply.expect("reply"), "trust");
    drop(known);
    running.reaches("closed_total", "peer_closed", 1).await;
    let mut strangers = Vec::new();
    for _ in 0..7 {
        strangers.push(Raw::open_from([127, 0, 0, 2], running.addr, 1, "REQ", b"").await);
    }
    refused(&running, [127, 0, 0, 2]).await;
    running.reaches("refused_total", "reserved", 1).await;
    // A network in which a minion has authenticated has a slot.
    let mut again = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let reply = soon("a reply", again.request(Bytes::from_static(b"hi"))).await;
    assert_eq!(reply.expect("reply"), "hi");
    running.stopped().await;
}

/// Connects from this address and is closed before the greeting.
async fn refused(running: &Running, from: [u8; 4]) {
    let socket = tokio::net::TcpSocket::new_v4().expect("socket");
    socket.bind((from, 0).into()).expect("bind");
    let stream = socket.connect(running.addr).await.expect("connect");
    assert!(Raw { stream }.closed().await.is_empty());
}

/// Eight connections, of which strangers may have seven.
fn eight() -> PeerLimits {
    PeerLimits {
        connections: 8,
        ..PeerLimits::default()
    }
}

#[tokio::test]
async fn slots_are_reserved_for_networks_known_before_a_restart() {
    let limits = ReqLimits {
        peers: eight(),
        ..ReqLimits::default()
    };
    let before = [[127, 0, 0, 1].into()];
    let (running, _) = request_listener_after(socket(), limits, Arc::new(Echo::default()), &before);
    let mut strangers = Vec::new();
    for _ in 0..7 {
        strangers.push(Raw::open_from([127, 0, 0, 2], running.addr, 1, "REQ", b"").await);
    }
    refused(&running, [127, 0, 0, 2]).await;
    let _known = Raw::open(running.addr, 1, "REQ", b"").await;
    running.stopped().await;
}

/// Connections from before their network was known take no slot of strangers any more, on either
/// port.
#[tokio::test]
async fn authenticated_connection_frees_its_stranger_slot() {
    let limits = ReqLimits {
        peers: eight(),
        ..ReqLimits::default()
    };
    let (requests, known) =
        request_listener_after(socket(), limits, Arc::new(Echo::default()), &[]);
    let limits = PubLimits {
        peers: eight(),
        ..PubLimits::default()
    };
    let (publish, _) = publish_listener_with(socket(), limits, known);
    let mut peers = Vec::new();
    for _ in 0..7 {
        peers.push(Raw::open_from([127, 0, 0, 3], publish.addr, 1, "SUB", b"").await);
    }
    for _ in 0..6 {
        peers.push(Raw::open_from([127, 0, 0, 2], requests.addr, 1, "REQ", b"").await);
    }
    let mut minion = Raw::open_from([127, 0, 0, 3], requests.addr, 0, "DEALER", b"").await;
    refused(&requests, [127, 0, 0, 2]).await;
    refused(&publish, [127, 0, 0, 2]).await;
    minion.send(&message(&[b"", b"trust"])).await;
    minion.read(9).await;
    // Seven strangers may be there once more, and the last place is that of a known network.
    peers.push(Raw::open_from([127, 0, 0, 2], requests.addr, 1, "REQ", b"").await);
    peers.push(Raw::open_from([127, 0, 0, 2], publish.addr, 1, "SUB", b"").await);
    drop((minion, peers));
    // Counted out as it was counted in.
    requests.reaches("closed_total", "peer_closed", 8).await;
    let mut strangers = Vec::new();
    for _ in 0..7 {
        strangers.push(Raw::open_from([127, 0, 0, 2], requests.addr, 1, "REQ", b"").await);
    }
    refused(&requests, [127, 0, 0, 2]).await;
    requests.stopped().await;
    publish.stopped().await;
}

//! Tests against the `zeromq` crate: an implementation that is neither libzmq nor ours.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use saltern_wire::port::{PubLimits, PubMessage, ReqLimits};
use saltern_wire::zmtp::{ReqClient, SubClient};
use zeromq::{
    DealerSocket, PubSocket, RepSocket, ReqSocket, Socket, SocketRecv, SocketSend, SubSocket,
    ZmqMessage,
};

use crate::port::common::{Echo, publish_listener, request_listener, soon};

fn frames(message: &ZmqMessage) -> Vec<Bytes> {
    message.iter().cloned().collect()
}

#[tokio::test]
async fn zeromq_crate_req_and_dealer_are_answered() {
    let running = request_listener(ReqLimits::default(), Arc::new(Echo::default()));
    let endpoint = format!("tcp://{}", running.addr);
    let mut req = ReqSocket::new();
    soon("a connection", req.connect(&endpoint))
        .await
        .expect("connect");
    for number in 0..1000 {
        let payload = Bytes::from(format!("request {number}"));
        soon("to send", req.send(payload.clone().into()))
            .await
            .expect("send");
        let reply = soon("a reply", req.recv()).await.expect("reply");
        assert_eq!(frames(&reply), [payload]);
    }

    let mut dealer = DealerSocket::new();
    soon("a connection", dealer.connect(&endpoint))
        .await
        .expect("connect");
    let asked = [&b"id"[..], b"", b"payload"].map(Bytes::from_static);
    let request = ZmqMessage::try_from(asked.to_vec()).expect("not empty");
    for _ in 0..10 {
        soon("to send", dealer.send(request.clone()))
            .await
            .expect("send");
    }
    for _ in 0..10 {
        let reply = soon("a reply", dealer.recv()).await.expect("reply");
        assert_eq!(frames(&reply), asked);
    }
}

#[tokio::test]
async fn zeromq_crate_sub_gets_our_publications() {
    let (running, handle) = publish_listener(PubLimits {
        queue: 2000,
        ..PubLimits::default()
    });
    let mut sub = SubSocket::new();
    let endpoint = format!("tcp://{}", running.addr);
    soon("a connection", sub.connect(&endpoint))
        .await
        .expect("connect");
    soon("to subscribe", sub.subscribe("ab"))
        .await
        .expect("subscribe");
    running.reaches("messages_total", "in", 1).await;
    for number in 0..1000 {
        let payload = Bytes::from(number.to_string());
        assert_eq!(
            handle
                .publish(&PubMessage::with_topic(b"b", payload.clone()))
                .matched,
            0
        );
        assert_eq!(
            handle
                .publish(&PubMessage::with_topic(b"abc", payload))
                .queued,
            1
        );
    }
    for number in 0..1000 {
        let message = soon("a message", sub.recv()).await.expect("message");
        let expected = [Bytes::from_static(b"abc"), Bytes::from(number.to_string())];
        assert_eq!(frames(&message), expected);
    }
    soon("to cancel", sub.unsubscribe("ab"))
        .await
        .expect("cancel");
    running.reaches("messages_total", "in", 2).await;
    assert_eq!(
        handle
            .publish(&PubMessage::new(Bytes::from_static(b"abc")))
            .matched,
        0
    );
}

#[tokio::test]
async fn our_clients_work_with_zeromq_crate_sockets() {
    let mut rep = RepSocket::new();
    let endpoint = soon("to bind", rep.bind("tcp://127.0.0.1:0"))
        .await
        .expect("bind");
    let address: SocketAddr = endpoint
        .to_string()
        .trim_start_matches("tcp://")
        .parse()
        .expect("address");
    let mut client = ReqClient::connect(address, None).await.expect("connect");
    let answering = tokio::spawn(async move {
        for _ in 0..100 {
            let request = rep.recv().await.expect("request");
            rep.send(request).await.expect("reply");
        }
        rep
    });
    for number in 0..100 {
        let payload = Bytes::from(number.to_string());
        let reply = soon("a reply", client.request(payload.clone()))
            .await
            .expect("reply");
        assert_eq!(reply, payload);
    }
    let _rep = soon("the other end", answering).await.expect("no panic");

    let mut publisher = PubSocket::new();
    let endpoint = soon("to bind", publisher.bind("tcp://127.0.0.1:0"))
        .await
        .expect("bind");
    let address: SocketAddr = endpoint
        .to_string()
        .trim_start_matches("tcp://")
        .parse()
        .expect("address");
    let mut client = SubClient::connect(address, &[b"x"]).await.expect("connect");
    // The arrival of our subscription cannot be observed: publish until one arrives.
    let first = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            tokio::select! {
                message = client.next() => break message,
                _ = pace.tick() => publisher.send("xyz".into()).await.expect("send"),
            }
        }
    };
    let message = soon("a message", first).await.expect("message");
    assert_eq!(message, ["xyz"]);
}

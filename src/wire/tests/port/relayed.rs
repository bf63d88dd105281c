//! Tests of a relay in front of the member port: a relayed peer is one of the active member's own.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use prometheus::Registry;
use saltern_wire::client::{ReqClient, Route, SubClient};
use saltern_wire::member::MemberTls;
use saltern_wire::port::{
    Incoming, KnownNetworks, ListenOptions, MemberPort, PeerLimits, PubHandle, PubLimits,
    PubListener, PubMessage, Relay, RelayTarget, ReqLimits, ReqListener, RequestSink, Socket, Tls,
    Transport,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::port::common::{Running, TEST_TIMEOUT, socket, soon};

/// Answers with the last number of the peer's address, packed.
struct WhoAsks;

impl RequestSink for WhoAsks {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        let last = match incoming.peer.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        incoming.reply.send(Bytes::from(vec![last]));
        Ok(())
    }

    fn deliver(&self, _incoming: Incoming) -> BoxFuture<'_, ()> {
        unreachable!("try_deliver takes everything")
    }
}

/// A relay and, behind it, an active member, with the same transports.
pub(crate) struct Members {
    pub(crate) active: Running,
    publish: Running,
    handle: PubHandle,
    target: RelayTarget,
    member_port: SocketAddr,
    pub(crate) relay: Running,
    /// Those of the relay, by transport.
    requests: Vec<SocketAddr>,
    publications: Vec<SocketAddr>,
}

fn sockets(tls: Option<&Tls>) -> (Vec<Socket>, Vec<SocketAddr>) {
    let sockets = Transport::ALL.map(|transport| Socket {
        listener: socket().into(),
        transport,
        tls: tls.cloned(),
    });
    let addresses = sockets.iter().map(|socket| socket.listener.local_addr());
    let addresses = addresses.map(|address| address.expect("address")).collect();
    (sockets.into(), addresses)
}

fn running(
    addr: SocketAddr,
    registry: Registry,
    serve: impl FnOnce(CancellationToken) -> BoxFuture<'static, ()>,
) -> Running {
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(stop.clone()));
    Running {
        addr,
        registry,
        stop,
        task,
    }
}

impl Members {
    /// The seeds are the secrets of the active member and of the relay.
    pub(crate) fn start(seeds: (u8, u8), tls: Option<&Tls>, limits: ReqLimits) -> Self {
        let tls_of = |seed| MemberTls::new(&[seed; 32]).expect("a key");
        let registry = Registry::new();
        let ((of_requests, own), (of_publish, _)) = (sockets(tls), sockets(tls));
        let mut requests = ReqListener::new(of_requests, limits, &registry).expect("listener");
        let (limits, known) = (PubLimits::default(), KnownNetworks::default());
        let publish = PubListener::new(of_publish, limits, known, &registry).expect("listener");
        let port = socket();
        let member_port = port.local_addr().expect("address");
        let doors = (&requests, &publish);
        let tls = tls_of(seeds.0);
        let port = MemberPort::new(port.into(), &tls, doors, TEST_TIMEOUT, &registry);
        requests.serve_members(port);
        let handle = publish.handle();
        let active = running(own[0], registry.clone(), |stop| {
            Box::pin(requests.serve(Arc::new(WhoAsks), stop))
        });
        let publish = running(own[0], registry, |stop| Box::pin(publish.serve(stop)));

        let registry = Registry::new();
        let ((of_requests, requests), (of_publish, publications)) = (sockets(None), sockets(None));
        let target = RelayTarget::default();
        let limits = PeerLimits::default();
        let relay = Relay::new(
            ((of_requests, limits), (of_publish, limits)),
            (&tls_of(seeds.1), target.clone()),
            ListenOptions::default(),
            &registry,
        );
        let relay = relay.expect("a relay");
        let relay = running(requests[1], registry, |stop| {
            Box::pin(relay.serve_while(async move { stop.cancelled().await }))
        });
        Self {
            active,
            publish,
            handle,
            target,
            member_port,
            relay,
            requests,
            publications,
        }
    }

    pub(crate) fn is_active(&self, epoch: i64) {
        let address = self.member_port.to_string();
        self.target.set(Some((address, epoch)));
    }

    pub(crate) async fn stopped(self) {
        self.relay.stopped().await;
        self.active.stopped().await;
        self.publish.stopped().await;
    }
}

fn route(to: SocketAddr, transport: Transport) -> Route {
    Route {
        to,
        // Not that of the relay.
        from: Some([127, 0, 0, 9].into()),
        transport,
    }
}

/// Waits for the end of a connection.
async fn ended(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // By an end of stream or a reset.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn relayed_peers_are_those_of_the_active_member_with_their_own_address() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    for (number, transport) in [(0, Transport::ZeroMq), (1, Transport::Tcp)] {
        let to = route(members.requests[number], transport);
        let client = soon("a connection", ReqClient::connect(to)).await;
        let mut client = client.expect("connected");
        for _ in 0..2 {
            let asked = client.request(Bytes::from_static(b"\x07"));
            let answer = soon("an answer", asked).await.expect("answered");
            assert_eq!(answer.as_ref(), [9], "{transport:?}");
        }
        let to = route(members.publications[number], transport);
        let subscribing = SubClient::connect(to, &[b""], b"\xa2m1");
        let mut subscriber = soon("a subscription", subscribing).await.expect("a client");
        let message = PubMessage::new(Bytes::from_static(b"news"));
        let published = async {
            loop {
                let count = match transport {
                    Transport::ZeroMq => members.handle.publish(&message),
                    _ => members.handle.publish_to_hearers(&message, None),
                };
                if count.queued > 0 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        soon("a subscriber", published).await;
        let heard = soon("the message", subscriber.next()).await.expect("heard");
        assert_eq!(heard.last().expect("a part").as_ref(), b"news");
    }
    members.stopped().await;
}

#[tokio::test]
async fn connections_end_at_once_without_an_active_member_and_when_another_one_is() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    ended(TcpStream::connect(members.requests[0]).await.expect("open")).await;
    members.relay.reaches("closed_total", "no_active", 1).await;
    members.is_active(1);
    let to = route(members.requests[0], Transport::ZeroMq);
    let client = soon("a connection", ReqClient::connect(to)).await;
    let _client = client.expect("connected");
    members.is_active(2);
    members.relay.reaches("closed_total", "no_active", 2).await;
    members.stopped().await;
}

#[tokio::test]
async fn member_port_takes_no_member_of_another_secret() {
    let members = Members::start((1, 2), None, ReqLimits::default());
    members.is_active(1);
    ended(TcpStream::connect(members.requests[0]).await.expect("open")).await;
    members
        .relay
        .reaches("closed_total", "active_away", 1)
        .await;
    assert_eq!(members.active.metric("accepted_total", ""), 0);
    assert!(!members.target.is_reached());
    members.stopped().await;
}

#[tokio::test]
async fn stopped_relay_cuts_its_connections() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    let to = route(members.requests[0], Transport::ZeroMq);
    let client = soon("a connection", ReqClient::connect(to)).await;
    let mut client = client.expect("connected");
    members.relay.stopped().await;
    let asked = client.request(Bytes::from_static(b"\x07"));
    assert!(soon("an end", asked).await.is_err());
    members.active.stopped().await;
    members.publish.stopped().await;
}

/// A connection keeps its port for a minute where it is closed first; all of a relay go to one address.
#[tokio::test]
async fn ended_connection_keeps_no_port_of_the_relay() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    let to = route(members.requests[0], Transport::ZeroMq);
    let client = soon("a connection", ReqClient::connect(to)).await;
    let mut client = client.expect("connected");
    let asked = client.request(Bytes::from_static(b"\x07"));
    soon("an answer", asked).await.expect("answered");
    drop(client);
    let closed = members.relay.reaches("closed_total", "peer_closed", 1);
    closed.await;
    let port = format!(":{:04X}", members.member_port.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let waiting = table.lines().filter(|line| {
        // Local and remote address, and the state: TIME_WAIT.
        let fields: Vec<_> = line.split_whitespace().skip(2).take(2).collect();
        matches!(fields[..], [remote, "06"] if remote.ends_with(&port))
    });
    assert_eq!(waiting.count(), 0, "{table}");
    members.stopped().await;
}

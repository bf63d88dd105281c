//! Tests of a relay in front of the member port: a relayed peer is one of the active member's own.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use prometheus::Registry;
use saltern_wire::client::{ReqClient, Route, SubClient};
use saltern_wire::member::{Door, LocalPeer, MemberTls, RelayedConnections, RelayedPeer};
use saltern_wire::port::{
    Incoming, KnownNetworks, ListenOptions, LocalSocket, MemberPort, PeerLimits, PubHandle,
    PubLimits, PubListener, PubMessage, Relay, RelaySockets, RelayTarget, ReqLimits, ReqListener,
    RequestSink, Socket, Tls, Transport,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
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
    /// Of the active member.
    known: KnownNetworks,
    member_port: SocketAddr,
    pub(crate) relay: Running,
    /// Those of the relay, by transport.
    requests: Vec<SocketAddr>,
    publications: Vec<SocketAddr>,
    api: SocketAddr,
    /// The directory of the relay's unix socket.
    place: TempDir,
    /// Connections that the active member gets at these doors.
    events: RelayedConnections,
    calls: RelayedConnections,
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
        let (limits, known) = (PubLimits::default(), requests.known_networks());
        let publish = PubListener::new(of_publish, limits, known.clone(), &registry);
        let publish = publish.expect("listener");
        let port = socket();
        let member_port = port.local_addr().expect("address");
        let doors = (&requests, &publish);
        let tls = tls_of(seeds.0);
        let mut port = MemberPort::new(port.into(), &tls, doors, TEST_TIMEOUT, &registry);
        let (events, calls) = (port.open_door(Door::Events), port.open_door(Door::Api));
        requests.serve_members(port);
        let handle = publish.handle();
        let active = running(own[0], registry.clone(), |stop| {
            Box::pin(requests.serve(Arc::new(WhoAsks), stop))
        });
        let publish = running(own[0], registry, |stop| Box::pin(publish.serve(stop)));

        let registry = Registry::new();
        let ((of_requests, requests), (of_publish, publications)) = (sockets(None), sockets(None));
        let target = RelayTarget::default();
        let limits = PeerLimits {
            connections: 64,
            handshake: TEST_TIMEOUT,
            ..PeerLimits::default()
        };
        let (place, api_port) = (tempfile::tempdir().expect("a directory"), socket());
        let api = api_port.local_addr().expect("address");
        let listener = UnixListener::bind(place.path().join("events")).expect("a socket");
        listener.set_nonblocking(true).expect("an option");
        let local = LocalSocket {
            listener,
            door: Door::Events,
            connections: 2,
            patience: TEST_TIMEOUT,
        };
        let sockets = RelaySockets {
            requests: (of_requests, limits),
            publish: (of_publish, limits),
            apis: (vec![(Door::Api, api_port.into())], limits),
            local: vec![local],
            before_answers: None,
        };
        let relay = Relay::new(
            sockets,
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
            known,
            member_port,
            relay,
            requests,
            publications,
            api,
            place,
            events,
            calls,
        }
    }

    /// A program that subscribes at the relay.
    async fn subscriber(&self) -> UnixStream {
        let path = self.place.path().join("events");
        UnixStream::connect(path).await.expect("connected")
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
        tls: None,
        ..Route::from(to)
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
    let mut peer = TcpStream::connect(members.requests[0]).await.expect("open");
    peer.write_all(b"\xff").await.expect("written");
    ended(peer).await;
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

#[tokio::test]
async fn peer_that_says_nothing_costs_the_active_member_no_handshake() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    // Nobody is there, which nobody finds out.
    let away = socket().local_addr().expect("address");
    members.target.set(Some((away.to_string(), 1)));
    drop(TcpStream::connect(members.requests[0]).await.expect("open"));
    let closed = members.relay.reaches("closed_total", "peer_closed", 1);
    closed.await;
    let mut peer = TcpStream::connect(members.requests[0]).await.expect("open");
    peer.write_all(b"\xff").await.expect("written");
    ended(peer).await;
    let closed = members.relay.reaches("closed_total", "active_away", 1);
    closed.await;
    members.stopped().await;
}

#[tokio::test]
async fn request_waits_for_the_subscriber_that_came_before_it() {
    let mut members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    let mut program = members.subscriber().await;
    let to = route(members.requests[0], Transport::ZeroMq);
    let asking = tokio::spawn(async move {
        let mut client = ReqClient::connect(to).await.expect("connected");
        client.request(Bytes::from_static(b"\x07")).await
    });
    members.relay.reaches("accepted_total", "request", 1).await;
    let mut subscription = soon("a subscriber", members.events.next()).await;
    let user = RelayedPeer::User(rustix::process::geteuid().as_raw());
    assert_eq!(subscription.peer(), user);
    assert!(!asking.is_finished());
    assert_eq!(members.active.metric("accepted_total", "request"), 0);
    subscription.confirm().await.expect("confirmed");
    let answer = soon("an answer", asking).await.expect("no panic");
    assert_eq!(answer.expect("answered").as_ref(), [9]);

    subscription.write_all(b"event").await.expect("written");
    subscription.flush().await.expect("sent");
    let mut event = [0; 5];
    soon("the event", program.read_exact(&mut event))
        .await
        .expect("read");
    assert_eq!(&event, b"event");
    let _second = members.subscriber().await;
    let mut third = members.subscriber().await;
    let end = soon("an end", third.read(&mut event)).await;
    assert_eq!(end.unwrap_or_default(), 0);
    members
        .relay
        .reaches("refused_total", "connections", 1)
        .await;
    drop(program);
    let end = soon("the end of the subscriber", subscription.read(&mut event)).await;
    assert_eq!(end.unwrap_or_default(), 0);
    members.stopped().await;
}

#[tokio::test]
async fn program_that_the_active_member_does_not_serve_is_no_absence_of_it() {
    let mut members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    let mut program = members.subscriber().await;
    // Not confirmed.
    drop(soon("a subscriber", members.events.next()).await);
    let mut event = [0];
    let end = soon("an end", program.read(&mut event)).await;
    assert_eq!(end.unwrap_or_default(), 0);
    let closed = members.relay.reaches("closed_total", "active_refused", 1);
    closed.await;
    assert_eq!(members.relay.metric("closed_total", "active_away"), 0);
    members.stopped().await;
}

#[tokio::test]
async fn client_of_the_api_comes_with_its_own_address() {
    let mut members = Members::start((1, 1), None, ReqLimits::default());
    members.is_active(1);
    let mut client = TcpStream::connect(members.api).await.expect("open");
    let address = client.local_addr().expect("an address");
    client.write_all(b"GET").await.expect("written");
    let mut call = soon("a call", members.calls.next()).await;
    assert_eq!(call.peer(), RelayedPeer::Address(address));
    let mut asked = [0; 3];
    soon("the call", call.read_exact(&mut asked))
        .await
        .expect("read");
    assert_eq!(&asked, b"GET");
    call.write_all(b"200").await.expect("written");
    call.shutdown().await.expect("closed");
    drop(call);
    let mut answer = Vec::new();
    soon("an answer", client.read_to_end(&mut answer))
        .await
        .expect("read");
    assert_eq!(answer, b"200");
    members.stopped().await;
}

/// Others find the part of the slots taken that is not for networks of minions.
#[tokio::test]
async fn relay_keeps_slots_for_the_networks_that_the_active_member_knows() {
    let members = Members::start((1, 1), None, ReqLimits::default());
    members.known.remember([127, 0, 0, 9].into());
    let to = members.requests[0];
    let counted = |name| members.relay.metric(name, "request");
    let mut strangers = Vec::new();
    // They say nothing, so they stay.
    members.is_active(1);
    for _ in 0..56 {
        strangers.push(TcpStream::connect(to).await.expect("open"));
    }
    members.relay.reaches("accepted_total", "request", 56).await;
    let admitted = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        for tries in 57.. {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(([127, 0, 0, 9], 0).into()).expect("bound");
            let _minion = socket.connect(to).await.expect("open");
            while counted("accepted_total") + counted("refused_total") < tries {
                pace.tick().await;
            }
            if counted("accepted_total") > 56 {
                return;
            }
            pace.tick().await;
        }
    };
    soon("a minion to be admitted", admitted).await;
    let refused = members.relay.metric("refused_total", "reserved");
    drop(TcpStream::connect(to).await.expect("open"));
    members
        .relay
        .reaches("refused_total", "reserved", refused + 1)
        .await;
    assert_eq!(strangers.len(), 56);
    members.stopped().await;
}

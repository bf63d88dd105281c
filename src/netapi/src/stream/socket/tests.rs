use axum::Router;
use axum::extract::Request;
use saltern_base::metrics::Registry;
use saltern_http::{HttpLimits, HttpMetrics, HttpServer};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;
use tungstenite::client::IntoClientRequest;

use super::super::tests::{Bench, at, bench, events};
use super::*;

/// Timeout of what should happen at once.
const SOON: Duration = Duration::from_secs(120);

type Client = WebSocketStream<TcpStream>;

/// How the server is asked.
#[derive(Clone, Copy, Default)]
struct Asked {
    token: Option<&'static str>,
    is_foreign: bool,
    is_formatted: bool,
}

/// A server whose every path is a websocket of the bench.
struct Served {
    bench: Bench,
    address: std::net::SocketAddr,
    _stop: tokio_util::sync::DropGuard,
}

fn serve(bench: Bench, asked: Asked) -> Served {
    let streams = bench.streams.clone();
    let router = Router::new().fallback(move |request: Request| async move {
        let (mut parts, _) = request.into_parts();
        let request = SocketRequest {
            token: asked.token,
            is_foreign: asked.is_foreign,
            is_formatted: asked.is_formatted,
            when_ready: None,
        };
        streams.serve_socket(&mut parts, request).await
    });
    let meters = HttpMetrics::new(&Registry::new()).of("test");
    let loopback = ([127, 0, 0, 1], 0).into();
    let server = HttpServer::bind(loopback, None, HttpLimits::default(), router, meters).unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    tokio::spawn(server.serve(stop.clone()));
    Served {
        bench,
        address,
        _stop: stop.drop_guard(),
    }
}

impl Served {
    /// An open websocket, or the status of the refusal.
    async fn open(&self, path: &str, list: &[(&'static str, &str)]) -> Result<Client, u16> {
        let mut request = format!("ws://here{path}").into_client_request().unwrap();
        for (name, value) in list {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((client, _)) => Ok(client),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn ready(&self) -> Client {
        let mut client = self.open("/ws", LOGGED_IN).await.expect("logged in");
        say(&mut client, "websocket client ready").await;
        client
    }
}

const LOGGED_IN: &[(&str, &str)] = &[("x-auth-token", "abc")];

async fn say(client: &mut Client, text: &'static str) {
    client.send(Message::text(text)).await.unwrap();
}

async fn next(client: &mut Client) -> Message {
    let next = timeout(SOON, client.next()).await.expect("soon");
    next.expect("open").expect("a message")
}

async fn text(client: &mut Client) -> String {
    next(client).await.into_text().unwrap().to_string()
}

#[tokio::test]
async fn cherrypy_answers_each_message_and_sends_events_once_the_client_is_ready() {
    let gap = StreamItem::Gap {
        missed: Some(3),
        at: at(9),
    };
    let served = serve(bench([events(&["a/b", "c/d"]), gap]), Asked::default());
    let mut client = served.open("/ws", LOGGED_IN).await.expect("logged in");
    say(&mut client, "hello").await;
    assert_eq!(text(&mut client).await, RECEIVED);
    for _ in 0..2 {
        say(&mut client, "websocket client ready").await;
    }
    let mut texts = Vec::new();
    for _ in 0..5 {
        texts.push(text(&mut client).await);
    }
    // Each of the two may be heard before an event is sent.
    texts.retain(|text| text != RECEIVED);
    let expected = [
        "data: {\"data\": {\"n\": 1}, \"tag\": \"a/b\"}\n\n",
        "data: {\"data\": {\"n\": 1}, \"tag\": \"c/d\"}\n\n",
        "data: {\"data\": {\"dropped\": 3}, \"tag\": \"saltern/bus/gap\"}\n\n",
    ];
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn tornado_sends_plain_json_and_answers_nothing() {
    let mut bench = bench([events(&["a/b"])]);
    bench.streams.dialect = Dialect::Tornado;
    let served = serve(bench, Asked::default());
    let mut client = served.ready().await;
    let expected = "{\"data\": {\"n\": 1}, \"tag\": \"a/b\"}";
    assert_eq!(text(&mut client).await, expected);
    client.send(Message::Ping(Vec::new().into())).await.unwrap();
    assert!(next(&mut client).await.is_pong());
}

#[tokio::test]
async fn events_are_filtered_and_formatted() {
    let served = serve(bench([events(&["a/1", "b/1"])]), Asked::default());
    let path = "/ws?tag=b/*&other=1";
    let mut client = served.open(path, LOGGED_IN).await.expect("logged in");
    say(&mut client, "websocket client ready").await;
    assert_eq!(text(&mut client).await, RECEIVED);
    assert!(text(&mut client).await.contains("b/1"));

    let asked = Asked {
        is_formatted: true,
        ..Asked::default()
    };
    let served = serve(bench([events(&["a/1", "salt/presence/present"])]), asked);
    let mut client = served.ready().await;
    assert_eq!(text(&mut client).await, RECEIVED);
    // Neither of them has what a formatted message is made of.
    client.send(Message::Ping(Vec::new().into())).await.unwrap();
    assert!(next(&mut client).await.is_pong());
}

#[tokio::test]
async fn messages_bear_positions_where_asked_and_streams_begin_behind_one() {
    let gap = || StreamItem::Gap {
        missed: Some(3),
        at: at(9),
    };
    let (first, behind) = (at(1), at(9));
    let of_cherrypy = [
        format!("data: {{\"data\": {{\"n\": 1}}, \"tag\": \"a/b\"}}\nid: {first}\n\n"),
        format!(
            "data: {{\"data\": {{\"dropped\": 3}}, \"tag\": \"saltern/bus/gap\"}}\nid: {behind}\n\n"
        ),
    ];
    let of_tornado = [
        format!("{{\"data\": {{\"n\": 1}}, \"tag\": \"a/b\", \"id\": \"{first}\"}}"),
        format!(
            "{{\"data\": {{\"dropped\": 3}}, \"tag\": \"saltern/bus/gap\", \"id\": \"{behind}\"}}"
        ),
    ];
    for (dialect, expected) in [
        (Dialect::Cherrypy, of_cherrypy),
        (Dialect::Tornado, of_tornado),
    ] {
        for (path, after) in [
            ("/ws?last_event_id=000000ab-7", Some(at(7))),
            ("/ws?last_event_id=", None),
        ] {
            let mut bench = bench([events(&["a/b"]), gap()]);
            bench.streams.dialect = dialect;
            let served = serve(bench, Asked::default());
            let mut client = served.open(path, LOGGED_IN).await.expect("logged in");
            say(&mut client, "websocket client ready").await;
            let mut texts = Vec::new();
            while texts.len() < expected.len() {
                let text = text(&mut client).await;
                texts.extend((text != RECEIVED).then_some(text));
            }
            assert_eq!(texts, expected);
            assert_eq!(served.bench.asked.lock().0, after, "{path}");
        }
    }
}

#[tokio::test]
async fn wrong_position_and_one_for_formatted_events_are_refused() {
    let formatted = Asked {
        is_formatted: true,
        ..Asked::default()
    };
    for (asked, path) in [
        (Asked::default(), "/ws?last_event_id=7"),
        (formatted, "/ws?last_event_id=000000ab-7"),
        (formatted, "/ws?last_event_id"),
    ] {
        let served = serve(bench([]), asked);
        let refused = served.open(path, LOGGED_IN).await.err();
        assert_eq!(refused, Some(400), "{path}");
    }
}

#[tokio::test]
async fn websocket_is_refused_by_session_origin_and_form() {
    let of_path = |token| Asked {
        token: Some(token),
        ..Asked::default()
    };
    let foreign = Asked {
        is_foreign: true,
        ..Asked::default()
    };
    let cookie: &[_] = &[("cookie", "session_id=abc")];
    for (asked, list, expected) in [
        (Asked::default(), &[][..], Some(401)),
        (Asked::default(), &[("x-auth-token", "other")], Some(401)),
        (Asked::default(), cookie, None),
        (of_path("abc"), &[], None),
        // What stands in the path counts alone.
        (of_path("other"), LOGGED_IN, Some(401)),
        (foreign, cookie, Some(403)),
    ] {
        let served = serve(bench([]), asked);
        let refused = served.open("/ws", list).await.err();
        assert_eq!(refused, expected, "{:?} {list:?}", asked.token);
    }
    for (dialect, expected) in [(Dialect::Cherrypy, 426), (Dialect::Tornado, 400)] {
        let mut bench = bench([]);
        bench.streams.dialect = dialect;
        let request = Request::get("/ws").header("x-auth-token", "abc");
        let (mut parts, _) = request.body(()).unwrap().into_parts();
        let asked = SocketRequest {
            token: None,
            is_foreign: false,
            is_formatted: false,
            when_ready: None,
        };
        let response = bench.streams.serve_socket(&mut parts, asked).await;
        assert_eq!(response.status().as_u16(), expected, "{dialect:?}");
    }
}

#[tokio::test]
async fn websocket_ends_with_session_and_master_and_says_why() {
    let slow = StreamItem::Closed(CloseReason::Slow);
    let nothing = (|_: &Bench| {}) as fn(&Bench);
    for (items, end, code, reason) in [
        (vec![slow], nothing, CloseCode::Again, "slow"),
        (
            vec![],
            |bench| bench.ended.cancel(),
            CloseCode::Policy,
            "session_ended",
        ),
        (
            vec![],
            |bench| bench.streams.stop.cancel(),
            CloseCode::Away,
            "stopping",
        ),
    ] {
        let served = serve(bench(items), Asked::default());
        let mut client = served.ready().await;
        assert_eq!(text(&mut client).await, RECEIVED);
        assert_eq!(served.bench.streams.metrics.open.get(), 1);
        end(&served.bench);
        let Message::Close(Some(frame)) = next(&mut client).await else {
            panic!("no close frame for {reason}");
        };
        assert_eq!((frame.code, frame.reason.as_str()), (code, reason));
        while timeout(SOON, client.next()).await.expect("soon").is_some() {}
        let metrics = &served.bench.streams.metrics;
        while metrics.open.get() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(metrics.closed.with_label_values(&[reason]).get(), 1);
    }
}

#[tokio::test]
async fn websocket_that_its_client_closes_gives_its_permit_back() {
    let served = serve(bench([]), Asked::default());
    let (mut one, _other) = (served.ready().await, served.ready().await);
    assert_eq!(served.open("/ws", LOGGED_IN).await.err(), Some(503));
    one.close(None).await.unwrap();
    while timeout(SOON, one.next()).await.expect("soon").is_some() {}
    while served.bench.streams.permits.available_permits() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(served.open("/ws", LOGGED_IN).await.is_ok());
}

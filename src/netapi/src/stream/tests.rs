use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use saltern_base::blocking::BlockingError;
use saltern_base::metrics::Registry;
use saltern_config::yaml;

use super::*;

/// Gives the items of a list, then nothing.
struct Items(Arc<Mutex<(Option<Position>, VecDeque<StreamItem>)>>);

struct ItemsStream(VecDeque<StreamItem>);

impl EventSource for Items {
    fn subscribe(self: Arc<Self>, after: Option<Position>) -> Box<dyn EventStream> {
        let mut shared = self.0.lock();
        shared.0 = after;
        Box::new(ItemsStream(shared.1.clone()))
    }
}

impl EventStream for ItemsStream {
    fn next(&mut self) -> BoxFuture<'_, StreamItem> {
        Box::pin(async move {
            match self.0.pop_front() {
                Some(item) => item,
                None => std::future::pending().await,
            }
        })
    }
}

/// One session, of the token `abc`.
struct OneSession(CancellationToken);

impl Sessions for OneSession {
    fn find<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<LoggedIn>, UncheckedToken>> {
        if token == "unknown" {
            return Box::pin(std::future::ready(Err(BlockingError::Ended.into())));
        }
        let session = (token == "abc").then(|| LoggedIn {
            user: "fred".to_owned(),
            ended: self.0.clone(),
        });
        Box::pin(std::future::ready(Ok(session)))
    }
}

pub(super) struct Bench {
    pub(super) streams: Streams,
    pub(super) ended: CancellationToken,
    pub(super) asked: Arc<Mutex<(Option<Position>, VecDeque<StreamItem>)>>,
}

const HISTORY: u32 = 0xab;

pub(super) fn at(number: i64) -> Position {
    Position {
        history: HISTORY,
        number,
    }
}

/// Events 1, 2, … with these tags.
pub(super) fn events(tags: &[&str]) -> StreamItem {
    let events = (1..).zip(tags).map(|(number, tag)| BusEvent {
        number,
        tag: (*tag).to_owned(),
        data: Bytes::from_static(b"\x81\xa1n\x01"),
    });
    StreamItem::Events {
        batch: Arc::new(EventBatch::new(HISTORY, events.collect())),
        range: 0..tags.len(),
    }
}

pub(super) fn bench(items: impl IntoIterator<Item = StreamItem>) -> Bench {
    let asked = Arc::new(Mutex::new((None, items.into_iter().collect())));
    let ended = CancellationToken::new();
    let streams = Streams {
        source: Arc::new(Items(asked.clone())),
        sessions: Arc::new(OneSession(ended.clone())),
        acl: Arc::default(),
        permits: Arc::new(Semaphore::new(2)),
        stop: CancellationToken::new(),
        dialect: Dialect::Cherrypy,
        metrics: StreamMetrics::new(&Registry::new()),
    };
    Bench {
        streams,
        ended,
        asked,
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = list.iter();
    let pairs = pairs.map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()));
    pairs.collect()
}

const LOGGED_IN: &[(&str, &str)] = &[("x-auth-token", "abc")];

impl Bench {
    async fn get(&self, query: &str, list: &[(&'static str, &str)]) -> Response {
        let query = (!query.is_empty()).then(|| query.to_owned());
        sse::events(State(self.streams.clone()), RawQuery(query), headers(list)).await
    }

    /// Text of a stream until it waits or ends.
    async fn text(&self, query: &str, list: &[(&'static str, &str)]) -> String {
        let mut body = self.get(query, list).await.into_body();
        let mut text = Vec::new();
        let pause = Duration::from_secs(1);
        while let Ok(Some(frame)) = tokio::time::timeout(pause, body.frame()).await {
            text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        String::from_utf8(text).unwrap()
    }
}

fn tags(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter_map(|line| line.strip_prefix("tag: "))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn events_are_blocks_of_stock_with_an_id_behind_them() {
    let bench = bench([events(&["a/b", "c\rdata: x"])]);
    let expected = "retry: 400\n\
         tag: a/b\ndata: {\"data\": {\"n\": 1}, \"tag\": \"a/b\"}\nid: 000000ab-1\n\n\
         tag: c data: x\ndata: {\"data\": {\"n\": 1}, \"tag\": \"c\\rdata: x\"}\nid: 000000ab-2\n\n";
    assert_eq!(bench.text("", LOGGED_IN).await, expected);
}

#[tokio::test(start_paused = true)]
async fn stream_is_refused_by_session_query_and_position() {
    let cookie = ("cookie", "x=1; session_id=abc");
    for (query, list, dialect, expected) in [
        ("", &[][..], Dialect::Cherrypy, 401),
        ("", &[], Dialect::Tornado, 302),
        ("", &[("x-auth-token", "other")], Dialect::Cherrypy, 401),
        ("", &[cookie], Dialect::Cherrypy, 200),
        ("token=abc", LOGGED_IN, Dialect::Cherrypy, 400),
        ("tag=a&x", LOGGED_IN, Dialect::Cherrypy, 400),
        ("token=abc", LOGGED_IN, Dialect::Tornado, 200),
        ("tag=a*", LOGGED_IN, Dialect::Cherrypy, 200),
        (
            "",
            &[cookie, ("last-event-id", "7")],
            Dialect::Cherrypy,
            400,
        ),
        ("", &[cookie, ("last-event-id", "")], Dialect::Cherrypy, 200),
    ] {
        let mut bench = bench([]);
        bench.streams.dialect = dialect;
        let status = bench.get(query, list).await.status().as_u16();
        assert_eq!(status, expected, "{query} {list:?} {dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn last_event_id_is_the_position_of_the_subscription() {
    let bench = bench([]);
    let list = [LOGGED_IN[0], ("last-event-id", "000000ab-7")];
    assert_eq!(bench.get("", &list).await.status(), StatusCode::OK);
    assert_eq!(bench.asked.lock().0, Some(at(7)));
}

#[tokio::test(start_paused = true)]
async fn tags_are_filtered_by_query_and_rules_but_gaps_are_shown() {
    let gap = StreamItem::Gap {
        missed: Some(3),
        at: at(9),
    };
    let bench = bench([events(&["a/1", "b/1", "b/2", "a/2", "c/1"]), gap]);
    let shown = bench.text("tag=a%2F*&tag=c/*", LOGGED_IN).await;
    assert_eq!(tags(&shown), ["a/1", "a/2", "c/1", "saltern/bus/gap"]);
    assert!(shown.contains("{\"dropped\": 3}"), "{shown}");
    assert!(shown.ends_with("id: 000000ab-9\n\n"), "{shown}");
    for (rules, expected) in [
        ("{fred: ['b/*']}", vec!["b/1", "b/2"]),
        ("{'*': ['c/*'], ann: ['*']}", vec!["c/1"]),
        ("{ann: ['*']}", vec![]),
        ("{'*': ['*'], fred: []}", vec![]),
    ] {
        let node = yaml::parse(rules, "test", &yaml::Limits::DEFAULT).unwrap();
        bench.streams.acl.follow(Some(&node)).unwrap();
        let shown = bench.text("", LOGGED_IN).await;
        let mut expected = expected;
        expected.push("saltern/bus/gap");
        assert_eq!(tags(&shown), expected, "{rules}");
    }
    bench.streams.acl.follow(None).unwrap();
    assert_eq!(tags(&bench.text("", LOGGED_IN).await).len(), 6);
}

#[tokio::test(start_paused = true)]
async fn silent_stream_gets_comments() {
    let bench = bench([]);
    let mut body = bench.get("", LOGGED_IN).await.into_body();
    let began = tokio::time::Instant::now();
    let mut frames = Vec::new();
    for _ in 0..3 {
        frames.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert_eq!(frames, ["retry: 400\n", ":\n\n", ":\n\n"]);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn stream_ends_with_session_and_master_and_says_why() {
    for (end, reason) in [
        (
            (|bench: &Bench| bench.ended.cancel()) as fn(&Bench),
            "session_ended",
        ),
        (|bench| bench.streams.stop.cancel(), "stopping"),
    ] {
        let bench = bench([]);
        let mut body = bench.get("", LOGGED_IN).await.into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(bench.streams.metrics.open.get(), 1);
        end(&bench);
        let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let last = String::from_utf8(last.to_vec()).unwrap();
        assert!(
            last.contains(&format!("{{\"reason\": \"{reason}\"}}")),
            "{last}"
        );
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(bench.streams.metrics.open.get(), 0);
        let closed = &bench.streams.metrics.closed;
        assert_eq!(closed.with_label_values(&[reason]).get(), 1);
    }
}

#[tokio::test]
async fn token_that_cannot_be_checked_is_not_refused() {
    let refused = bench([]).get("", &[("x-auth-token", "unknown")]).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
}

#[tokio::test(start_paused = true)]
async fn streams_beyond_the_permits_are_told_to_retry() {
    let bench = bench([]);
    let open = (
        bench.get("", LOGGED_IN).await,
        bench.get("", LOGGED_IN).await,
    );
    let refused = bench.get("", LOGGED_IN).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    drop(open);
    assert_eq!(bench.get("", LOGGED_IN).await.status(), StatusCode::OK);
}

//! Connections whose peer always has more to read, so that they use up the budget of each of their
//! turns: they have their deadlines all the same.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::routing::get;
use prometheus::Registry;
use tokio::io::ReadBuf;
use tokio::task::coop::poll_proceed;

use super::super::connection_slots::ConnectionSlots;
use super::super::metrics::HttpMetrics;
use super::super::request_info::RequestIds;
use super::*;

/// Turns of a connection after which a deadline that is over has ended it.
const TURNS: usize = 20;

/// Frames between two requests: fewer than a turn may read.
const BETWEEN: usize = 60;

/// The type of frames that RFC 9113 knows nothing of, which are ignored.
const UNKNOWN: u8 = 0xfe;

/// An HTTP/2 peer that always has one more frame, and takes all that is sent to it.
struct Flood {
    bytes: VecDeque<u8>,
    frames: usize,
    /// The streams of further requests, among the other frames.
    streams: Option<std::iter::StepBy<std::ops::RangeFrom<u16>>>,
}

impl Flood {
    /// Only frames of an unknown type.
    fn of_frames() -> Self {
        let mut flood = Self {
            bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                .iter()
                .copied()
                .collect(),
            frames: 0,
            streams: None,
        };
        flood.frame(0x4, 0, 0, &[]);
        flood
    }

    /// A response that it gives no room, and requests of others.
    fn of_requests() -> Self {
        let mut flood = Self::of_frames();
        flood.request(1, b"/large");
        flood.streams = Some((3..).step_by(2));
        flood
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u16, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short one");
        let [_, length @ ..] = length.to_be_bytes();
        let [high, low] = stream.to_be_bytes();
        let head = [kind, flags, 0, 0, high, low];
        self.bytes.extend(length.into_iter().chain(head));
        self.bytes.extend(payload);
        self.frames += 1;
    }

    /// HEADERS with END_STREAM and END_HEADERS; in RFC 7541's static table `:method: GET`,
    /// `:scheme: http`, and the names of path and authority.
    fn request(&mut self, stream: u16, path: &[u8]) {
        let length = u8::try_from(path.len()).expect("a short one");
        let block = [&[0x82, 0x86, 0x04, length], path, b"\x01\x04here"].concat();
        self.frame(0x1, 0x5, stream, &block);
    }
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // As a socket does.
        ready!(poll_proceed(cx)).made_progress();
        if self.bytes.is_empty() {
            let is_due = self.frames.is_multiple_of(BETWEEN);
            match self.streams.as_mut().filter(|_| is_due).map(Iterator::next) {
                Some(stream) => self.request(stream.expect("one more"), b"/"),
                None => self.frame(UNKNOWN, 0, 0, &[0; 1 << 10]),
            }
        }
        let count = buffer.remaining().min(self.bytes.len());
        let bytes: Vec<u8> = self.bytes.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn connections(limits: HttpLimits, registry: &Registry) -> Arc<Connections> {
    let (tasks, stop, cut) = (
        TaskTracker::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let executor = TrackedExecutor {
        tasks: tasks.clone(),
        cut: cut.clone(),
    };
    let router = axum::Router::new()
        .route("/large", get(async || vec![b'x'; 1 << 20]))
        .route("/", get(async || hyper::StatusCode::NO_CONTENT));
    Arc::new(Connections {
        answering: Arc::new(Answering {
            limits,
            router,
            meters: HttpMetrics::new(registry).of("test"),
            ids: RequestIds::new(),
            requests: Arc::new(Semaphore::new(limits.requests)),
            stop: stop.clone(),
        }),
        certificates: None,
        builder: builder(&limits, executor),
        lingering: Arc::new(Semaphore::new(limits.connections)),
        handshake: tokio::sync::Mutex::default(),
        stop,
        cut,
        tasks,
    })
}

fn value(registry: &Registry, name: &str, label: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let metrics = family.into_iter().flat_map(|family| family.get_metric());
    let labelled =
        metrics.filter(|metric| metric.get_label().iter().any(|pair| pair.value() == label));
    labelled
        .map(|metric| metric.get_counter().get_value())
        .sum()
}

#[tokio::test(start_paused = true)]
async fn peer_that_sends_without_end_is_cut_off_at_its_deadline() {
    let limits = HttpLimits::default();
    for (flood, time) in [
        (Flood::of_frames(), limits.head_time),
        // A refusal has a moment more than its exchange.
        (
            Flood::of_requests(),
            limits.exchange_time + Duration::from_secs(5),
        ),
    ] {
        let registry = Registry::new();
        let connections = connections(limits, &registry);
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        let slot = ConnectionSlots::new(&limits).take(peer.ip());
        let slot = slot.map_err(|_| ()).expect("a slot");
        let running = tokio::spawn(connections.run(flood, peer, slot));
        let turns = async || {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        };
        turns().await;
        assert!(!running.is_finished());
        tokio::time::advance(time).await;
        turns().await;
        assert!(running.is_finished(), "after {time:?}");
        let refused = value(&registry, "saltern_http_refused_total", "timeout");
        assert_eq!(refused, 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_that_has_moved_before_a_late_turn_is_not_over() {
    let limits = HttpLimits::default();
    let activity = Activity::new(limits);
    let last = Instant::now() + limits.exchange_time * 2;
    let _exchange = activity.begin(last, false);
    activity.set_blocked(true);
    let mut over = pin!(over(&activity, None));
    let began = Instant::now();
    assert!(futures_util::poll!(over.as_mut()).is_pending());
    tokio::time::advance(limits.exchange_time).await;
    activity.set_blocked(false);
    assert!(futures_util::poll!(over.as_mut()).is_pending());
    assert_eq!(over.await, Due::Cut);
    assert_eq!(began.elapsed(), limits.exchange_time * 2);
}

//! Activity of one connection, and its deadlines.
//!
//! The parts of a connection (its stream, its requests, the bodies of its responses) report here;
//! the task of the connection asks for the next deadline. Nothing here reads a socket.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::head_watch::HeadWatch;
use super::limits::HttpLimits;
use super::metrics::Open;

/// Consequence of a passed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The connection is cut off, and counted.
    Cut,
    /// The connection is idle: it is closed in order.
    Idle,
}

/// The state of one connection, shared by its parts.
pub(super) struct Activity {
    limits: HttpLimits,
    state: Mutex<State>,
    /// Notified when the next deadline may be an earlier one.
    changed: Notify,
}

struct State {
    /// Deadlines of the requests whose response has not ended.
    exchanges: HashMap<u64, Instant>,
    next: u64,
    streams: usize,
    /// Whether there was a request.
    is_used: bool,
    is_http2: bool,
    idle_since: Instant,
    /// Arrival of the first bytes since the connection is idle.
    head_since: Option<Instant>,
    /// Since when the peer takes nothing of what is to be sent.
    blocked_since: Option<Instant>,
    upgraded: Option<Open>,
    heads: HeadWatch,
}

impl Activity {
    pub(super) fn new(limits: HttpLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::new(State {
                exchanges: HashMap::new(),
                next: 0,
                streams: 0,
                is_used: false,
                is_http2: false,
                idle_since: Instant::now(),
                head_since: None,
                blocked_since: None,
                upgraded: None,
                heads: HeadWatch::default(),
            }),
            changed: Notify::new(),
        })
    }

    /// Begins a request, whose response has to end before `deadline`.
    pub(super) fn begin(self: &Arc<Self>, deadline: Instant, is_http2: bool) -> Exchange {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.exchanges.insert(id, deadline);
        state.is_used = true;
        state.is_http2 = is_http2;
        state.head_since = None;
        let is_ambiguous = state.heads.take() && !is_http2;
        drop(state);
        self.changed.notify_one();
        Exchange {
            activity: Arc::clone(self),
            id,
            is_stream: false,
            is_ambiguous,
        }
    }

    /// These bytes arrived.
    pub(super) fn arrived(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        match state.is_idle() {
            true => state.heads.see(bytes),
            false => state.heads.lose(),
        }
        if state.is_idle() && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Whether the peer takes what is to be sent.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        let mut state = self.state.lock();
        if is_blocked == state.blocked_since.is_some() {
            return;
        }
        state.blocked_since = is_blocked.then(Instant::now);
        drop(state);
        self.changed.notify_one();
    }

    /// The connection leaves HTTP; it is counted by `open` until its end.
    pub(super) fn upgrade(&self, open: Open) {
        self.state.lock().upgraded = Some(open);
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.state.lock().upgraded.is_some()
    }

    /// Whether a response is under way that is no long stream, or its last bytes are.
    pub(super) fn is_answering(&self) -> bool {
        let state = self.state.lock();
        !state.exchanges.is_empty() || (state.streams == 0 && state.blocked_since.is_some())
    }

    /// Whether the peer began something that is not complete, or nothing yet.
    pub(super) fn is_incomplete(&self) -> bool {
        let state = self.state.lock();
        !state.is_used || !state.exchanges.is_empty() || state.head_since.is_some()
    }

    /// When the last request ended.
    pub(super) fn idle_since(&self) -> Instant {
        self.state.lock().idle_since
    }

    /// Waits until the next deadline may have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The next deadline, and what it is.
    pub(super) fn deadline(&self) -> Option<(Instant, Due)> {
        let state = self.state.lock();
        let limits = &self.limits;
        let blocked = state
            .blocked_since
            .map(|since| since + limits.exchange_time);
        let exchange = state.exchanges.values().min().copied();
        let cut = blocked.into_iter().chain(exchange).min();
        let is_idle = state.is_idle() && state.upgraded.is_none();
        let idle = is_idle.then(|| match state.head_since {
            _ if !state.is_used => (state.idle_since + limits.head_time, Due::Cut),
            // Between two requests HTTP/2 has frames that are no request.
            Some(since) if !state.is_http2 => (since + limits.head_time, Due::Cut),
            _ => (state.idle_since + limits.idle_time, Due::Idle),
        });
        let cut = cut.map(|at| (at, Due::Cut));
        cut.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.streams == 0
    }
}

/// One request of a connection, until its response has ended.
pub(super) struct Exchange {
    activity: Arc<Activity>,
    id: u64,
    is_stream: bool,
    is_ambiguous: bool,
}

impl Exchange {
    /// Takes the deadline off: the response is a long stream.
    pub(super) fn set_stream(&mut self) {
        let mut state = self.activity.state.lock();
        if state.exchanges.remove(&self.id).is_some() {
            state.streams += 1;
            self.is_stream = true;
        }
        drop(state);
        self.activity.changed.notify_one();
    }

    /// Whether its head was seen to have a length and a coding.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        match self.is_stream {
            true => state.streams -= 1,
            false => {
                state.exchanges.remove(&self.id);
            }
        }
        if state.is_idle() {
            state.idle_since = Instant::now();
        }
        drop(state);
        self.activity.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(activity: &Activity) -> Option<(Duration, Due)> {
        let (at, due) = activity.deadline()?;
        Some((at.duration_since(Instant::now()), due))
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_of_a_connection_has_its_deadline() {
        let limits = HttpLimits::default();
        let activity = Activity::new(limits);
        assert_eq!(after(&activity), Some((limits.head_time, Due::Cut)), "new");
        let deadline = Instant::now() + limits.exchange_time;
        let mut exchange = activity.begin(deadline, false);
        assert_eq!(after(&activity), Some((limits.exchange_time, Due::Cut)));
        exchange.set_stream();
        assert_eq!(after(&activity), None, "a long stream");
        activity.set_blocked(true);
        assert_eq!(after(&activity), Some((limits.exchange_time, Due::Cut)));
        activity.set_blocked(false);
        drop(exchange);
        assert_eq!(after(&activity), Some((limits.idle_time, Due::Idle)));
        activity.arrived(b"x");
        assert_eq!(after(&activity), Some((limits.head_time, Due::Cut)), "head");
        drop(activity.begin(deadline, true));
        activity.arrived(b"x");
        assert_eq!(after(&activity), Some((limits.idle_time, Due::Idle)), "h2");
    }
}

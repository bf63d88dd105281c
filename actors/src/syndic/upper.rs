//! State of one master above; shared by its uplink, the outboxes and the control socket.
//! Outlives the actors.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::metrics::IntCounter;
use saltern_channel::{Channel, ChannelObserver};
use saltern_config::UpperMaster;
use saltern_model::Jid;
use saltern_store::{EarlyJobs, StoreError};
use saltern_wire::msgpack::{Dialect, Value, encode};
use saltern_wire::port::Transport;
use tokio::sync::Notify;

/// Channel to a master above.
pub(crate) type UpperChannel = Arc<Channel<UpperObserver>>;

/// Counters of the channels to one master above.
pub(crate) struct UpperObserver {
    /// Connections without TLS.
    pub(crate) tls_failures: IntCounter,
}

impl ChannelObserver for UpperObserver {
    fn signed_in(&self, _took: Duration, _is_accepted: bool) {}
    fn session_lost(&self) {}
    fn failed(&self) {}

    fn tls_failed(&self) {
        self.tls_failures.inc();
    }
}

/// Allowance for the names of fields, the signature and the encryption of a request, in bytes.
const MAX_ENVELOPE: usize = 4 << 10;

/// Largest message that stock's listeners of websockets take (`max_msg_size` of aiohttp); they close the
/// connection of a larger one.
const MAX_WEBSOCKET: usize = 4 << 20;

/// About how many bytes a request has with these fields.
pub(crate) fn request_size(fields: &[(&'static str, Value)]) -> usize {
    let bytes = fields.iter().map(|(_, value)| encode(value, Dialect::Bin));
    MAX_ENVELOPE + bytes.map(|bytes| bytes.len()).sum::<usize>()
}

/// Whether a request is larger than the master takes by the transport of this channel. One of ours takes
/// what it takes by any.
pub(crate) fn is_too_large(channel: &UpperChannel, fields: &[(&'static str, Value)]) -> bool {
    let is_of_ours = || channel.session().is_some_and(|known| known.is_of_ours());
    channel.route().transport == Transport::WebSocket
        && request_size(fields) > MAX_WEBSOCKET
        && !is_of_ours()
}

/// A master above.
pub(crate) struct Upper {
    pub(crate) master: UpperMaster,
    state: Mutex<State>,
    /// Notified when a connection stands, or a job is returned once more.
    connected: Vec<Arc<Notify>>,
    /// Jobs that minions had returned before they were published here, for the next attempt of the outbox.
    pub(crate) early: EarlyJobs,
}

#[derive(Default)]
struct State {
    channel: Option<UpperChannel>,
    /// When the connection was made or cut last, in microseconds since 1970.
    since: Option<i64>,
    /// Why there is no connection.
    problem: Option<String>,
    /// A salt-syndic beside this master serves it.
    stands_by: bool,
}

/// Standing of a connection, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpperStanding {
    pub(crate) is_connected: bool,
    pub(crate) since: Option<i64>,
    pub(crate) problem: Option<String>,
}

impl Upper {
    /// A master above that is not connected; `connected` are notified when it is.
    pub(crate) fn new(master: UpperMaster, connected: Vec<Arc<Notify>>, early: EarlyJobs) -> Self {
        Self {
            master,
            state: Mutex::default(),
            connected,
            early,
        }
    }

    /// This master has published a job that minions had returned before. `false` where too many of them wait: its
    /// outbox does not go back for this one.
    ///
    /// # Errors
    /// The job cannot be written down: a process that is killed before the outbox went back forgets it.
    pub(crate) fn returned_early(&self, jid: &Jid) -> Result<bool, StoreError> {
        let has_room = self.early.end(jid, true);
        for waiting in &self.connected {
            waiting.notify_one();
        }
        has_room
    }

    /// The name of the master.
    pub(crate) fn name(&self) -> &str {
        &self.master.name
    }

    /// The channel, while it is connected and knows this master as a syndic.
    pub(crate) fn channel(&self) -> Option<UpperChannel> {
        self.state.lock().channel.clone()
    }

    /// The connection stands.
    pub(crate) fn connect(&self, channel: UpperChannel, now: i64) {
        *self.state.lock() = State {
            channel: Some(channel),
            since: Some(now),
            problem: None,
            stands_by: false,
        };
        for waiting in &self.connected {
            waiting.notify_one();
        }
    }

    /// Whether a salt-syndic beside this master brings up what there is.
    pub(crate) fn stand_by(&self, stands_by: bool) {
        self.state.lock().stands_by = stands_by;
    }

    /// Whether that is so.
    pub(crate) fn stands_by(&self) -> bool {
        self.state.lock().stands_by
    }

    /// The connection is gone, or could not be made.
    pub(crate) fn cut(&self, problem: String, now: i64) {
        let mut state = self.state.lock();
        if state.channel.take().is_some() || state.since.is_none() {
            state.since = Some(now);
        }
        state.problem = Some(problem);
    }

    /// Its standing.
    pub(crate) fn standing(&self) -> UpperStanding {
        let state = self.state.lock();
        UpperStanding {
            is_connected: state.channel.is_some(),
            since: state.since,
            problem: state.problem.clone(),
        }
    }
}

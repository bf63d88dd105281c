//! Actor of one master above: authenticates there as a minion, subscribes, has its publications
//! published here, and sends events up.
//!
//! Every publication must bear the signature of that master: the key that encrypts publications is
//! known to all its minions, and a job from above may do here whatever its user may. A job goes
//! through the same gate as that of a local client, with the key of the master's own user, as
//! stock's syndic publishes.
//!
//! While stock's `salt-syndic` runs beside this master, the uplink stands by: with both, each job
//! would run twice.
//!
//! Longer than 500 lines: what goes up by one channel shares its session.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Recipient, WrapFuture};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use saltern_base::blocking::{self, BlockingError};
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_channel::{
    Backoff, Channel, Identity, KeyError, MinionConfig, MinionKeys, PkiDir, RequestError,
    SignInError, asctime, between,
};
use saltern_model::Jid;
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_store::jobs::JobQueries;
use saltern_supervise::Child;
use saltern_wire::client::{ClientError as WireError, SubClient};
use saltern_wire::msgpack::{Limits, Value, decode};
use saltern_wire::port::TlsError;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::inventory::{Answered, InventorySender};
use super::metrics::SyndicMetrics;
use super::minions_below::ServicesBelow;
use super::routes::{JobOrigins, Origin};
use super::upper::{Upper, UpperChannel, UpperObserver, is_too_large};
use super::upward_events::UpwardEvents;
use super::upward_verdicts::{SendBatch, UpwardVerdicts, Verdict, Waiting, requests};
use crate::messages::Accept;

/// Pause while salt-syndic runs beside this master, before it is looked for again.
const STAND_BY: Duration = Duration::from_secs(5);

/// Interval between two looks at whether the session could be renewed when it had to be, and at whether salt-syndic runs.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Publications of one master above that are being published here at the same time.
const MAX_UNDER_WAY: usize = 64;

/// Publications that take turns, whichever master above they come from.
const TURNS: usize = 64;

/// Dropped events, and verdicts whose jobs cannot be read, are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Interval between two looks at what has changed in the inventory.
const INVENTORY_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before verdicts are sent, so that they go together, and after a request without an answer.
const VERDICT_INTERVAL: Duration = Duration::from_secs(1);

/// The longest that events wait for others to go with them.
pub(crate) const MAX_GATHER: Duration = Duration::from_millis(20);

/// Seed of an uplink.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) upper: Arc<Upper>,
    pub(crate) identity: Arc<SyndicIdentity>,
    pub(crate) events: Arc<UpwardEvents>,
    pub(crate) verdicts: Arc<UpwardVerdicts>,
    pub(crate) services: Arc<Services>,
    /// Reader of this uplink's own.
    pub(crate) reader: Arc<dyn JobQueries>,
    pub(crate) router: Recipient<Accept>,
    pub(crate) metrics: SyndicMetrics,
    pub(crate) problems: Arc<LogThrottle>,
}

/// Identity of the syndic, which all uplinks share.
pub(crate) struct SyndicIdentity {
    config: Arc<MinionConfig>,
    /// Whether there are several masters above, each with a key of its own.
    has_several: bool,
    keys: OnceCell<Arc<MinionKeys>>,
    /// Each held while a job of its jids is looked for and published.
    turns: [tokio::sync::Mutex<()>; TURNS],
}

impl SyndicIdentity {
    /// The identity that the minion's configuration file says. Publications must be signed, and
    /// `syndic_finger` goes before `master_finger`.
    pub(crate) fn new(mut config: MinionConfig, has_several: bool) -> Self {
        config.sign_pub_messages = true;
        config.is_syndic = true;
        if !config.syndic_finger.is_empty() {
            config.master_finger = config.syndic_finger.clone();
        }
        Self {
            config: Arc::new(config),
            has_several,
            keys: OnceCell::new(),
            turns: [const { tokio::sync::Mutex::const_new(()) }; TURNS],
        }
    }

    /// The turn of a job's publication: none other of the same jid is looked for and published meanwhile.
    pub(super) fn turn_of(&self, jid: &Jid) -> &tokio::sync::Mutex<()> {
        let mut hasher = DefaultHasher::new();
        jid.hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
        &self.turns[turn]
    }

    /// The configuration of the syndic.
    pub(crate) fn config(&self) -> &MinionConfig {
        &self.config
    }

    /// The directory of keys, with the file for the key of this master above.
    fn pki(&self, upper: &str) -> Result<PkiDir, KeyError> {
        /// Stock's file, one for all masters above.
        const SHARED: &str = "syndic_master.pub";
        let pki = PkiDir::open(&self.config.pki_dir)?;
        Ok(match self.has_several {
            false => pki.with_master_key(SHARED.to_owned(), None),
            true => {
                let own = format!("syndic_master_{}.pub", file_name(upper));
                pki.with_master_key(own, Some(SHARED.to_owned()))
            }
        })
    }

    async fn keys(&self, pki: &PkiDir) -> Result<Arc<MinionKeys>, UplinkError> {
        let made = self.keys.get_or_try_init(|| async {
            let (pki, bits) = (pki.clone(), self.config.keysize);
            // Making a pair takes a good part of a second.
            let made = blocking::run(move || pki.keys(bits)).await;
            Ok(Arc::new(made.map_err(UplinkError::Thread)??))
        });
        made.await.cloned()
    }
}

/// A name as part of a file name.
pub(crate) fn file_name(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => file.push(byte.into()),
            _ => file.push_str(&format!("_{byte:02x}")),
        }
    }
    file
}

/// Why an uplink has no connection.
#[derive(Debug, thiserror::Error)]
enum UplinkError {
    /// The name of the master has no address.
    #[error("the master above has no address")]
    Address(#[source] Option<std::io::Error>),
    /// The syndic's own keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// No thread made them.
    #[error("the keys of the syndic are not made")]
    Thread(#[source] BlockingError),
    /// The master above is not trusted, or does not accept this syndic.
    #[error("the syndic cannot sign in")]
    SignIn(#[from] SignInError),
    /// The files of `ssl`.
    #[error("TLS towards the master above cannot be set up")]
    Tls(#[from] TlsError),
    /// A session that had to be renewed was not.
    #[error("the master above is not trusted any more, or does not trust this syndic")]
    Refused,
    /// A bug: nothing takes a session away.
    #[error("there is no session any more")]
    NoSession,
    /// The publish port, or the connection to it.
    #[error("no subscription to the publications of the master above")]
    Subscription(#[from] WireError),
    /// The start event.
    #[error("the master above did not take the start event of the syndic")]
    Start(#[from] RequestError),
    /// Stock's syndic.
    #[error("salt-syndic runs beside this master (process {0}); the native syndic stands by")]
    StockSyndic(u32),
}

impl UplinkError {
    /// The reason in metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Keys(_) | Self::Thread(_) => "keys",
            Self::Tls(_) | Self::Subscription(WireError::Tls { .. }) => "tls",
            Self::SignIn(_) | Self::Refused => "sign_in",
            Self::Subscription(_) | Self::NoSession => "subscription",
            Self::Start(_) => "start_event",
            Self::StockSyndic(_) => "stock_syndic",
        }
    }
}

/// Actor of one master above.
pub(crate) struct SyndicUplink {
    seed: Seed,
}

impl Child for SyndicUplink {
    type Seed = Seed;

    const NAME: &'static str = "syndic_uplink";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }
}

impl Actor for SyndicUplink {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let seed = self.seed.clone();
        context.spawn(async move { seed.connect_for_ever().await }.into_actor(self));
        let seed = self.seed.clone();
        context.spawn(async move { seed.send_events_for_ever().await }.into_actor(self));
        if self.seed.services.config.syndic.inventory {
            let seed = self.seed.clone();
            context.spawn(async move { seed.send_inventory_for_ever().await }.into_actor(self));
            let seed = self.seed.clone();
            context.spawn(async move { seed.send_verdicts_for_ever().await }.into_actor(self));
        }
    }
}

impl Seed {
    fn now(&self) -> i64 {
        self.services.clock.unix_micros()
    }

    async fn connect_for_ever(&self) {
        // Of an actor before this one.
        self.upper.early.end_all();
        let config = self.identity.config();
        let mut pauses = Backoff::new(
            config.recon_default,
            config.recon_max,
            config.recon_randomize,
        );
        loop {
            let was = self.upper.standing();
            let error = self.serve().await;
            let stands_by = matches!(error, UplinkError::StockSyndic(_));
            self.cut(&error);
            if !was.is_connected && self.upper.standing().since != was.since {
                pauses.reset();
            }
            let pause = match stands_by {
                true => STAND_BY,
                false => pauses.pause(),
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn cut(&self, error: &UplinkError) {
        let text = chain(error);
        let upper = self.upper.name();
        self.metrics.connected.with_label_values(&[upper]).set(0);
        let failures = &self.metrics.failures;
        failures.with_label_values(&[upper, error.label()]).inc();
        let is_new = self.upper.standing().problem.as_ref() != Some(&text);
        if let Some(times) = self.problems.record() {
            tracing::warn!(upper, problem = text, times, "the syndic is not connected");
        } else if is_new {
            tracing::info!(upper, problem = text, "the syndic is not connected");
        }
        self.upper.cut(text, self.now());
        self.upper
            .stand_by(matches!(error, UplinkError::StockSyndic(_)));
    }

    /// Signs in, subscribes and follows publications until that ends.
    async fn serve(&self) -> UplinkError {
        match self.connected().await {
            Err(error) => error,
            Ok((channel, mut publications)) => {
                let mut announces = false;
                loop {
                    let error = self.receive(&channel, &mut publications, announces).await;
                    channel.disconnect().await;
                    if matches!(error, UplinkError::Refused | UplinkError::StockSyndic(_)) {
                        return error;
                    }
                    self.cut(&error);
                    let Some(session) = channel.session() else {
                        return UplinkError::NoSession;
                    };
                    // The session outlives a connection: a master that comes back knows it.
                    match channel.subscribe(&session).await {
                        Ok(again) => publications = again,
                        Err(error) => return error.into(),
                    }
                    self.connect(&channel);
                    announces = session.is_of_ours();
                }
            }
        }
    }

    /// Announces itself after a cut: the master that is there then may not know this syndic, as another machine of a
    /// cluster. Stock's learns it by its returns, and one of ours asks for this again when it refuses some.
    async fn announce_again(&self, channel: &UpperChannel) {
        let announced = announce(channel, &self.services, Connection::Again).await;
        if let Err(error) = announced {
            let upper = self.upper.name();
            tracing::debug!(upper, %error, "the syndic has not announced itself anew");
        }
    }

    /// The salt-syndic that runs beside this master.
    fn stock_syndic(&self) -> Option<u32> {
        stock_syndic(&self.services.config.syndic.pidfile)
    }

    async fn connected(&self) -> Result<(UpperChannel, SubClient), UplinkError> {
        if let Some(process) = self.stock_syndic() {
            return Err(UplinkError::StockSyndic(process));
        }
        let master = &self.upper.master;
        let pki = self.identity.pki(&master.name)?;
        let keys = self.identity.keys(&pki).await?;
        let found = blocking::lookup_host(&master.host, master.port).await;
        let address: SocketAddr = match found {
            Ok(found) => *found.first().ok_or(UplinkError::Address(None))?,
            Err(error) => return Err(UplinkError::Address(Some(error))),
        };
        let settings = &self.identity.config;
        let route = settings.route(&master.host, address).await?;
        let identity = Identity {
            id: settings.id.clone(),
            config: settings.clone(),
            keys,
            store: Arc::new(pki),
            clock: self.services.clock.clone(),
        };
        let failures = &self.metrics.failures;
        let observer = UpperObserver {
            tls_failures: failures.with_label_values(&[self.upper.name(), "tls"]),
        };
        let channel = Arc::new(Channel::new(identity, route, Arc::new(observer)));
        let session = channel.sign_in(None).await?;
        let publications = channel.subscribe(&session).await?;
        announce(&channel, &self.services, Connection::New).await?;
        self.connect(&channel);
        Ok((channel, publications))
    }

    fn connect(&self, channel: &UpperChannel) {
        let upper = self.upper.name();
        tracing::info!(upper, id = channel.id(), "the syndic is connected");
        self.learn_path(channel);
        self.metrics.connected.with_label_values(&[upper]).set(1);
        self.upper.connect(channel.clone(), self.now());
        self.events.ready.notify_one();
        let session = channel.session();
        let takes_verdicts = session.is_some_and(|session| session.takes_verdicts);
        let sends_verdicts = self.services.config.syndic.inventory;
        self.verdicts.agree(takes_verdicts && sends_verdicts);
    }

    /// Follows publications until the connection breaks, or trust does. Beside that it announces itself anew, if asked to.
    async fn receive(
        &self,
        channel: &UpperChannel,
        publications: &mut SubClient,
        announces: bool,
    ) -> UplinkError {
        let mut under_way = FuturesUnordered::new();
        let mut announcing = pin!(self.announce_again(channel));
        let mut is_announced = !announces;
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        let error = loop {
            tokio::select! {
                frames = publications.next(), if under_way.len() < MAX_UNDER_WAY => match frames {
                    // With and without a topic, the payload stands last.
                    Ok(mut frames) => {
                        let Some(payload) = frames.pop() else { continue };
                        // In their order: a publication that is older than another is a replay.
                        if let Some(load) = channel.open(payload).await {
                            self.learn_path(channel);
                            under_way.push(self.publish(load, channel.route().to));
                        }
                    }
                    Err(error) => break error.into(),
                },
                Some(()) = under_way.next(), if !under_way.is_empty() => {}
                () = &mut announcing, if !is_announced => is_announced = true,
                _ = looks.tick() => {
                    if channel.is_refused() {
                        break UplinkError::Refused;
                    }
                    if let Some(process) = self.stock_syndic() {
                        break UplinkError::StockSyndic(process);
                    }
                }
            }
        };
        // What was begun is finished: its load may be at the gate already.
        while under_way.next().await.is_some() {}
        error
    }

    /// Takes over which masters are above that one; each sign-in may bring others.
    fn learn_path(&self, channel: &UpperChannel) {
        if let Some(session) = channel.session() {
            self.services.paths.learn(self.upper.name(), &session.path);
        }
    }

    async fn send_events_for_ever(&self) {
        let gather = self.services.config.syndic.gather.min(MAX_GATHER);
        let drops = LogThrottle::new(LOG_INTERVAL);
        loop {
            self.events.ready.notified().await;
            tokio::time::sleep(gather).await;
            while let Some(channel) = self.upper.channel() {
                let events = self.events.take();
                if events.is_empty() {
                    break;
                }
                self.send_events(channel, events, &drops).await;
            }
        }
    }

    /// Sends events until a master above has taken them, in their order: together, or in parts where they
    /// are too large together. One that is too large alone is dropped and named.
    async fn send_events(
        &self,
        mut channel: UpperChannel,
        events: Vec<(String, Bytes)>,
        drops: &LogThrottle,
    ) {
        let mut parts = vec![events];
        while let Some(mut events) = parts.pop() {
            let fields = self.fields_of(&events);
            let is_large = is_too_large(&channel, &fields);
            let result = match events.as_slice() {
                [(tag, _)] if is_large => {
                    if let Some(times) = drops.record() {
                        let upper = self.upper.name();
                        tracing::warn!(upper, tag, times, "an event is too large to go up");
                    }
                    "refused"
                }
                _ if is_large => {
                    let second = events.split_off(events.len() / 2);
                    parts.extend([second, events]);
                    continue;
                }
                _ => match self.try_send(&channel, &fields).await {
                    Some(result) => result,
                    None => {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        channel = self.wait_for_channel().await;
                        parts.push(events);
                        continue;
                    }
                },
            };
            let counter = &self.metrics.events;
            let counter = counter.with_label_values(&[self.upper.name(), result]);
            counter.inc_by(events.len() as u64);
        }
    }

    /// The request that brings these events.
    fn fields_of(&self, events: &[(String, Bytes)]) -> [(&'static str, Value); 4] {
        let listed = events.iter().map(|(tag, data)| {
            let data = decode(data, &Limits::WIRE).unwrap_or(Value::Nil);
            Value::map([("data", data), ("tag", Value::from(tag.as_str()))])
        });
        let id = self.identity.config().id.as_str();
        [
            ("id", Value::from(id)),
            ("cmd", Value::from("_minion_event")),
            ("pretag", Value::from(format!("syndic/{id}"))),
            ("events", Value::Array(listed.collect())),
        ]
    }

    /// Sends one request with events; what became of them, `None` without an answer.
    async fn try_send(
        &self,
        channel: &UpperChannel,
        fields: &[(&'static str, Value)],
    ) -> Option<&'static str> {
        let limit = retry_timer(self.identity.config());
        match channel.send(fields, limit).await {
            Ok(Value::Nil) => Some("forwarded"),
            // The master above could not handle them; it could not the next time either.
            Ok(_) => Some("refused"),
            Err(error) => {
                tracing::debug!(%error, "events did not go up");
                None
            }
        }
    }

    /// Sends the inventory up, where the master above takes one.
    async fn send_inventory_for_ever(&self) {
        let mut sender = InventorySender::new(ServicesBelow(self.services.clone()));
        loop {
            if let Some(channel) = self.upper.channel() {
                self.send_inventory(&mut sender, &channel).await;
            }
            tokio::time::sleep(INVENTORY_INTERVAL).await;
        }
    }

    async fn send_inventory(
        &self,
        sender: &mut InventorySender<ServicesBelow>,
        channel: &UpperChannel,
    ) {
        let session = channel.session();
        let Some(epoch) = session.and_then(|session| session.inventory_epoch.clone()) else {
            return;
        };
        let upper = self.upper.name();
        // Larger than before, as long as the clock is not set back by more than a restart takes.
        let number = || u64::try_from(self.now()).unwrap_or(0);
        sender.agree(&epoch, self.upper.standing().since, number());
        while let Some(part) = sender.next(Instant::now()) {
            let (fields, limit) = (part.fields(), retry_timer(self.identity.config()));
            let answer = match channel.send(&fields, limit).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::debug!(upper, %error, "an inventory did not go up");
                    return;
                }
            };
            match sender.answered(&answer, number(), Instant::now()) {
                Answered::Taken => {}
                Answered::Anew => return,
                Answered::NotSyndic => {
                    tracing::info!(
                        upper,
                        "the master above does not know this syndic; it is announced"
                    );
                    if let Err(error) = announce(channel, &self.services, Connection::New).await {
                        tracing::debug!(upper, %error, "a start event did not go up");
                    }
                    return;
                }
                Answered::Refused => {
                    let reason = answer.get("reason").and_then(Value::as_str);
                    let reason = reason.unwrap_or_default();
                    tracing::warn!(
                        upper,
                        reason,
                        "the master above does not keep the inventory"
                    );
                    return;
                }
            }
        }
    }

    /// Sends verdicts on silent minions of jobs of the master above, where it takes them.
    async fn send_verdicts_for_ever(&self) {
        let mut origins = JobOrigins::default();
        let mut batch = SendBatch::default();
        let problems = LogThrottle::new(LOG_INTERVAL);
        loop {
            self.verdicts.ready.notified().await;
            loop {
                tokio::time::sleep(VERDICT_INTERVAL).await;
                let Some(channel) = self.upper.channel() else {
                    break;
                };
                let (numbers, waiting) = self.verdicts.next(batch.most);
                if waiting.is_empty() {
                    break;
                }
                let verdicts = match self.own_verdicts(waiting, &mut origins) {
                    Ok(verdicts) => verdicts,
                    // The master above is not to blame: they wait.
                    Err(error) => {
                        if let Some(times) = problems.record() {
                            let upper = self.upper.name();
                            tracing::warn!(upper, %error, times, "jobs of verdicts cannot be read");
                        }
                        continue;
                    }
                };
                if self.send_verdicts(&channel, &verdicts).await {
                    self.verdicts.done(numbers.end);
                    batch = SendBatch::default();
                } else if batch.fail(numbers.start) {
                    self.verdicts.give_up(numbers.end);
                }
            }
        }
    }

    /// The verdicts of jobs that the master above has published.
    fn own_verdicts(
        &self,
        waiting: Vec<Waiting>,
        origins: &mut JobOrigins,
    ) -> Result<Vec<Verdict>, StoreError> {
        let own = Origin::Upper(self.upper.name().to_owned());
        let mut verdicts = Vec::new();
        origins.begin_batch();
        for one in waiting {
            let load = || self.reader.load_of(&one.jid);
            if one.is_from_above || *origins.of(&one.jid, load)? == own {
                verdicts.extend(one.verdicts);
            }
        }
        Ok(verdicts)
    }

    /// Whether all were answered. Those of a request without an answer go up once more.
    async fn send_verdicts(&self, channel: &UpperChannel, verdicts: &[Verdict]) -> bool {
        let upper = self.upper.name();
        let limit = retry_timer(self.identity.config());
        for (count, fields) in requests(verdicts) {
            let answer = match channel.send(&fields, limit).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::debug!(upper, %error, "verdicts did not go up");
                    return false;
                }
            };
            let is_taken = answer.get("result").and_then(Value::as_str) == Some("taken");
            let result = if is_taken { "sent" } else { "refused" };
            let counter = &self.metrics.verdicts;
            counter.with_label_values(&[upper, result]).inc_by(count);
        }
        true
    }

    async fn wait_for_channel(&self) -> UpperChannel {
        loop {
            if let Some(channel) = self.upper.channel() {
                return channel;
            }
            self.events.ready.notified().await;
        }
    }
}

/// Reason for a start event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The first connection to a master above, or one that does not know this syndic.
    New,
    /// A connection in place of one that broke. What was announced counts as before, if this master has it.
    Again,
}

/// The start events of stock's syndic. Until the second has been taken no return goes up: a
/// master of ours takes returns only of those that it knows to be syndics. One that takes inventories learns that
/// it gets one: without that it forgets what it has of this syndic.
pub(crate) async fn announce(
    channel: &UpperChannel,
    services: &Services,
    connection: Connection,
) -> Result<(), RequestError> {
    let id = channel.id();
    let now = services.clock.unix_micros();
    let text = format!("Syndic {id} started at {}", asctime(now));
    let is_again = connection == Connection::Again;
    if channel.config().enable_legacy_startup_events && !is_again {
        channel
            .fire("syndic_start", Value::from(text.as_str()))
            .await?;
    }
    let tag = format!("salt/syndic/{id}/start");
    let takes_inventory = || {
        let session = channel.session();
        session.is_some_and(|session| session.inventory_epoch.is_some())
    };
    let announces = services.config.syndic.inventory && takes_inventory();
    let inventory = announces.then_some(("saltern_syndic_inventory", Value::Bool(true)));
    let again = is_again.then_some(("saltern_syndic_again", Value::Bool(true)));
    let marks = inventory.into_iter().chain(again);
    channel.fire_with(&tag, Value::from(text), marks).await
}

/// Limit of a request to a master above (`return_retry_timer`).
pub(crate) fn retry_timer(config: &MinionConfig) -> Duration {
    let longest = config.return_retry_timer_max.max(config.return_retry_timer);
    between(config.return_retry_timer, longest)
}

/// The process of a stock syndic that runs beside this master, by its pid file.
pub(crate) fn stock_syndic(pidfile: &Path) -> Option<u32> {
    let text = fs::read_to_string(pidfile).ok()?;
    let process: u32 = text.trim().parse().ok()?;
    // A number may be another process's by now.
    let command = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).to_lowercase();
    (process != std::process::id() && command.contains("syndic")).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_file_of_another_program_is_no_stock_syndic() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        assert_eq!(stock_syndic(&file), None, "there is none");
        for text in ["", "x", "1", &std::process::id().to_string()] {
            fs::write(&file, text).unwrap();
            assert_eq!(stock_syndic(&file), None, "{text:?}");
        }
    }

    #[test]
    fn names_of_masters_make_different_files() {
        assert_eq!(file_name("top.example-1"), "top.example-1");
        assert_eq!(file_name("a_b:1/../x"), "a_5fb_3a1_2f.._2fx");
    }
}

//! A minion of a run: our own channel to the master, and jobs that take their time. It outlives the
//! master's lives, with its session, its jobs and the returns that are not acknowledged yet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saltern_base::clock::Clock;
use saltern_channel::{Channel, Identity, MemoryStore, MinionConfig, MinionKeys, Unobserved};
use saltern_model::MinionId;
use saltern_wire::client::{Route, SubClient};
use saltern_wire::msgpack::{MapView, Value};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::history::{History, What, value_of};
use super::life::Scene;
use super::random::{Random, address};
use super::site::minion_id;

/// How long it waits for an answer to a return.
const PATIENCE: Duration = Duration::from_secs(5);

/// By this function the master asks what runs.
const PROBE: &str = "saltutil.running";

/// A minion.
pub(super) struct Minion {
    id: String,
    channel: Channel<Unobserved>,
    clock: Clock,
    state: RefCell<State>,
    has_returns: Notify,
    random: RefCell<Random>,
    history: Rc<History>,
}

#[derive(Default)]
struct State {
    /// Jids that it does not run again.
    had: BTreeSet<String>,
    /// When the jobs that run are done.
    running: BTreeMap<String, Duration>,
    /// Returns that are not acknowledged.
    returns: VecDeque<Return>,
}

#[derive(Clone)]
struct Return {
    jid: String,
    fun: &'static str,
    value: Value,
    /// The metadata of a probe, whose answer is sent once.
    probe: Option<Value>,
}

impl Minion {
    pub(super) fn new(
        number: usize,
        keys: Arc<MinionKeys>,
        seed: u64,
        history: Rc<History>,
    ) -> Self {
        let id = minion_id(number);
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let minion = MinionId::parse(&id).unwrap();
        let identity = Identity {
            config: Arc::new(MinionConfig::new(minion.clone(), Path::new("/nowhere"))),
            id: minion,
            keys,
            store: Arc::new(MemoryStore::default()),
            clock: clock.clone(),
        };
        let route = Route {
            from: Some(address(number)),
            ..Route::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 4506)))
        };
        Self {
            id,
            channel: Channel::new(identity, route, Arc::new(Unobserved)),
            clock,
            state: RefCell::default(),
            has_returns: Notify::new(),
            random: RefCell::new(Random::new(seed, 10 + number as u64)),
            history,
        }
    }

    /// Takes part in a life of the master.
    pub(super) async fn live(self: Rc<Self>, scene: &Scene) {
        self.clock.set(scene.time_of_day());
        self.channel.disconnect().await;
        let running: Vec<_> = {
            let state = self.state.borrow();
            state
                .running
                .iter()
                .map(|(jid, at)| (jid.clone(), *at))
                .collect()
        };
        for (jid, done) in running {
            actix_rt::spawn(self.clone().work(scene.clone(), jid, done));
        }
        actix_rt::spawn(self.clone().listen(scene.clone()));
        actix_rt::spawn(self.clone().send_returns(scene.clone()));
    }

    fn note(&self, scene: &Scene, what: What) {
        self.history.note(scene.now(), &self.id, what);
    }

    fn pause(&self, from: u64, to: u64) -> Duration {
        self.random.borrow_mut().millis(from..to)
    }

    async fn listen(self: Rc<Self>, scene: Scene) {
        loop {
            self.clock.set(scene.time_of_day());
            if let Ok(session) = self.channel.sign_in(None).await
                && let Ok(mut subscription) = self.channel.subscribe(&session).await
            {
                self.note(&scene, What::Subscribed);
                self.follow(&scene, &mut subscription).await;
                self.note(&scene, What::SubscriptionLost);
            }
            let pause = self.pause(500, 3_000);
            sleep(pause).await;
        }
    }

    async fn follow(self: &Rc<Self>, scene: &Scene, subscription: &mut SubClient) {
        while let Ok(mut frames) = subscription.next().await {
            let Some(payload) = frames.pop() else {
                continue;
            };
            self.clock.set(scene.time_of_day());
            if let Some(load) = self.channel.open(payload).await {
                self.take(scene, &load);
            }
        }
    }

    fn take(self: &Rc<Self>, scene: &Scene, load: &MapView) {
        let (Some(jid), Some(fun)) = (load.str("jid"), load.str("fun")) else {
            return;
        };
        let jid = jid.to_owned();
        if !is_for(load, &self.id) {
            return;
        }
        if fun == PROBE {
            return self.answer_probe(jid, load);
        }
        self.note(scene, What::Arrived(jid.clone()));
        let mut state = self.state.borrow_mut();
        if state.had.insert(jid.clone()) {
            let (least, most) = match is_slow(load) {
                true => (10_000, 25_000),
                false => (0, 2_000),
            };
            let done = scene.now() + self.pause(least, most);
            state.running.insert(jid.clone(), done);
            actix_rt::spawn(self.clone().work(scene.clone(), jid, done));
        }
    }

    fn answer_probe(&self, jid: String, load: &MapView) {
        let mut state = self.state.borrow_mut();
        let running = state.running.keys().map(|jid| {
            Value::map([
                ("pid", Value::from(1_i64)),
                ("jid", Value::from(jid.as_str())),
                ("fun", Value::from("test.sleep")),
            ])
        });
        let value = Value::Array(running.collect());
        let metadata = load.get("metadata").map(|metadata| metadata.decode());
        state.returns.push_back(Return {
            jid,
            fun: PROBE,
            value,
            probe: metadata,
        });
        self.has_returns.notify_one();
    }

    async fn work(self: Rc<Self>, scene: Scene, jid: String, done: Duration) {
        scene.until(done).await;
        let mut state = self.state.borrow_mut();
        if state.running.remove(&jid).is_some() {
            let value = value_of(&self.id, &jid);
            state.returns.push_back(Return {
                jid,
                fun: "test.sleep",
                value: Value::from(value.as_str()),
                probe: None,
            });
            self.has_returns.notify_one();
        }
    }

    /// Sends one return after the other, each until it is acknowledged, some again.
    async fn send_returns(self: Rc<Self>, scene: Scene) {
        loop {
            let next = self.state.borrow().returns.front().cloned();
            let Some(next) = next else {
                self.has_returns.notified().await;
                continue;
            };
            let is_taken = self.send(&scene, &next).await;
            if is_taken || next.probe.is_some() {
                self.state.borrow_mut().returns.pop_front();
                if is_taken && next.probe.is_none() && self.random.borrow_mut().one_in(5) {
                    self.send(&scene, &next).await;
                }
                continue;
            }
            let pause = self.pause(200, 3_000);
            sleep(pause).await;
        }
    }

    async fn send(&self, scene: &Scene, one: &Return) -> bool {
        self.clock.set(scene.time_of_day());
        let mut fields = vec![
            ("cmd", Value::from("_return")),
            ("id", Value::from(self.id.as_str())),
            ("jid", Value::from(one.jid.as_str())),
            ("fun", Value::from(one.fun)),
            ("fun_args", Value::Array(Vec::new())),
            ("return", one.value.clone()),
            ("retcode", Value::from(0_i64)),
            ("success", Value::Bool(true)),
        ];
        let metadata = one.probe.iter().cloned();
        fields.extend(metadata.map(|metadata| ("metadata", metadata)));
        let sent = self.channel.send(&fields, PATIENCE).await;
        let is_taken = matches!(&sent, Ok(answer) if answer.is_nil());
        if one.probe.is_none() {
            self.note(
                scene,
                match &sent {
                    Ok(answer) if answer.is_nil() => What::Acknowledged(one.jid.clone()),
                    Ok(answer) => What::NotAcknowledged(format!("{answer:?}")),
                    Err(error) => What::NotAcknowledged(error.to_string()),
                },
            );
        }
        is_taken
    }
}

/// Whether the job is one that takes long.
fn is_slow(load: &MapView) -> bool {
    let arguments = load.get("arg").map(|arg| arg.decode());
    let arguments = arguments.as_ref().and_then(Value::as_array);
    arguments.is_some_and(|list| list.first() == Some(&Value::Bool(true)))
}

fn is_for(load: &MapView, id: &str) -> bool {
    let target = load.get("tgt").map(|target| target.decode());
    let ids = target.as_ref().and_then(Value::as_array);
    ids.is_some_and(|ids| ids.iter().any(|one| one.as_str() == Some(id)))
}

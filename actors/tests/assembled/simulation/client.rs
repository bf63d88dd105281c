//! The client of a run: it publishes jobs, and asks what became of them.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use saltern_model::query::ReturnsPage;
use saltern_wire::client::Route;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, encode, from_slice, pack};
use saltern_wire::zmtp::ReqClient;
use tokio::time::{sleep, timeout};

use super::history::{History, What};
use super::life::Scene;
use super::random::{Random, address};
use super::site::{Template, minion_id};
use super::world::MINIONS;

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// When the last job is published: all minions have had time to come back.
const LAST: Duration = Duration::from_secs(180);

/// A client.
pub(super) struct Client {
    /// When each job is published.
    plan: Vec<Duration>,
    next: Cell<usize>,
    random: RefCell<Random>,
    history: Rc<History>,
}

impl Client {
    pub(super) fn new(seed: u64, history: Rc<History>) -> Self {
        let mut random = Random::new(seed, 3);
        let count = random.within(2..7);
        let mut plan: Vec<_> = (0..count).map(|_| random.millis(3_000..90_000)).collect();
        plan.sort_unstable();
        plan.push(LAST);
        Self {
            plan,
            next: Cell::new(0),
            random: RefCell::new(random),
            history,
        }
    }

    /// Takes part in a life of the master.
    pub(super) fn live(self: Rc<Self>, scene: &Scene) {
        actix_rt::spawn(self.clone().publish_all(scene.clone()));
        actix_rt::spawn(self.ask_all(scene.clone()));
    }

    fn note(&self, scene: &Scene, what: What) {
        self.history.note(scene.now(), "client", what);
    }

    async fn publish_all(self: Rc<Self>, scene: Scene) {
        while let Some(at) = self.plan.get(self.next.get()) {
            scene.until(*at).await;
            self.next.set(self.next.get() + 1);
            let is_last = self.next.get() == self.plan.len();
            self.publish(&scene, is_last).await;
        }
    }

    async fn publish(&self, scene: &Scene, is_last: bool) {
        let spared = match is_last {
            true => MINIONS as u64,
            false => self.random.borrow_mut().within(0..2 * MINIONS as u64),
        };
        let minions = (0..MINIONS).filter(|number| *number as u64 != spared);
        let minions = minions.map(|number| Value::from(minion_id(number).as_str()));
        let is_slow = self.random.borrow_mut().one_in(3);
        let load = [
            ("cmd", Value::from("publish")),
            ("tgt", Value::Array(minions.collect())),
            ("tgt_type", Value::from("list")),
            ("fun", Value::from("test.sleep")),
            ("arg", Value::Array(vec![Value::Bool(is_slow)])),
            ("jid", Value::from("")),
            ("ret", Value::from("")),
        ];
        let reply = ask(&load).await;
        let jid = reply.as_ref().ok().and_then(|reply| {
            let jid = reply.get("load")?.get("jid")?.as_str()?;
            Some(jid.to_owned())
        });
        self.note(
            scene,
            match (jid, reply) {
                (Some(jid), _) => What::Published(jid, is_last),
                (None, Ok(reply)) => What::NotPublished(format!("{reply:?}")),
                (None, Err(error)) => What::NotPublished(error.to_string()),
            },
        );
    }

    async fn ask_all(self: Rc<Self>, scene: Scene) {
        loop {
            let pause = self.random.borrow_mut().millis(1_000..6_000);
            sleep(pause).await;
            let jids = self.history.published();
            if !jids.is_empty() {
                let place = self.random.borrow_mut().within(0..jids.len() as u64);
                self.read(&scene, &jids[usize::try_from(place).unwrap()])
                    .await;
            }
        }
    }

    async fn read(&self, scene: &Scene, jid: &str) {
        let before = self.history.acknowledged(jid);
        let load = [
            ("cmd", Value::from("saltern_query")),
            ("fun", Value::from("jobs.returns")),
            ("kwarg", Value::map([("jid", Value::from(jid))])),
        ];
        let Ok(reply) = ask(&load).await else {
            return;
        };
        let Some(page) = reply.get("return") else {
            return;
        };
        let page: ReturnsPage<Value> =
            from_slice(&pack(page, Dialect::Bin), &Limits::WIRE).unwrap();
        for minion in before {
            if !page.returns.iter().any(|one| one.minion.as_str() == minion) {
                let now = scene.now();
                self.history.complain(format!(
                    "{minion} is not among those who returned {jid} at {now:?}"
                ));
            }
        }
        self.note(scene, What::Read(jid.to_owned()));
    }
}

/// Sends one request with the key of a user.
async fn ask(load: &[(&str, Value)]) -> Result<Value, Box<dyn Error>> {
    let (user, key) = &Template::get().user;
    let credentials = [
        ("user", Value::from(user.as_str())),
        ("key", Value::from(key.as_str())),
    ];
    let load = Value::map(load.iter().cloned().chain(credentials));
    let envelope = Value::map([
        ("enc", Value::from("clear")),
        ("load", load),
        ("version", Value::from(3_i64)),
    ]);
    let request: Bytes = encode(&envelope, Dialect::Raw).into();
    let route = Route {
        from: Some(address(MINIONS)),
        ..Route::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 4506)))
    };
    let exchange = async {
        let mut client = ReqClient::connect(route, None).await?;
        client.request(request).await
    };
    let reply = timeout(PATIENCE, exchange).await;
    let reply = reply.map_err(|_| "no answer")??;
    Ok(decode_wire(&reply, &Limits::WIRE)?)
}

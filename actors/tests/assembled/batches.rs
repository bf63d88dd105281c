//! Tests of batches that the master drives: order of the parts, over restarts, panics and stops.

use saltern_model::{Compat, Jid};
use saltern_store::{BatchFiles, StoreOptions};
use saltern_wire::ipc::{EventFrame, Framing};
use saltern_wire::msgpack::{Dialect, Value, decode_wire, encode};
use saltern_wire::zmtp::SubClient;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::site::{Listener, Minion, Running, Site, jid_of};
use crate::{in_system, until};

/// A site with minions m1, m2 and so on, its master and a listener of its bus.
struct Rig {
    site: Site,
    running: Running,
    minions: Vec<Minion>,
    /// Their connections to the publish port: minions without one are left out.
    _subscribers: Vec<SubClient>,
    events: Listener,
}

impl Rig {
    async fn new(minions: usize) -> Self {
        Self::with("timeout: 3600\n", minions).await
    }

    async fn with(options: &'static str, minions: usize) -> Self {
        let site = Site::new(options);
        let identities: Vec<_> = (1..=minions)
            .map(|number| site.minion(&format!("m{number}")))
            .collect();
        let running = site.start();
        let events = listen(&site).await;
        let (mut signed_in, mut subscribers) = (Vec::new(), Vec::new());
        for identity in identities {
            signed_in.push(identity.sign_in(&running).await);
            let address = running.master.publish_address();
            subscribers.push(SubClient::connect(address, &[b""]).await.unwrap());
        }
        running.subscriptions(minions as f64).await;
        Self {
            site,
            running,
            minions: signed_in,
            _subscribers: subscribers,
            events,
        }
    }

    /// Starts a batch over all minions; gives its jid.
    async fn begin(&self, wishes: Value) -> Jid {
        let Value::Map(mut load) = self.running.publish_load("glob", "m*".into()) else {
            panic!("a load is a map");
        };
        load.retain(|(name, _)| name.as_str() != Some("cmd"));
        load.push(("cmd".into(), "saltern_batch".into()));
        load.push(("batch".into(), wishes));
        let reply = self.running.ask(Value::Map(load)).await;
        let answer = decode_wire(&reply, &saltern_wire::msgpack::Limits::WIRE).unwrap();
        Jid::parse(&jid_of(&answer)).unwrap()
    }

    /// The minions of the next part that is published.
    async fn part(&mut self, jid: &Jid) -> Vec<String> {
        let new = self.events.wait_for(&format!("salt/job/{jid}/new")).await;
        let minions = new.get("minions").and_then(Value::as_array).unwrap();
        let names = minions.iter().map(|name| name.as_str().unwrap().to_owned());
        names.collect()
    }

    /// Sends the return of minion `number`.
    async fn give_back(&mut self, number: usize, jid: &Jid, retcode: i64) {
        let mut fields = Minion::return_of(jid.as_str());
        fields.retain(|(name, _)| *name != "retcode");
        fields.push(("retcode", retcode.into()));
        self.minions[number - 1].send(fields).await.unwrap();
    }

    async fn event(&mut self, jid: &Jid, what: &str) -> Value {
        self.events
            .wait_for(&format!("salt/batch/{jid}/{what}"))
            .await
    }

    fn files(&self) -> BatchFiles {
        let mut options = StoreOptions::below(self.site.path(), Compat::V3008);
        options.cachedir = self.site.config().cachedir;
        BatchFiles::with_options(&options).unwrap()
    }

    fn state(&self, jid: &Jid, field: &str) -> Value {
        let state = self.files().read(jid).unwrap().unwrap();
        state.get(field).unwrap().clone()
    }

    /// Fires an event as a local program does.
    async fn fire(&self, tag: &str, data: Value) {
        let path = self.site.socket("master_event_pull.ipc");
        let mut sender = UnixStream::connect(path).await.unwrap();
        let frame = EventFrame::new(tag, &encode(&data, Dialect::Bin)).bytes(Framing::Bare);
        sender.write_all(&frame).await.unwrap();
    }
}

async fn listen(site: &Site) -> Listener {
    let path = site.socket("master_event_pub.ipc");
    Listener::connect(&path).await.unwrap()
}

fn size(text: &str) -> Value {
    Value::map([("size", text)])
}

fn number(event: &Value, field: &str) -> i64 {
    event.get(field).and_then(Value::as_i64).unwrap()
}

#[test]
fn each_minion_has_its_turn_as_slots_become_free() {
    in_system(async {
        let mut rig = Rig::new(3).await;
        let jid = rig.begin(size("50%")).await;
        let new = rig.event(&jid, "new").await;
        assert_eq!(
            (number(&new, "total_minions"), number(&new, "batch_size")),
            (3, 1)
        );
        assert_eq!(new.get("driver").and_then(Value::as_str), Some("master"));
        assert_eq!(rig.part(&jid).await, ["m1"]);
        let progress = rig.event(&jid, "progress").await;
        let counts = ["total", "completed", "active", "pending", "failed"];
        assert_eq!(
            counts.map(|field| number(&progress, field)),
            [3, 0, 1, 2, 0]
        );
        assert_eq!(rig.files().active().unwrap(), std::slice::from_ref(&jid));

        rig.give_back(1, &jid, 0).await;
        assert_eq!(rig.part(&jid).await, ["m2"]);
        assert_eq!(rig.running.metric("saltern_batches_open"), 1.0);
        rig.give_back(2, &jid, 7).await;
        assert_eq!(rig.part(&jid).await, ["m3"]);
        rig.give_back(3, &jid, 0).await;
        let complete = rig.event(&jid, "complete").await;
        let counts = ["completed", "failed", "total_minions"];
        assert_eq!(counts.map(|field| number(&complete, field)), [3, 0, 3]);

        assert_eq!(rig.state(&jid, "halted"), Value::Bool(false));
        assert_eq!(rig.state(&jid, "pending"), Value::Array(Vec::new()));
        let done = Value::map([("retcode", 7_i64)]);
        assert_eq!(rig.state(&jid, "done").get("m2"), Some(&done));
        until(|| rig.running.metric("saltern_batches_open") == 0.0).await;
        assert_eq!(rig.running.metric("saltern_batch_minions_running"), 0.0);
        assert!(rig.files().active().unwrap().is_empty());
        rig.running.master.shutdown().await;
        let stored = rig.site.reader().batch(&jid).unwrap().unwrap();
        assert!(!stored.is_open && stored.halted.is_none());
    });
}

#[test]
fn failhard_ends_a_batch_at_the_first_bad_return() {
    in_system(async {
        let mut rig = Rig::new(3).await;
        let wishes = [("size", Value::from("2")), ("failhard", true.into())];
        let jid = rig.begin(Value::map(wishes)).await;
        assert_eq!(rig.part(&jid).await, ["m1", "m2"]);
        rig.give_back(2, &jid, 3).await;
        let halted = rig.event(&jid, "halted").await;
        assert_eq!(
            halted.get("reason").and_then(Value::as_str),
            Some("failhard")
        );
        let one = |name: &str| Some(Value::Array(vec![name.into()]));
        assert_eq!(halted.get("abandoned_active").cloned(), one("m1"));
        assert_eq!(halted.get("abandoned_pending").cloned(), one("m3"));
        assert_eq!(rig.state(&jid, "halted_reason"), "failhard".into());
        rig.running.master.shutdown().await;
        let stored = rig.site.reader().batch(&jid).unwrap().unwrap();
        assert_eq!(stored.halted.as_deref(), Some("failhard"));
    });
}

#[test]
fn a_local_program_stops_a_batch() {
    in_system(async {
        let mut rig = Rig::new(2).await;
        let jid = rig.begin(size("1")).await;
        assert_eq!(rig.part(&jid).await, ["m1"]);
        let data = Value::map([("jid", jid.as_str()), ("reason", "stop")]);
        rig.fire(&format!("salt/batch/{jid}/stop"), data).await;
        let halted = rig.event(&jid, "halted").await;
        assert_eq!(halted.get("reason").and_then(Value::as_str), Some("stop"));
        until(|| rig.running.metric("saltern_batches_open") == 0.0).await;
        // The return of a running minion counts, and starts nothing.
        rig.give_back(1, &jid, 0).await;
        rig.running.master.shutdown().await;
        let stored = rig.site.reader().batch(&jid).unwrap().unwrap();
        assert_eq!((stored.sent.len(), stored.returned.len()), (1, 1));
    });
}

#[test]
fn restarted_master_resumes_its_batches() {
    in_system(async {
        let mut rig = Rig::new(4).await;
        let jid = rig.begin(size("2")).await;
        assert_eq!(rig.part(&jid).await, ["m1", "m2"]);
        rig.give_back(1, &jid, 0).await;
        assert_eq!(rig.part(&jid).await, ["m3"]);
        rig.running.master.shutdown().await;

        rig.running = rig.site.start();
        rig.events = listen(&rig.site).await;
        let identities: Vec<_> = rig.minions.iter().map(|m| m.identity.clone()).collect();
        rig.minions.clear();
        for identity in identities {
            rig.minions.push(identity.sign_in(&rig.running).await);
        }
        until(|| rig.running.metric("saltern_batch_minions_running") == 2.0).await;
        rig.give_back(3, &jid, 0).await;
        while rig.part(&jid).await != ["m4"] {}
        rig.give_back(2, &jid, 0).await;
        rig.give_back(4, &jid, 0).await;
        let complete = rig.event(&jid, "complete").await;
        assert_eq!(number(&complete, "completed"), 4);
        rig.running.master.shutdown().await;
    });
}

#[test]
fn actor_panic_costs_a_batch_nothing() {
    in_system(async {
        let mut rig = Rig::new(3).await;
        let jid = rig.begin(size("1")).await;
        assert_eq!(rig.part(&jid).await, ["m1"]);
        for (number, actor) in [(1, "batches"), (2, "job_tracker"), (3, "job_store")] {
            let restarts = rig.running.master.restarts(actor, 0).unwrap();
            assert!(rig.running.master.inject_panic(actor, 0));
            until(|| rig.running.master.restarts(actor, 0).unwrap() > restarts).await;
            rig.minions[number - 1]
                .return_until_acknowledged(jid.as_str())
                .await;
            if number < 3 {
                let next = format!("m{}", number + 1);
                while rig.part(&jid).await != [next.as_str()] {}
            }
        }
        let complete = rig.event(&jid, "complete").await;
        assert_eq!(number(&complete, "completed"), 3);
        rig.running.master.shutdown().await;
    });
}

/// Stock's command line leaves this for `-b 1 --async`: the first part is published under the jid
/// of the batch, the state lies in its file, and the event says so.
#[test]
fn stock_command_line_batch_is_adopted() {
    in_system(async {
        let mut rig = Rig::new(2).await;
        let jid = Jid::parse("20260102030405060708").unwrap();
        let targets = Value::Array(vec!["m1".into()]);
        let Value::Map(mut load) = rig.running.publish_load("list", targets) else {
            panic!("a load is a map");
        };
        load.push(("jid".into(), jid.as_str().into()));
        rig.running.ask(Value::Map(load)).await;
        assert_eq!(rig.part(&jid).await, ["m1"]);
        let names = |names: &[&str]| Value::Array(names.iter().map(|n| (*n).into()).collect());
        let empty = || Value::Map(Vec::new());
        let state = Value::map([
            ("jid", Value::from(jid.as_str())),
            ("all_minions", names(&["m1", "m2"])),
            ("pending", names(&["m2"])),
            ("active", Value::map([("m1", 1.7e9)])),
            ("done", empty()),
            ("failed", empty()),
            ("wait", names(&[])),
            ("batch_size", 1.into()),
            ("fun", "test.arg".into()),
            ("arg", names(&["x"])),
            ("kwargs", empty()),
            ("tgt", "*".into()),
            ("tgt_type", "glob".into()),
            ("failhard", false.into()),
            ("batch_wait", 0.into()),
            ("timeout", 5.into()),
            ("gather_job_timeout", 10.into()),
            ("last_progress", 1.7e9.into()),
            ("created", 1.7e9.into()),
            ("halted", false.into()),
            ("halted_reason", Value::Nil),
            ("driver", "master".into()),
            ("ret", "".into()),
            ("user", "ana".into()),
        ]);
        let files = rig.files();
        files.write(&jid, &encode(&state, Dialect::Bin)).unwrap();
        files.set_active(&jid, true).unwrap();
        let data = Value::map([("jid", jid.as_str())]);
        rig.fire(&format!("salt/batch/{jid}/new"), data).await;
        until(|| rig.running.metric("saltern_batch_minions_running") == 1.0).await;

        rig.give_back(1, &jid, 0).await;
        let new = rig.events.wait_for(&format!("salt/job/{jid}/new")).await;
        assert_eq!(new.get("minions"), Some(&names(&["m2"])));
        assert_eq!(new.get("user").and_then(Value::as_str), Some("ana"));
        assert_eq!(new.get("fun").and_then(Value::as_str), Some("test.arg"));
        assert_eq!(new.get("arg"), Some(&names(&["x"])));
        rig.give_back(2, &jid, 0).await;
        rig.event(&jid, "complete").await;
        until(|| rig.running.metric("saltern_batches_open") == 0.0).await;
        assert!(files.active().unwrap().is_empty());
        rig.running.master.shutdown().await;
    });
}

/// 3008's command line drives its own batch, and reports its state to the master.
#[test]
fn acknowledged_stop_of_a_batch_is_stored_without_state_files() {
    in_system(async {
        let mut rig = Rig::with("timeout: 3600\nlocal_cache_mirror: off\n", 2).await;
        let jid = rig.begin(Value::map([("size", "1")])).await;
        assert_eq!(rig.part(&jid).await, ["m1"]);
        let stop = rig.running.publish_load("glob", "*".into());
        let Value::Map(mut load) = stop else {
            panic!("a load is a map");
        };
        load.retain(|(name, _)| matches!(name.as_str(), Some("key" | "user")));
        let arguments = Value::map([
            ("arg", Value::Array(vec![jid.as_str().into()])),
            ("kwarg", Value::Map(Vec::new())),
        ]);
        load.extend([
            ("cmd".into(), "runner".into()),
            ("fun".into(), "batch.stop".into()),
            ("kwarg".into(), arguments),
        ]);
        let answer = rig.running.ask(Value::Map(load)).await;
        let answer = decode_wire(&answer, &saltern_wire::msgpack::Limits::WIRE).unwrap();
        let tag = answer.get("tag").and_then(Value::as_str).unwrap();
        let end = rig.events.wait_for(&format!("{tag}/ret")).await;
        assert_eq!(end.get("return"), Some(&true.into()));
        let stored = rig.site.reader().batch(&jid).unwrap().unwrap();
        assert_eq!(
            (stored.is_open, stored.halted.as_deref()),
            (false, Some("stop"))
        );
        rig.running.master.shutdown().await;
    });
}

#[test]
fn command_line_batch_is_shown_and_can_be_stopped() {
    in_system(async {
        let mut rig = Rig::new(1).await;
        let jid = Jid::parse("20260102030405060708").unwrap();
        let state = |done: &str| {
            let empty = || Value::Map(Vec::new());
            let state = [
                ("jid", Value::from(jid.as_str())),
                ("driver", "cli".into()),
                ("all_minions", Value::Array(vec!["m1".into()])),
                ("pending", Value::Array(Vec::new())),
                ("active", empty()),
                ("done", Value::map([(done, empty())])),
                ("failed", empty()),
                ("batch_size", 1.into()),
                ("fun", "test.ping".into()),
                ("created", 1.7e9.into()),
                ("halted", false.into()),
            ];
            Value::map([("state", Value::map(state))])
        };
        rig.fire(&format!("salt/batch/{jid}/new"), state("m0"))
            .await;
        until(|| rig.files().active().unwrap() == [jid.clone()]).await;
        rig.fire(&format!("salt/batch/{jid}/progress"), state("m1"))
            .await;
        until(|| rig.state(&jid, "done").get("m1").is_some()).await;
        assert_eq!(rig.running.metric("saltern_batches_open"), 0.0);
        let stop = Value::map([("jid", jid.as_str())]);
        rig.fire(&format!("salt/batch/{jid}/stop"), stop).await;
        let halted = rig.event(&jid, "halted").await;
        assert_eq!(
            halted.get("jid").and_then(Value::as_str),
            Some(jid.as_str())
        );
        assert_eq!(rig.state(&jid, "halted_reason"), "stop".into());
        until(|| rig.files().active().unwrap().is_empty()).await;
        rig.running.master.shutdown().await;
    });
}

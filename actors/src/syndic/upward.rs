//! Rows of the job database as the load of `_syndic_return` (`_return_pub_multi` in
//! `salt/minion.py`, `_syndic_return` in `salt/master.py`). No clock, no actor and no socket.

use std::collections::HashMap;

use indexmap::IndexSet;
use saltern_model::{Jid, MinionId, ReturnRecord};
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value};

/// The entries of a minion's return that go up, as from stock's syndic.
const OF_MINION: [&str; 4] = ["return", "retcode", "success", "fun_args"];

/// Returns of one job that stand together.
struct OfJob {
    jid: Jid,
    /// Entries that all of its returns share.
    common: Vec<(Value, Value)>,
    load: Value,
    returns: Vec<(Value, Value)>,
}

/// Returns that go up together, by their jobs. The returns of one minion keep their order: where it
/// would be lost, a job stands there twice.
#[derive(Default)]
pub(crate) struct SyndicReturn {
    jobs: Vec<OfJob>,
    jids: IndexSet<Jid>,
    /// The last place of each job, and of each minion.
    job_at: HashMap<Jid, usize>,
    minion_at: HashMap<MinionId, usize>,
}

impl SyndicReturn {
    /// Adds a return; `load` is asked for the load of a job that has not gone up yet.
    pub(crate) fn add(&mut self, row: &ReturnRecord, load: impl FnOnce() -> Option<Value>) {
        let fields = MapView::parse(row.load.bytes().clone(), &Limits::WIRE).unwrap_or_default();
        let after = self.minion_at.get(&row.minion).copied().unwrap_or(0);
        let known = self.job_at.get(&row.jid).copied();
        let at = known.filter(|at| *at >= after).unwrap_or(self.jobs.len());
        if at == self.jobs.len() {
            let load = match self.jids.insert(row.jid.clone()) {
                true => load(),
                false => None,
            };
            self.jobs.push(OfJob {
                jid: row.jid.clone(),
                common: common(row, &fields),
                load: load.unwrap_or_else(|| Value::Map(Vec::new())),
                returns: Vec::new(),
            });
            self.job_at.insert(row.jid.clone(), at);
        }
        self.minion_at.insert(row.minion.clone(), at);
        let Some(job) = self.jobs.get_mut(at) else {
            return;
        };
        let entries = OF_MINION
            .iter()
            .filter_map(|name| Some((Value::from(*name), fields.get(name)?.decode())));
        let entries = Value::Map(entries.collect());
        job.returns.push((row.minion.as_str().into(), entries));
    }

    /// Whether there is a return of this job in it.
    pub(crate) fn has(&self, jid: &Jid) -> bool {
        self.jids.contains(jid)
    }

    /// The jids of its jobs.
    pub(crate) fn jids(&self) -> impl Iterator<Item = &Jid> {
        self.jids.iter()
    }

    /// The list of the request, of the syndic `id`.
    pub(crate) fn to_value(&self, id: &str) -> Value {
        let jobs = self.jobs.iter().map(|job| {
            let mut entries = vec![
                ("id".into(), id.into()),
                ("jid".into(), job.jid.as_str().into()),
                ("arg".into(), Value::Nil),
                ("tgt".into(), Value::Nil),
                ("tgt_type".into(), Value::Nil),
                ("load".into(), job.load.clone()),
                ("return".into(), Value::Map(job.returns.clone())),
            ];
            entries.extend(job.common.iter().cloned());
            Value::Map(entries)
        });
        Value::Array(jobs.collect())
    }
}

/// Function, outputter and master of a job, from the first of its returns.
fn common(row: &ReturnRecord, fields: &MapView) -> Vec<(Value, Value)> {
    let fun = fields.get("fun").map(RawValue::decode);
    let mut common = vec![(
        Value::from("fun"),
        fun.unwrap_or_else(|| row.fun.as_str().into()),
    )];
    for name in ["master_id", "out"] {
        if let Some(value) = fields.get(name) {
            common.push((name.into(), value.decode()));
        }
    }
    common
}

/// The `master_id` of a return.
pub(crate) fn master_id(row: &ReturnRecord) -> Option<String> {
    let fields = MapView::parse(row.load.bytes().clone(), &Limits::WIRE).ok()?;
    fields.str("master_id").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use saltern_model::{MinionId, Packed};
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;

    fn row(jid: &str, minion: &str, value: i64) -> ReturnRecord {
        let load = Value::map([
            ("jid", Value::from(jid)),
            ("id", minion.into()),
            ("return", Value::from(value)),
            ("retcode", Value::from(0_i64)),
            ("success", Value::Bool(true)),
            ("fun", "state.apply".into()),
            ("fun_args", Value::Array(Vec::new())),
            ("out", "highstate".into()),
            ("user", "root".into()),
        ]);
        ReturnRecord {
            jid: Jid::parse(jid).unwrap(),
            minion: MinionId::parse(minion).unwrap(),
            received: 1,
            fun: "state.apply".to_owned(),
            retcode: 0,
            success: true,
            load: Packed::new(encode(&load, Dialect::Bin)),
        }
    }

    #[test]
    fn returns_of_one_job_go_up_together_with_its_load_once() {
        let (one, two) = ("20260101000000000001", "20260101000000000002");
        let mut up = SyndicReturn::default();
        up.add(&row(one, "a", 1), || Some(Value::map([("fun", "x")])));
        up.add(&row(two, "a", 2), || None);
        up.add(&row(one, "b", 3), || panic!("the load is there already"));
        assert_eq!(up.jids().count(), 2);
        let value = up.to_value("relay");
        let jobs = value.as_array().unwrap();
        let first = &jobs[0];
        assert_eq!(first.get("id").and_then(Value::as_str), Some("relay"));
        assert_eq!(first.get("jid").and_then(Value::as_str), Some(one));
        assert_eq!(first.get("out").and_then(Value::as_str), Some("highstate"));
        assert_eq!(first.get("load"), Some(&Value::map([("fun", "x")])));
        let returns = first.get("return").unwrap();
        let of_b = returns.get("b").unwrap();
        assert_eq!(of_b.get("return"), Some(&Value::from(3_i64)));
        assert_eq!(of_b.get("user"), None, "only what stock's syndic sends");
        assert_eq!(jobs[1].get("load"), Some(&Value::Map(Vec::new())));
    }

    #[test]
    fn returns_of_one_minion_keep_their_order() {
        let (one, two) = ("20260101000000000001", "20260101000000000002");
        let mut up = SyndicReturn::default();
        for (jid, minion) in [(one, "a"), (two, "b"), (one, "b"), (two, "a")] {
            up.add(&row(jid, minion, 1), || None);
        }
        assert_eq!(up.jids().count(), 2);
        let value = up.to_value("relay");
        let jids = value.as_array().unwrap().iter();
        let jids: Vec<_> = jids.filter_map(|job| job.get("jid")?.as_str()).collect();
        assert_eq!(jids, [one, two, one]);
    }
}

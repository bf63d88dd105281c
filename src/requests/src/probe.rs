//! Probes: the master asks minions which jobs they run.
//!
//! `saltutil.running` and not `saltutil.find_job`, because its answer covers all jobs at once;
//! minions of all lines have it, and list exactly the jobs that `find_job` would find
//! (`salt/utils/minion.py`). Metadata distinguishes a probe from a user's job: minions send it back
//! as it came (`salt/minion.py`), so a late answer is recognised too. Answers are never stored nor
//! fired.

use saltern_model::{Jid, MinionId, Packed};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::outcome::{ProbeAnswer, Publication, Topics};

const FUN: &str = "saltutil.running";

/// The entry of the metadata that marks a probe.
const MARK: &str = "saltern_probe";

/// Jobs that one answer may name; stock minions run a hundred at a time by default.
const MAX_JOBS: usize = 10_000;

/// Longer descriptions of a running job, in bytes, are cut down to the entries that identify it: a
/// description bears the whole load, with a list target of all minions and all arguments, and is
/// kept for each of the minions while they run it.
const MAX_DESCRIBED: usize = 512;

/// The probe, for these minions only.
pub fn publication(probe: &Jid, minions: Vec<MinionId>, user: &str) -> Publication {
    let names = minions.iter().map(|minion| minion.as_str().into());
    let load = [
        ("fun", Value::from(FUN)),
        ("arg", Value::Array(Vec::new())),
        ("tgt", Value::Array(names.collect())),
        ("jid", Value::from(probe.as_str())),
        ("ret", Value::from("")),
        ("tgt_type", Value::from("list")),
        ("user", Value::from(user)),
        ("metadata", Value::map([(MARK, true)])),
    ];
    Publication::of_master(&load, Topics::Minions(minions))
}

/// Whether a return of this function may answer a probe: on its way through a syndic the probe
/// loses its mark (`syndic_cmd` in `salt/minion.py`).
pub fn may_answer(fun: &str) -> bool {
    fun == FUN
}

/// Whether a return answers a probe.
pub(crate) fn is_answer(load: &MapView) -> bool {
    load.str("fun") == Some(FUN)
        && load
            .get("metadata")
            .and_then(RawValue::as_map)
            .is_some_and(|metadata| metadata.contains(MARK))
}

/// Parses the answer; `None` when it bears no jid.
pub fn answer(load: &MapView, minion: MinionId) -> Option<ProbeAnswer> {
    let probe = Jid::parse(load.str("jid")?).ok()?;
    // A text is an error: the function does not exist, or failed.
    let jobs = load.get("return").and_then(RawValue::as_array);
    let running = jobs.map(|jobs| {
        let jobs = jobs.iter().take(MAX_JOBS);
        jobs.filter_map(running_job).collect()
    });
    Some(ProbeAnswer {
        probe,
        minion,
        running,
    })
}

fn running_job(job: &RawValue) -> Option<(Jid, Packed)> {
    let fields = job.as_map()?;
    let jid = Jid::parse(fields.str("jid")?).ok()?;
    let whole = job.to_bin_dialect();
    let described = if whole.len() <= MAX_DESCRIBED {
        whole.to_vec()
    } else {
        essence(&fields, &jid)
    };
    Some((jid, Packed::new(described)))
}

/// The identifying entries of a long description. Stock's client only checks whether there are any
/// (`get_cli_event_returns` and `gather_job_info` in `salt/client/__init__.py`).
fn essence(fields: &MapView, jid: &Jid) -> Vec<u8> {
    let mut entries = vec![("jid", Value::from(jid.as_str()))];
    let fun = fields
        .str("fun")
        .filter(|fun| fun.len() <= MAX_DESCRIBED / 2);
    entries.extend(fun.map(|fun| ("fun", fun.into())));
    let pid = fields.get("pid").and_then(RawValue::as_i64);
    entries.extend(pid.map(|pid| ("pid", pid.into())));
    encode(&Value::map(entries), Dialect::Bin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saltern_wire::msgpack::{Limits, decode_exact};

    fn load(fun: &str, metadata: Value, returned: Value) -> MapView {
        let load = Value::map([
            ("jid", Value::from("20260102030405000007")),
            ("fun", Value::from(fun)),
            ("metadata", metadata),
            ("return", returned),
        ]);
        MapView::parse(encode(&load, Dialect::Raw).into(), &Limits::WIRE).unwrap()
    }

    #[test]
    fn long_job_description_is_cut_to_identifying_entries() {
        let described = |arg: &str| {
            let job = Value::map([
                ("jid", Value::from("20260102030405000001")),
                ("fun", Value::from("cmd.run")),
                ("pid", Value::from(7_i64)),
                ("arg", Value::from(arg)),
            ]);
            let load = load(FUN, Value::map([(MARK, true)]), Value::Array(vec![job]));
            let read = answer(&load, MinionId::parse("m1").unwrap()).unwrap();
            let (_, described) = read.running.unwrap().remove(0);
            assert!(described.as_ref().len() <= MAX_DESCRIBED);
            decode_exact(described.as_ref(), &Limits::WIRE).unwrap()
        };
        let whole = described("sleep 1");
        assert_eq!(whole.get("arg").and_then(Value::as_str), Some("sleep 1"));
        let long = described(&"x".repeat(10_000));
        assert_eq!(long.get("arg"), None);
        assert_eq!(long.get("fun").and_then(Value::as_str), Some("cmd.run"));
        assert_eq!(long.get("pid").and_then(Value::as_i64), Some(7));
    }

    #[test]
    fn probe_answer_is_recognised_by_mark_and_parsed() {
        let jobs = Value::Array(vec![
            Value::map([("jid", "20260102030405000001"), ("fun", "cmd.run")]),
            Value::map([("jid", "none")]),
            Value::from("nothing"),
        ]);
        let mark = || Value::map([(MARK, true)]);
        let marked = load(FUN, mark(), jobs.clone());
        assert!(is_answer(&marked));
        let minion = || MinionId::parse("m1").unwrap();
        let read = answer(&marked, minion()).unwrap();
        assert_eq!(read.probe.as_str(), "20260102030405000007");
        let running = read.running.unwrap();
        let jids: Vec<&str> = running.iter().map(|(jid, _)| jid.as_str()).collect();
        assert_eq!(jids, ["20260102030405000001"]);
        // A user's own call is a job like any other.
        assert!(!is_answer(&load(FUN, Value::Nil, jobs.clone())));
        assert!(!is_answer(&load("test.ping", mark(), jobs)));
        let cannot = load(
            FUN,
            mark(),
            Value::from("'saltutil.running' is not available."),
        );
        assert!(answer(&cannot, minion()).unwrap().running.is_none());
    }
}

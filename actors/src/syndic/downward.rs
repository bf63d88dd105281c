//! A publication from a master above as a job for the gate of this master (`syndic_cmd` in
//! `salt/minion.py`). No clock, no actor and no socket.
//!
//! More of it goes on than with stock's syndic, which loses all settings of the user but three:
//! `metadata`, `delimiter`, the settings of returners and executors.

use std::time::Duration;

use saltern_client::PublishRequest;
use saltern_policy::target::names_in_list;
use saltern_requests::job::UPPER;
use saltern_wire::msgpack::{MapView, RawValue, Value};

/// Settings of a job that go on to the minions; stock's syndic loses them.
const PASSED_ON: [&str; 7] = [
    "delimiter",
    "executor_opts",
    "metadata",
    "module_executors",
    "ret_config",
    "ret_kwargs",
    "start_event",
];

/// The probe of a master: its mark is taken off, or the answer would end at this master.
const PROBE: &str = "saltutil.running";

/// The question of a waiting client above. This master would answer it from what it knows, on its
/// own bus alone; `show_jid` makes it a job, whose returns are stored and go up.
const QUESTION: &str = "saltutil.find_job";

/// Why a publication is not published here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotForUs {
    /// It comes from this master itself.
    #[error("it was published by this master, and came back through the masters above")]
    Loop,
    /// It has come through too many masters.
    #[error("it would go through more than eight masters")]
    TooDeep,
    /// It lacks what a job needs.
    #[error("it has no usable \"{0}\"")]
    Malformed(&'static str),
}

/// Names by which a publication is read.
pub(crate) struct ReadAs<'a> {
    /// The master above.
    pub(crate) upper: &'a str,
    /// This master's `master_id`.
    pub(crate) master_id: Option<&'a str>,
    /// The time that a job has when the publication names none.
    pub(crate) timeout: Duration,
}

/// Reads a publication.
///
/// # Errors
/// When it is not for this master, or no job.
pub(crate) fn job_of(load: &MapView, reading: &ReadAs<'_>) -> Result<PublishRequest, NotForUs> {
    let from = load.get("master_id");
    if from.is_some() && from.and_then(RawValue::as_str) == reading.master_id {
        return Err(NotForUs::Loop);
    }
    let part = |name: &'static str| load.get(name).map(RawValue::decode);
    let needed = |name: &'static str| part(name).ok_or(NotForUs::Malformed(name));
    let arg = needed("arg")?;
    let fun = needed("fun")?;
    let mut kwargs = vec![
        (
            "auth_list".to_owned(),
            part("auth_list").unwrap_or_else(|| Value::Array(Vec::new())),
        ),
        (UPPER.to_owned(), reading.upper.into()),
    ];
    let is_probe = fun.as_str() == Some(PROBE);
    let settings = PASSED_ON
        .iter()
        .filter(|name| !is_probe || **name != "metadata");
    for name in ["master_id", "user"].iter().chain(settings) {
        if let Some(value) = part(name) {
            kwargs.push(((*name).to_owned(), value));
        }
    }
    if fun.as_str() == Some(QUESTION) {
        kwargs.push(("show_jid".to_owned(), Value::Bool(false)));
    }
    Ok(PublishRequest {
        tgt: needed("tgt")?,
        tgt_type: load.str("tgt_type").unwrap_or("glob").to_owned(),
        fun,
        arg: arg.as_array().ok_or(NotForUs::Malformed("arg"))?.to_vec(),
        ret: load.str("ret").unwrap_or_default().to_owned(),
        kwargs,
        timeout: Some(time_left(load, reading.timeout)),
        batch: None,
        jid: load
            .str("jid")
            .filter(|jid| !jid.is_empty())
            .ok_or(NotForUs::Malformed("jid"))?
            .to_owned(),
    })
}

/// The minions of a publication whose target is a list, by the rule by which it is resolved here.
pub(crate) fn minions_of(load: &MapView) -> Option<Vec<String>> {
    if load.str("tgt_type") != Some("list") {
        return None;
    }
    let tgt = load.get("tgt")?;
    Some(match (tgt.as_array(), tgt.as_str()) {
        (Some(names), _) => names
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        (None, names) => names_in_list(names?).map(str::to_owned).collect(),
    })
}

/// A second less than the master above has: this master takes part of it.
fn time_left(load: &MapView, timeout: Duration) -> Duration {
    let given = load.get("to").and_then(RawValue::as_i64);
    let given = given.map_or(timeout, |seconds| {
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    });
    given.saturating_sub(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_wire::msgpack::{Dialect, Limits, encode};

    use super::*;

    const READ_AS: ReadAs<'static> = ReadAs {
        upper: "top:4506",
        master_id: Some("own"),
        timeout: Duration::from_secs(5),
    };

    fn load(more: Vec<(&str, Value)>) -> MapView {
        let mut entries = vec![
            ("fun", Value::from("test.ping")),
            ("arg", Value::Array(Vec::new())),
            ("tgt", "*".into()),
            ("jid", "20260101000000000001".into()),
            ("ret", "".into()),
            ("user", "ann".into()),
        ];
        entries.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        entries.extend(more);
        let packed = encode(&Value::map(entries), Dialect::Raw);
        MapView::parse(Bytes::from(packed), &Limits::WIRE).unwrap()
    }

    fn kwarg<'a>(job: &'a PublishRequest, name: &str) -> Option<&'a Value> {
        let found = job.kwargs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    #[test]
    fn publication_keeps_jid_user_rules_and_master_and_has_a_second_less() {
        let rules = Value::Array(vec!["test.*".into()]);
        let load = load(vec![
            ("to", 10_i64.into()),
            ("auth_list", rules.clone()),
            ("master_id", "top".into()),
            ("metadata", Value::map([("a", 1_i64)])),
        ]);
        let job = job_of(&load, &READ_AS).unwrap();
        assert_eq!(job.jid, "20260101000000000001");
        assert_eq!(job.tgt_type, "glob");
        assert_eq!(job.timeout, Some(Duration::from_secs(9)));
        assert_eq!(kwarg(&job, "auth_list"), Some(&rules));
        assert_eq!(kwarg(&job, "user"), Some(&"ann".into()));
        assert_eq!(kwarg(&job, "master_id"), Some(&"top".into()));
        assert_eq!(kwarg(&job, UPPER), Some(&"top:4506".into()));
        assert!(kwarg(&job, "metadata").is_some());
    }

    #[test]
    fn minions_of_a_publication_are_those_of_its_list() {
        let of = |tgt: Value, kind: &str| {
            minions_of(&load(vec![("tgt", tgt), ("tgt_type", kind.into())]))
        };
        let names = Some(vec!["a".to_owned(), "b".to_owned()]);
        let list = Value::Array(vec!["a".into(), "b".into()]);
        assert_eq!(of(list, "list"), names);
        assert_eq!(of("a,,b,".into(), "list"), names);
        let with_blank = Some(vec!["a".to_owned(), " b".to_owned()]);
        assert_eq!(of("a, b".into(), "list"), with_blank);
        let list = Value::Array(vec!["a".into(), " b".into()]);
        assert_eq!(of(list, "list"), with_blank, "in either form");
        assert_eq!(of("a,b".into(), "glob"), None);
        assert_eq!(of(1_i64.into(), "list"), None);
        assert_eq!(minions_of(&load(Vec::new())), None);
    }

    #[test]
    fn publication_of_this_master_is_a_loop_and_half_a_job_is_none() {
        let own = load(vec![("master_id", "own".into())]);
        assert_eq!(job_of(&own, &READ_AS).unwrap_err(), NotForUs::Loop);
        let unnamed = ReadAs {
            master_id: None,
            ..READ_AS
        };
        assert!(job_of(&own, &unnamed).is_ok());
        assert!(job_of(&load(Vec::new()), &unnamed).is_ok());
        let bad = load(vec![("arg", "x".into())]);
        assert_eq!(
            job_of(&bad, &READ_AS).unwrap_err(),
            NotForUs::Malformed("arg")
        );
        let bad = load(vec![("jid", "".into())]);
        assert_eq!(
            job_of(&bad, &READ_AS).unwrap_err(),
            NotForUs::Malformed("jid")
        );
    }

    #[test]
    fn probe_of_a_master_above_loses_its_mark() {
        let probe = load(vec![
            ("fun", PROBE.into()),
            ("metadata", Value::map([("saltern_probe", true)])),
            ("to", 0_i64.into()),
        ]);
        let job = job_of(&probe, &READ_AS).unwrap();
        assert_eq!(kwarg(&job, "metadata"), None);
        assert_eq!(job.timeout, Some(Duration::ZERO));
        let question = load(vec![("fun", QUESTION.into())]);
        let job = job_of(&question, &READ_AS).unwrap();
        assert!(kwarg(&job, "show_jid").is_some());
    }
}

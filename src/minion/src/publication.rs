//! A publication: read, and turned into the return that answers it.

use std::fmt;

use saltern_wire::msgpack::{MapView, Value};

use crate::functions::{self, FunctionReturn};
use crate::matching::matches;

/// Content of a publication.
pub(crate) struct Publication {
    pub(crate) jid: String,
    /// One function, or several with an argument list each.
    pub(crate) functions: Functions,
    /// Everything, for `find_job` and `__pub_…`.
    pub(crate) load: Value,
}

/// One function or several. Has no `Debug`: passwords are among the arguments.
#[derive(Clone)]
pub(crate) enum Functions {
    One(String, Vec<Value>),
    Several(Vec<(String, Vec<Value>)>),
}

/// The names alone.
impl fmt::Display for Functions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions = match self {
            Self::One(name, _) => return formatter.write_str(name),
            Self::Several(functions) => functions,
        };
        for (number, (name, _)) in functions.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(formatter, "{comma}{name}")?;
        }
        Ok(())
    }
}

impl Publication {
    /// Reads a load; `None` when it is incomplete or not for the minion `id` with these grains.
    pub(crate) fn read(load: &MapView, id: &str, grains: &Value) -> Option<Self> {
        let tgt = load.get("tgt")?.decode();
        let delimiter = load.str("delimiter").unwrap_or(":");
        if !matches((load.str("tgt_type"), delimiter), &tgt, id, grains) {
            return None;
        }
        let jid = load.str("jid")?.to_owned();
        let arg = load.get("arg")?.decode();
        let arg = arg.as_array()?;
        let fun = load.get("fun")?.decode();
        let functions = match &fun {
            Value::Array(names) => {
                let lists = arg
                    .iter()
                    .map(|list| list.as_array().map_or_else(Vec::new, Vec::from));
                let names = names.iter().map(crate::python::text);
                Functions::Several(
                    names
                        .zip(lists.chain(std::iter::repeat(Vec::new())))
                        .collect(),
                )
            }
            name => Functions::One(name.as_str()?.to_owned(), arg.to_vec()),
        };
        let fields = load
            .iter()
            .filter(|(key, _)| key.as_str() != Some("serial"));
        let load = fields
            .map(|(key, value)| (key.decode(), value.decode()))
            .collect();
        Some(Self {
            jid,
            functions,
            load: Value::Map(load),
        })
    }

    /// Whether every function in it is over at once.
    pub(crate) fn is_quick(&self) -> bool {
        let quick = |name: &str| functions::find(name).is_none_or(|function| function.quick);
        match &self.functions {
            Functions::One(name, _) => quick(name),
            Functions::Several(calls) => calls.iter().all(|(name, _)| quick(name)),
        }
    }

    /// Whether it asks what runs (`saltutil.find_job`, `saltutil.running`).
    pub(crate) fn is_probe(&self) -> bool {
        matches!(&self.functions, Functions::One(name, _)
            if name == "saltutil.find_job" || name == "saltutil.running")
    }

    /// The fields of the return, in stock's order (`_thread_return`, `_prepare_return_pub`).
    pub(crate) fn return_fields(
        &self,
        id: &str,
        outcome: Outcome,
        now: String,
    ) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("cmd", Value::from("_return")),
            ("id", Value::from(id)),
            ("success", outcome.success),
            ("return", outcome.value),
            ("retcode", outcome.retcode),
            ("jid", Value::from(self.jid.as_str())),
        ];
        let copied = [
            ("fun", "fun"),
            ("fun_args", "arg"),
            ("user", "user"),
            ("master_id", "master_id"),
        ];
        for (name, source) in copied {
            if let Some(value) = self.load.get(source) {
                fields.push((name, value.clone()));
            }
        }
        if let Some(metadata @ Value::Map(_)) = self.load.get("metadata") {
            fields.push(("metadata", metadata.clone()));
        }
        if let Some(out) = outcome.out {
            fields.push(("out", Value::from(out)));
        }
        fields.push(("_stamp", Value::from(now)));
        fields
    }
}

/// Result of a job: single values, or a map by function for each.
pub(crate) struct Outcome {
    pub(crate) value: Value,
    pub(crate) retcode: Value,
    pub(crate) success: Value,
    pub(crate) out: Option<&'static str>,
}

impl From<FunctionReturn> for Outcome {
    fn from(answer: FunctionReturn) -> Self {
        Self {
            value: answer.value,
            retcode: Value::from(answer.retcode),
            success: Value::from(answer.success),
            out: answer.out,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_wire::msgpack::{Dialect, Limits, encode};

    use super::*;

    fn load(entries: Vec<(&str, Value)>) -> MapView {
        let packed = encode(&Value::map(entries), Dialect::Raw);
        MapView::parse(Bytes::from(packed), &Limits::WIRE).expect("it is a map")
    }

    #[test]
    fn functions_display_without_arguments() {
        let secret = || vec![Value::from("password=x")];
        let one = Functions::One("cmd.run".to_owned(), secret());
        assert_eq!(one.to_string(), "cmd.run");
        let two = ["cmd.run", "test.ping"].map(|name| (name.to_owned(), secret()));
        assert_eq!(
            Functions::Several(two.into()).to_string(),
            "cmd.run, test.ping"
        );
    }

    #[test]
    fn incomplete_and_foreign_publications_are_ignored() {
        let whole = vec![
            ("fun", Value::from("test.ping")),
            ("arg", Value::from(Vec::new())),
            ("tgt", Value::from("m*")),
            ("jid", Value::from("20261121070622637714")),
            ("serial", Value::from(7_i64)),
        ];
        let read =
            Publication::read(&load(whole.clone()), "m1", &Value::Nil).expect("it is for m1");
        assert_eq!(read.jid, "20261121070622637714");
        assert_eq!(read.load.get("serial"), None);
        assert!(Publication::read(&load(whole.clone()), "x", &Value::Nil).is_none());
        for absent in 0..4 {
            let mut part = whole.clone();
            part.remove(absent);
            assert!(
                Publication::read(&load(part), "m1", &Value::Nil).is_none(),
                "without field {absent}"
            );
        }
    }
}

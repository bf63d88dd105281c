//! `test.*`: functions that only exercise the way to them (`salt/runners/test.py`).

use std::time::Duration;

use saltern_content::pillar::master_options;
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Keywords, Optional, Rest};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("arg", &[Rest, Keywords], |_, bound, _| {
        Ok(arguments(bound, bound.own_keywords()))
    }),
    function("get_opts", &[], |context, _, _| {
        Ok(master_options(&context.config))
    }),
    function("metasyntactic", &[Optional("locality")], metasyntactic),
    function("raw_arg", &[Rest, Keywords], |_, bound, _| {
        Ok(arguments(bound, bound.keywords().iter().copied()))
    }),
    function("sleep", &[Optional("s_time")], sleep),
    // Stock prints to the log of a daemon, where nobody reads it.
    function("stdout_print", &[], |_, _, _| Ok("bar".into())),
    function("stream", &[], stream),
];

/// The longest sleep: a sleeping call holds one of few threads.
const MAX_SLEEP_SECONDS: f64 = 300.0;

fn arguments<'a>(bound: &Bound<'a>, named: impl Iterator<Item = (&'a str, &'a Value)>) -> Value {
    let named = named.map(|(name, value)| (Value::from(name), value.clone()));
    Value::map([
        ("args", Value::Array(bound.rest().to_vec())),
        ("kwargs", Value::Map(named.collect())),
    ])
}

fn metasyntactic(_: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let words: &[&str] = match bound.text("locality")?.as_deref() {
        None | Some("us") => &[
            "foo", "bar", "baz", "qux", "quux", "quuz", "corge", "grault", "garply", "waldo",
            "fred", "plugh", "xyzzy", "thud",
        ],
        Some("uk") => &["wibble", "wobble", "wubble", "flob"],
        Some(_) => return Ok(Value::Nil),
    };
    Ok(Value::Array(
        words.iter().map(|word| Value::from(*word)).collect(),
    ))
}

fn sleep(_: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let seconds = match bound.get("s_time") {
        None => 10.0,
        Some(value) => value.as_f64().unwrap_or(-1.0),
    };
    if !(0.0..=MAX_SLEEP_SECONDS).contains(&seconds) {
        let text = format!("\"s_time\" has to be a number of seconds up to {MAX_SLEEP_SECONDS}");
        return Err(RunnerError::Refused(text));
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    Ok(true.into())
}

fn stream(_: &RunnerContext, _: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    for percent in 1..100 {
        notices.say(&format!("Runner is {percent}% done"));
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(true.into())
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;

    use super::*;
    use crate::testing::{TestSite, list};

    #[test]
    fn arg_returns_its_arguments() {
        let site = TestSite::new(Compat::V3008, "");
        let named = [("bar", Value::from("baz")), ("__x", 1.into())];
        let both = |kwargs: &[(&str, Value)]| {
            Value::map([
                ("args", list(&["foo"])),
                ("kwargs", Value::map(kwargs.iter().cloned())),
            ])
        };
        let given = site.runner_value("test.arg", &["foo".into()], &named);
        assert_eq!(given, both(&named[..1]));
        let given = site.runner_value("test.raw_arg", &["foo".into()], &named);
        assert_eq!(given, both(&named));
    }

    #[test]
    fn sleep_ends_and_has_bounds() {
        let site = TestSite::new(Compat::V3008, "");
        let sleep = |seconds: Value| site.runner("test.sleep", &[seconds], &[]).0;
        assert_eq!(sleep(0.into()).value, true.into());
        for wrong in [(-1).into(), 1e9.into(), f64::NAN.into(), "x".into()] {
            assert_eq!(sleep(wrong).retcode, Some(1));
        }
    }

    #[test]
    fn get_opts_hides_secrets() {
        let options = "signing_key_pass: hidden\nsharedsecret: hidden\n";
        let site = TestSite::new(Compat::V3008, options);
        let shown = site.runner_value("test.get_opts", &[], &[]);
        assert_eq!(shown.get("id"), Some(&"host_master".into()));
        assert_eq!(shown.get("signing_key_pass"), Some(&Value::Nil));
        assert!(shown.get("sharedsecret").is_none());
    }
}

//! Calls of functions under way, with the steps of those that are orchestrations.
//!
//! An orchestration announces its steps by events: with stock's `salt/run/JID/args` some of them as they
//! begin, with our `saltern/run/JID/step` each as it ends. Whoever sees the bus hands them in
//! ([`RunningCalls::hear`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_model::query::{CallStep, RunningCall};
use saltern_model::{Event, Jid};
use saltern_wire::msgpack::{Limits, Value, decode};

use crate::call::Call;

/// Steps of one call whose beginnings are remembered, and as many whose ends are.
const MAX_STEPS: usize = 1_000;

/// The kind of the end of a step.
const RESULT: &str = "result";

/// Characters of a name or a comment.
const MAX_TEXT: usize = 500;

/// The calls under way.
#[derive(Default)]
pub struct RunningCalls(Mutex<BTreeMap<Jid, RunningCall<Value>>>);

impl RunningCalls {
    /// All of them, oldest first.
    pub fn all(&self) -> Vec<RunningCall<Value>> {
        self.0.lock().values().cloned().collect()
    }

    /// The calls as stock's `proc` files describe them, oldest first.
    pub(crate) fn described(&self) -> Vec<Value> {
        let calls = self.0.lock();
        let calls = calls.values().map(|call| {
            Value::map([
                ("fun", Value::from(call.function.as_str())),
                ("jid", call.jid.as_str().into()),
                ("user", call.user.as_str().into()),
                ("fun_args", call.arguments.clone()),
                ("pid", std::process::id().into()),
            ])
        });
        calls.collect()
    }

    /// Takes an event of the bus: most are of no call.
    pub fn hear(&self, event: &Event, now: i64) {
        let Some((jid, has_ended)) = step_of(event.tag.as_str()) else {
            return;
        };
        let Ok(jid) = Jid::parse(jid) else { return };
        if !self.0.lock().contains_key(&jid) {
            return;
        }
        let Ok(data) = decode(event.data.bytes().as_ref(), &Limits::WIRE) else {
            return;
        };
        let step = match has_ended {
            true => ended_step(&data, now),
            false => begun_step(&data, now),
        };
        if let Some(call) = self.0.lock().get_mut(&jid) {
            let alike = call.steps.iter().filter(|one| is_result(one) == has_ended);
            match alike.count() < MAX_STEPS {
                true => call.steps.push(step),
                false => call.left_out += 1,
            }
        }
    }
}

fn is_result(step: &CallStep<Value>) -> bool {
    step.kind == RESULT
}

/// The call whose step an event announces, and whether it is its end.
fn step_of(tag: &str) -> Option<(&str, bool)> {
    if let Some(rest) = tag.strip_prefix("salt/run/") {
        return Some((rest.strip_suffix("/args")?, false));
    }
    let jid = tag.strip_prefix("saltern/run/")?.strip_suffix("/step")?;
    Some((jid, true))
}

fn text(value: Option<&Value>) -> String {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    text.chars().take(MAX_TEXT).collect()
}

fn begun_step(data: &Value, at: i64) -> CallStep<Value> {
    CallStep {
        at,
        kind: text(data.get("type")),
        name: text(data.get("name")),
        id: None,
        target: data.get("tgt").cloned().unwrap_or(Value::Nil),
        result: None,
        comment: None,
    }
}

fn ended_step(data: &Value, at: i64) -> CallStep<Value> {
    let id = text(data.get("id"));
    CallStep {
        at,
        kind: RESULT.to_owned(),
        name: text(data.get("name")),
        id: (!id.is_empty()).then_some(id),
        target: Value::Nil,
        result: data.get("result").and_then(Value::as_bool),
        comment: Some(text(data.get("comment"))),
    }
}

/// Entry of a call under way; removed when dropped, also if its function panics.
pub(crate) struct Entry {
    calls: Arc<RunningCalls>,
    jid: Jid,
}

impl Entry {
    pub(crate) fn new(calls: &Arc<RunningCalls>, kind: &str, call: &Call, clock: &Clock) -> Self {
        let running = RunningCall {
            jid: call.jid.clone(),
            function: format!("{kind}.{}", call.fun),
            user: call.user.clone(),
            arguments: call.arguments.to_value(),
            began: clock.unix_micros(),
            steps: Vec::new(),
            left_out: 0,
        };
        calls.0.lock().insert(call.jid.clone(), running);
        Self {
            calls: Arc::clone(calls),
            jid: call.jid.clone(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.jid);
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::{Packed, Tag};
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;
    use crate::call::Arguments;

    fn event(tag: &str, data: &Value) -> Event {
        Event {
            tag: Tag::parse(tag).unwrap(),
            data: Packed::new(encode(data, Dialect::Bin)),
        }
    }

    #[test]
    fn steps_of_running_call_are_remembered_until_it_ends() {
        let calls = Arc::new(RunningCalls::default());
        let jid = Jid::parse("20260102030405060708").unwrap();
        let call = Call {
            jid: jid.clone(),
            fun: "state.orchestrate".to_owned(),
            arguments: Arguments::default(),
            user: "ann".to_owned(),
        };
        let begun = Value::map([
            ("type", Value::from("state")),
            ("name", "deploy".into()),
            ("tgt", "web*".into()),
        ]);
        let ended = Value::map([
            ("id", Value::from("roll out")),
            ("name", "deploy".into()),
            ("result", false.into()),
            ("comment", "no".into()),
        ]);
        let of_step = event(&format!("salt/run/{jid}/args"), &begun);
        calls.hear(&of_step, 1);
        let entry = Entry::new(&calls, "runner", &call, &Clock::system());
        calls.hear(&of_step, 2);
        calls.hear(&event(Tag::step(&jid).as_str(), &ended), 3);
        calls.hear(&event(&format!("salt/run/{jid}/new"), &begun), 4);
        calls.hear(&event("salt/run/20260102030405060709/args", &begun), 5);
        let [running] = calls.all().try_into().unwrap();
        assert_eq!(running.function, "runner.state.orchestrate");
        let steps = running.steps.iter();
        let steps: Vec<_> = steps
            .map(|step| (step.at, step.kind.as_str(), step.name.as_str(), step.result))
            .collect();
        assert_eq!(
            steps,
            [
                (2, "state", "deploy", None),
                (3, "result", "deploy", Some(false))
            ]
        );
        assert_eq!(
            running.steps.last().and_then(|step| step.id.as_deref()),
            Some("roll out")
        );
        drop(entry);
        assert!(calls.all().is_empty());
    }
}

//! The events that stock fires for each state that failed (`fire_ret_load` in
//! `salt/utils/event.py`).

use saltern_model::{Event, MinionId, Tag};
use saltern_wire::msgpack::{MapView, Value};

use crate::{Services, event_data, event_rules};

/// Functions whose failed states have events of their own. `state.apply` is not among them in stock
/// either.
const FUNCTIONS: [&str; 2] = ["state.highstate", "state.sls"];

/// The events for a return, usually none.
pub(crate) fn of_return(
    services: &Services,
    load: &MapView,
    jid: &str,
    minion: &MinionId,
) -> Vec<Event> {
    let (Some(fun), Some(retcode)) = (load.get("fun"), load.get("retcode")) else {
        return Vec::new();
    };
    let user = load.get("user").map(|user| user.decode());
    let job = Job {
        services,
        jid,
        minion,
        user,
    };
    if let Some(fun) = fun.as_str() {
        if !FUNCTIONS.contains(&fun) || !retcode.decode().is_truthy() {
            return Vec::new();
        }
        let states = load
            .get("return")
            .map(|states| states.decode())
            .unwrap_or(Value::Nil);
        return job.failed_states(fun, &states, &retcode.decode());
    }
    let Value::Array(funs) = fun.decode() else {
        return Vec::new();
    };
    if !funs
        .iter()
        .filter_map(Value::as_str)
        .any(|fun| FUNCTIONS.contains(&fun))
    {
        return Vec::new();
    }
    job.of_compound(&funs, load)
}

struct Job<'a> {
    services: &'a Services,
    jid: &'a str,
    minion: &'a MinionId,
    user: Option<Value>,
}

impl Job<'_> {
    fn of_compound(&self, funs: &[Value], load: &MapView) -> Vec<Event> {
        let part = |name: &str| load.get(name).map(|v| v.decode()).unwrap_or(Value::Nil);
        let (returns, retcodes) = (part("return"), part("retcode"));
        let mut events = Vec::new();
        for (index, fun) in funs.iter().enumerate() {
            let Some(fun) = fun.as_str().filter(|fun| FUNCTIONS.contains(fun)) else {
                continue;
            };
            let pick = |value: &Value| match value {
                Value::Array(items) => items.get(index).cloned(),
                other => other.get(fun).cloned(),
            };
            let Some(retcode) = pick(&retcodes).filter(Value::is_truthy) else {
                continue;
            };
            let states = pick(&returns).unwrap_or(Value::Nil);
            events.extend(self.failed_states(fun, &states, &retcode));
        }
        events
    }

    fn failed_states(&self, fun: &str, states: &Value, retcode: &Value) -> Vec<Event> {
        let Some(states) = states.as_map() else {
            return Vec::new();
        };
        states
            .iter()
            .filter(|(_, state)| state.get("result").and_then(Value::as_bool) == Some(false))
            .filter_map(|(name, state)| Some((name.as_str()?, state.as_map()?)))
            .flat_map(|(name, state)| self.failed_state(fun, name, state, retcode))
            .collect()
    }

    /// Two events for one failed state: one under the state's own name, and one under the job's.
    /// The minion chooses that name, so the strict rules apply to the tag.
    fn failed_state(
        &self,
        fun: &str,
        name: &str,
        state: &[(Value, Value)],
        retcode: &Value,
    ) -> Vec<Event> {
        let module = name.split("_|-").next().unwrap_or_default();
        let function = name.rsplit("_|-").next().unwrap_or_default();
        let short = format!("{module}.{function}");
        let mut data = state.to_vec();
        set(&mut data, "retcode", retcode.clone());
        let bare = data.clone();
        set(&mut data, "jid", self.jid.into());
        set(&mut data, "id", self.minion.as_str().into());
        set(&mut data, "success", false.into());
        set(
            &mut data,
            "return",
            format!("Error: {short}").as_str().into(),
        );
        set(&mut data, "fun", fun.into());
        if let Some(user) = &self.user {
            set(&mut data, "user", user.clone());
        }
        let long = format!("salt/job/{}/sub/{}/error/{fun}", self.jid, self.minion);
        let short = Tag::parse(&short).ok().filter(|tag| self.is_free(tag));
        [(short, bare), (Tag::parse(&long).ok(), data)]
            .into_iter()
            .filter_map(|(tag, data)| Some(event_data::event(self.services, tag?, data)))
            .collect()
    }

    fn is_free(&self, tag: &Tag) -> bool {
        let refusal = event_rules::refusal_here(tag, self.minion, self.services);
        if let Some(refusal) = refusal {
            self.services.metrics.refuse(refusal.reason());
            complain!(
                self.services, minion = %self.minion, ?tag, reason = refusal.reason(),
                "event of a failed state dropped: this minion may not use this tag"
            );
        }
        refusal.is_none()
    }
}

fn set(entries: &mut Vec<(Value, Value)>, name: &str, value: Value) {
    match entries
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name))
    {
        Some((_, old)) => *old = value,
        None => entries.push((name.into(), value)),
    }
}

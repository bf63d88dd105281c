//! Formatted events: what `?format_events` and `/formatted_events` send instead of events
//! (`SaltInfo` in `salt/netapi/rest_*/event_processor.py`).
//!
//! Each message is the whole state that the client has seen so far: its jobs, or its minions. Here
//! that state is bounded, the oldest entries go first. An event that lacks a field changes nothing;
//! in stock it ends the stream. Events about presence start no job that asks for grains.

use indexmap::IndexMap;
use saltern_output::json_line;
use saltern_wire::msgpack::Value;

use super::{BusEvent, Dialect};

/// Jobs of one stream.
const MAX_JOBS: usize = 1_000;

/// Minions of one stream.
const MAX_MINIONS: usize = 20_000;

/// Bytes of a message above which older jobs are dropped.
const MAX_MESSAGE: usize = 16 << 20;

/// The function whose returns are the grains of minions.
const GRAINS: &str = "grains.items";

/// State of jobs and minions, as one stream has seen them.
pub struct FormattedEvents {
    dialect: Dialect,
    jobs: IndexMap<String, Value>,
    /// Each with its grains, once it has returned them.
    minions: IndexMap<String, Value>,
}

impl FormattedEvents {
    /// Of a client that has seen nothing yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            jobs: IndexMap::new(),
            minions: IndexMap::new(),
        }
    }

    /// The messages that follow an event of the bus, in their order.
    pub(super) fn take_event(&mut self, event: &BusEvent) -> Vec<String> {
        // Other events are not unpacked.
        let is_followed = ["job", "key", "presence"].map(Some);
        match is_followed.contains(&event.tag.split('/').nth(1)) {
            true => self.take(&event.tag, &event.data()),
            false => Vec::new(),
        }
    }

    /// The messages that follow an event, in their order.
    pub fn take(&mut self, tag: &str, data: &Value) -> Vec<String> {
        let parts: Vec<&str> = tag.split('/').collect();
        let taken = match (parts.get(1).copied(), parts.get(3).copied()) {
            (Some("job"), Some("new")) => self.new_job(data),
            (Some("job"), Some("ret")) => self.returned(&parts, data),
            (Some("key"), _) => self.key(data),
            (Some("presence"), _) => self.presence(data),
            _ => None,
        };
        taken.unwrap_or_default()
    }

    fn new_job(&mut self, data: &Value) -> Option<Vec<String>> {
        let jid = data.get("jid")?.as_str()?;
        let minions = data.get("minions")?.as_array()?.iter();
        let minions = minions.filter_map(Value::as_str);
        let minions = minions.map(|minion| (minion, Value::map([("success", false)])));
        let fun = data.get("fun")?;
        let job = Value::map([
            ("jid", jid.into()),
            ("start_time", data.get("_stamp")?.clone()),
            ("minions", Value::map(minions)),
            ("fun", fun.clone()),
            ("tgt", data.get("tgt")?.clone()),
            ("tgt_type", data.get("tgt_type")?.clone()),
            ("state", "running".into()),
        ]);
        self.jobs.insert(jid.to_owned(), job);
        shorten(&mut self.jobs, MAX_JOBS);
        let messages = vec![self.jobs()];
        if self.dialect == Dialect::Cherrypy && fun.as_str() == Some(GRAINS) {
            self.minions.clear();
        }
        Some(messages)
    }

    fn returned(&mut self, parts: &[&str], data: &Value) -> Option<Vec<String>> {
        let [_, _, jid, _, minion] = parts else {
            return None;
        };
        let fields = ["return", "retcode", "success"];
        let fields = fields.map(|name| Some((name, data.get(name)?.clone())));
        let fields: Option<Vec<_>> = fields.into_iter().collect();
        let fields = fields?;
        let job = self.jobs.entry((*jid).to_owned());
        let job = job.or_insert_with(|| Value::Map(Vec::new()));
        let minions = entry(job, "minions")?;
        let of_minion = entry(minions, minion)?;
        for (name, value) in fields {
            *entry(of_minion, name)? = value;
        }
        let mut all = minions.as_map()?.iter();
        let is_success = |minion: &Value| minion.get("success").is_some_and(Value::is_truthy);
        if all.all(|(_, minion)| is_success(minion)) {
            *entry(job, "state")? = "complete".into();
        }
        shorten(&mut self.jobs, MAX_JOBS);
        let mut messages = vec![self.jobs()];
        if data.get("fun").and_then(Value::as_str) == Some(GRAINS) {
            let grains = Value::map([("grains", data.get("return")?.clone())]);
            self.minions.insert((*minion).to_owned(), grains);
            shorten(&mut self.minions, MAX_MINIONS);
            messages.push(self.minions());
        }
        Some(messages)
    }

    fn key(&mut self, data: &Value) -> Option<Vec<String>> {
        let id = data.get("id")?.as_str()?;
        match data.get("act")?.as_str()? {
            "delete" => {
                self.minions.shift_remove(id);
            }
            "accept" => self.add(id),
            _ => {}
        }
        Some(vec![self.minions()])
    }

    fn presence(&mut self, data: &Value) -> Option<Vec<String>> {
        let names = |field: &str| -> Vec<&str> {
            let names = data.get(field).and_then(Value::as_array);
            let names = names.unwrap_or_default().iter();
            names.filter_map(Value::as_str).collect()
        };
        let present = names("present");
        let is_change = self.dialect == Dialect::Tornado && data.get("present").is_none();
        let (lost, new) = if is_change {
            (names("lost"), names("new"))
        } else {
            data.get("present")?;
            let known = self.minions.keys().map(String::as_str);
            let lost = known.filter(|id| !present.contains(id));
            (lost.collect(), present)
        };
        let lost: Vec<String> = lost.into_iter().map(str::to_owned).collect();
        let new: Vec<&str> = new
            .into_iter()
            .filter(|id| is_change || !self.minions.contains_key(*id))
            .collect();
        let is_changed = !lost.is_empty() || !new.is_empty();
        for id in &lost {
            self.minions.shift_remove(id);
        }
        // CherryPy's adds them with the grains that it asks for.
        if self.dialect == Dialect::Tornado {
            new.into_iter().for_each(|id| self.add(id));
        }
        Some(is_changed.then(|| self.minions()).into_iter().collect())
    }

    fn add(&mut self, id: &str) {
        let minion = self.minions.entry(id.to_owned());
        minion.or_insert_with(|| Value::Map(Vec::new()));
        shorten(&mut self.minions, MAX_MINIONS);
    }

    fn jobs(&mut self) -> String {
        loop {
            let jobs = self.jobs.iter();
            let jobs = jobs.map(|(jid, job)| (jid.as_str(), job.clone()));
            let message = self.message("jobs", Value::map(jobs));
            let count = self.jobs.len();
            if message.len() <= MAX_MESSAGE || count <= 1 {
                return message;
            }
            self.jobs.drain(..count.div_ceil(2));
        }
    }

    /// A list with CherryPy, a map with tornado.
    fn minions(&self) -> String {
        let minions = self.minions.iter().map(|(id, minion)| {
            let mut fields = minion.as_map().unwrap_or_default().to_vec();
            fields.push(("id".into(), id.as_str().into()));
            (id.as_str(), Value::Map(fields))
        });
        let minions = match self.dialect {
            Dialect::Cherrypy => Value::Array(minions.map(|(_, minion)| minion).collect()),
            Dialect::Tornado => Value::map(minions),
        };
        self.message("minions", minions)
    }

    fn message(&self, name: &str, value: Value) -> String {
        let json = json_line(&Value::map([(name, value)]));
        match self.dialect {
            Dialect::Cherrypy => json,
            Dialect::Tornado => format!("{json}\n\n"),
        }
    }
}

/// The value of a key of a map, added as an empty map when it is not there.
fn entry<'a>(map: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let Value::Map(entries) = map else {
        return None;
    };
    let index = entries
        .iter()
        .position(|(name, _)| name.as_str() == Some(key));
    let index = index.unwrap_or_else(|| {
        entries.push((key.into(), Value::Map(Vec::new())));
        entries.len() - 1
    });
    entries.get_mut(index).map(|(_, value)| value)
}

fn shorten(entries: &mut IndexMap<String, Value>, most: usize) {
    while entries.len() > most {
        entries.shift_remove_index(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JID: &str = "20261121070622637714";

    fn new_job(fun: &str) -> (String, Value) {
        let data = Value::map([
            ("jid", Value::from(JID)),
            ("_stamp", "now".into()),
            ("minions", Value::Array(vec!["a".into()])),
            ("fun", fun.into()),
            ("tgt", "*".into()),
            ("tgt_type", "glob".into()),
        ]);
        (format!("salt/job/{JID}/new"), data)
    }

    fn returned(fun: &str) -> (String, Value) {
        let data = Value::map([
            ("return", Value::from(7)),
            ("retcode", 0.into()),
            ("success", true.into()),
            ("fun", fun.into()),
        ]);
        (format!("salt/job/{JID}/ret/a"), data)
    }

    fn key(act: &str) -> (String, Value) {
        let data = Value::map([("act", act), ("id", "k")]);
        ("salt/key".to_owned(), data)
    }

    fn present(ids: &[&str]) -> (String, Value) {
        let ids = ids.iter().map(|id| (*id).into()).collect();
        let data = Value::map([("present", Value::Array(ids))]);
        ("salt/presence/present".to_owned(), data)
    }

    /// Compared with the messages of `SaltInfo` of stock 3008.3 for the same events.
    #[test]
    fn messages_are_those_of_stock() {
        let running = format!(
            "{{\"jobs\": {{\"{JID}\": {{\"jid\": \"{JID}\", \"start_time\": \"now\", \"minions\": \
             {{\"a\": {{\"success\": false}}}}, \"fun\": \"grains.items\", \"tgt\": \"*\", \
             \"tgt_type\": \"glob\", \"state\": \"running\"}}}}}}"
        );
        let complete = running
            .replace(
                "{\"success\": false}",
                "{\"success\": true, \"return\": 7, \"retcode\": 0}",
            )
            .replace("running", "complete");
        let with_grains = "{\"minions\": [{\"grains\": 7, \"id\": \"a\"}]}";
        let with_key = "{\"minions\": [{\"grains\": 7, \"id\": \"a\"}, {\"id\": \"k\"}]}";
        let mut events = FormattedEvents::new(Dialect::Cherrypy);
        for ((tag, data), expected) in [
            (new_job(GRAINS), vec![running.as_str()]),
            (returned(GRAINS), vec![complete.as_str(), with_grains]),
            (key("accept"), vec![with_key]),
            (present(&["a"]), vec![with_grains]),
            (present(&["a"]), vec![]),
            (key("delete"), vec![with_grains]),
            (("salt/job".to_owned(), Value::Nil), vec![]),
            (("salt/job/1/ret".to_owned(), Value::Nil), vec![]),
            (("x".to_owned(), Value::Nil), vec![]),
        ] {
            assert_eq!(events.take(&tag, &data), expected, "{tag}");
        }
        let mut events = FormattedEvents::new(Dialect::Tornado);
        let (tag, data) = key("accept");
        let expected = ["{\"minions\": {\"k\": {\"id\": \"k\"}}}\n\n"];
        assert_eq!(events.take(&tag, &data), expected);
        let (tag, data) = present(&["b"]);
        let expected = ["{\"minions\": {\"b\": {\"id\": \"b\"}}}\n\n"];
        assert_eq!(events.take(&tag, &data), expected);
    }

    #[test]
    fn messages_of_a_stream_are_bounded() {
        let mut events = FormattedEvents::new(Dialect::Tornado);
        let large = "x".repeat(MAX_MESSAGE / 4);
        for number in 0..20 {
            let data = Value::map([
                ("return", Value::from(large.as_str())),
                ("retcode", 0.into()),
                ("success", true.into()),
            ]);
            let messages = events.take(&format!("salt/job/{number}/ret/a"), &data);
            let [message] = messages.as_slice() else {
                panic!("one message");
            };
            assert!(message.len() <= MAX_MESSAGE + 2 && message.contains(&format!("\"{number}\"")));
        }
    }

    #[test]
    fn jobs_of_a_stream_are_bounded() {
        let mut events = FormattedEvents::new(Dialect::Cherrypy);
        for number in 0..MAX_JOBS + 5 {
            let tag = format!("salt/job/{number}/ret/a");
            assert_eq!(events.take(&tag, &returned("x").1).len(), 1);
        }
        assert_eq!(events.jobs.len(), MAX_JOBS);
    }
}

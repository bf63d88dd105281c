//! One row of the table of reactions: configuration, events, and what follows from them.
//!
//! In rules, files, tags and reactions `$TAG` stands for the tag of the row and `$DIR` for its
//! directory. A reaction is written in one line, so that the table can be read as a list:
//! `local FUN TGT (TGT_TYPE) ARG`, `runner.FUN ARG`, `wheel.FUN ARG -> RETURN`, `file NAME: TEXT`.

use std::collections::BTreeMap;
use std::path::Path;

use saltern_tests::{Event, Release, Server};
use serde_json::{Value, json};

/// A configuration of the reactor with events and the reactions to them.
pub(super) struct Row {
    /// The case, as a sentence.
    pub(super) name: &'static str,
    /// Its position in the table, which makes its tags unique.
    pub(super) number: usize,
    /// Entries of the option `reactor`.
    pub(super) rules: Vec<String>,
    /// Names and texts.
    pub(super) files: Vec<(String, String)>,
    /// The steps, in order.
    pub(super) steps: Vec<Step>,
    reactions: Vec<String>,
    older: Option<Vec<String>>,
    ours: Option<Vec<String>>,
}

/// A step of a row.
pub(super) enum Step {
    /// A program of the master's machine fires an event.
    Fire(String, Value),
    /// The minion sends this load.
    Minion(Value),
    /// A file is written.
    Write(String, String),
    /// Stock's `salt-run` calls a function, which returns this.
    Ask(Value, Value),
    /// Stock's `salt-run` calls a function again and again until it returns this.
    Await(Value, Value),
}

impl Row {
    /// A row with one rule, for the file `a.sls`, and one event without data, both of its tag.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            number: 0,
            rules: Vec::new(),
            files: Vec::new(),
            steps: Vec::new(),
            reactions: Vec::new(),
            older: None,
            ours: None,
        }
    }

    /// Adds an entry of the option `reactor`.
    pub(super) fn rule(mut self, rule: &str) -> Self {
        self.rules.push(rule.to_owned());
        self
    }

    /// Adds a file; a name that does not begin with `$` is one in the row's directory.
    pub(super) fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((path(name), text.to_owned()));
        self
    }

    /// Adds the file of the one rule that a row has when it names none.
    pub(super) fn sls(self, text: &str) -> Self {
        self.file("a.sls", text)
    }

    /// Fires an event.
    pub(super) fn fire(mut self, tag: &str, data: Value) -> Self {
        self.steps.push(Step::Fire(tag.to_owned(), data));
        self
    }

    /// Writes a file between events.
    pub(super) fn write(mut self, name: &str, text: &str) -> Self {
        self.steps.push(Step::Write(path(name), text.to_owned()));
        self
    }

    /// Has the minion send this load.
    pub(super) fn minion(mut self, load: Value) -> Self {
        self.steps.push(Step::Minion(load));
        self
    }

    /// Asks a function of the master, which has to answer this.
    pub(super) fn ask(mut self, fun: &str, kwarg: Value, answer: Value) -> Self {
        let low = json!({"fun": fun, "arg": [], "kwarg": kwarg});
        self.steps.push(Step::Ask(low, answer));
        self
    }

    /// Asks a function of the master until it answers this: our master looks at files once a
    /// second, where stock reads them for every event.
    pub(super) fn wait_for(mut self, fun: &str, kwarg: Value, answer: Value) -> Self {
        let low = json!({"fun": fun, "arg": [], "kwarg": kwarg});
        self.steps.push(Step::Await(low, answer));
        self
    }

    /// The reactions under stock 3008, and under all who are not named otherwise.
    pub(super) fn gives(mut self, reactions: &[&str]) -> Self {
        self.reactions = owned(reactions);
        self.with_defaults()
    }

    /// The reactions under stock 3006 and 3007.
    pub(super) fn older(mut self, reactions: &[&str]) -> Self {
        self.older = Some(owned(reactions));
        self
    }

    /// The reactions under our master, which differs on purpose: see the `DIFFERENCES.md` of
    /// `requests`.
    pub(super) fn ours(mut self, reactions: &[&str]) -> Self {
        self.ours = Some(owned(reactions));
        self
    }

    fn with_defaults(mut self) -> Self {
        if self.rules.is_empty() {
            self.rules.push("$TAG: [$DIR/a.sls]".to_owned());
        }
        if self.steps.is_empty() {
            self = self.fire("$TAG", json!({}));
        }
        self
    }

    /// The row's directory below that of the site.
    pub(super) fn place(&self) -> String {
        self.tag("rows")
    }

    /// A tag of this row alone: none is the beginning of another's.
    pub(super) fn tag(&self, prefix: &str) -> String {
        format!("{prefix}/{:03}", self.number)
    }

    /// A text of the row with its tag and its directory.
    pub(super) fn filled(&self, text: &str, root: &str) -> String {
        text.replace("$TAG", &self.tag("row"))
            .replace("$DIR", &format!("{root}/{}", self.place()))
            .replace("$ROOT", root)
    }

    /// The reactions expected under this master.
    pub(super) fn expected(&self, server: Server) -> impl Iterator<Item = &str> {
        let ours = self.ours.as_ref().filter(|_| server.is_ours());
        let is_older = server.release() != Release::V3008;
        let older = self.older.as_ref().filter(|_| is_older);
        let reactions = ours.or(older).unwrap_or(&self.reactions);
        reactions.iter().map(String::as_str)
    }
}

fn path(name: &str) -> String {
    match name.starts_with('$') {
        true => name.to_owned(),
        false => format!("$DIR/{name}"),
    }
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// The reactions that events announce, in the order in which they began. Jobs are published as by
/// `user`: those of another user are shown with it.
pub(super) fn reactions(events: &[Event], user: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun = BTreeMap::new();
    for event in events {
        let mut parts = event.tag.splitn(4, '/').skip(1);
        let (kind, jid, what) = (parts.next(), parts.next(), parts.next());
        let is_of_reactor = event.data["user"] == "Reactor";
        match (kind, what) {
            (Some("job"), Some("new")) => lines.push(Some(job(&event.data, user))),
            (Some("run" | "wheel"), Some("new")) if is_of_reactor => {
                begun.insert(jid, lines.len());
                lines.push(None);
            }
            (Some("run" | "wheel"), Some("ret")) if is_of_reactor => {
                let line = Some(call(&event.data));
                match begun.get(&jid) {
                    Some(place) => lines[*place] = line,
                    None => lines.push(line),
                }
            }
            _ => {}
        }
    }
    lines.into_iter().flatten().collect()
}

fn job(data: &Value, user: &str) -> String {
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    let (fun, tgt, kind) = (text("fun"), &data["tgt"], text("tgt_type"));
    let tgt = tgt.as_str().map_or(tgt.to_string(), str::to_owned);
    let other = match data["user"] == user {
        true => String::new(),
        false => format!(" as {}", data["user"]),
    };
    format!("local {fun} {tgt} ({kind}) {}{other}", data["arg"])
}

fn call(data: &Value) -> String {
    let fun = data["fun"].as_str().unwrap_or_default();
    let end = match data["success"] == true {
        false => " failed".to_owned(),
        // What these return contains times and process ids, or repeats the arguments.
        true if fun.starts_with("runner.") => String::new(),
        true => format!(" -> {}", data["return"]),
    };
    format!("{fun} {}{end}", data["fun_args"])
}

/// The files that reactions wrote.
pub(super) fn files(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            format!("file {}: {}", entry.file_name().display(), text.trim_end())
        })
        .collect();
    files.sort();
    files
}

/// Reactions by what decides on their order: jobs, functions of the master, files.
pub(super) fn lanes(reactions: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut lanes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for reaction in reactions {
        let lane = match reaction.split([' ', '.']).next().unwrap_or_default() {
            "runner" | "wheel" => "the master's",
            lane => lane,
        };
        lanes.entry(lane).or_default().push(reaction);
    }
    lanes
}

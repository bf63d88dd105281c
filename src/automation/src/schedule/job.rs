//! One entry of `schedule:` as a job (`Schedule.eval` and `handle_func` in
//! `salt/utils/schedule.py`).
//!
//! An entry in error is not run, and does not affect the others: at a value of the wrong type stock
//! gives up on the whole schedule, at every tick.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use saltern_config::yaml::{Key, Mapping, Mark, Node, NodeValue};
use saltern_content::render::data::from_yaml;
use saltern_runners::Arguments;
use saltern_wire::msgpack::Value;

use super::conditions::{Conditions, Range, Window};
use super::moment::Moment;
use super::timing::{CronSlots, Timing};

/// The only returner that is built in: the job database.
pub(super) const DATABASE: &str = "local_cache";

/// The default format of `once`.
const ONCE_FORM: &str = "%Y-%m-%dT%H:%M:%S";

/// The units that intervals are added from, in seconds. Stock has no `weeks`.
const UNITS: [(&str, i64); 5] = [
    ("seconds", 1),
    ("minutes", 60),
    ("hours", 3_600),
    ("days", 86_400),
    ("weeks", 604_800),
];

/// The longest interval and the longest splay: a century.
const MAX_INTERVAL_SECONDS: i64 = 100 * 366 * 86_400;

/// Job of the schedule, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name: that of the entry, or the one that is written in it.
    pub name: String,
    /// The function that it runs.
    pub function: String,
    /// The arguments for the function.
    pub arguments: Arguments,
    pub(super) timing: Timing,
    /// The timing as it is written, for people.
    pub(super) timing_text: String,
    pub(super) splay: Option<Splay>,
    pub(super) conditions: Conditions,
    /// Runs once more when the time of `skip_during_range` is over.
    pub(super) run_after_skip_range: bool,
    /// The function that runs where a range keeps the job from running.
    pub(super) skip_function: Option<String>,
    /// The most concurrent runs; `None` for any number.
    pub(super) most_running: Option<usize>,
    pub(super) run_on_start: bool,
    pub(super) enabled: bool,
    pub(super) dry_run: bool,
    pub(super) report: Report,
}

/// Reporting of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// No event, with `return_job: False`.
    pub(super) silent: bool,
    /// The event is marked as not to be kept.
    pub(super) nocache: bool,
    /// It goes to a returner, so its event bears the jid.
    pub(super) has_returner: bool,
    /// It is stored in the job database.
    pub(super) keep: bool,
    pub(super) metadata: Option<Vec<(Value, Value)>>,
}

/// Random delay in seconds; both bounds are inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Splay {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Defaults from beside the jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    pub(super) disabled: bool,
    pub(super) splay: Option<Splay>,
    pub(super) skip_during: Option<Window>,
    pub(super) skip_function: Option<String>,
    /// Jobs with intervals run when the master starts (since 3008).
    pub(super) intervals_start_at_once: bool,
}

impl Common {
    /// The names that are no jobs.
    pub(super) const NAMES: [&str; 4] = ["enabled", "skip_function", "skip_during_range", "splay"];
}

/// Fault in an entry, with its position.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) mark: Mark,
    pub(super) message: String,
}

impl Fault {
    fn new(node: &Node, message: impl Into<String>) -> Self {
        Self {
            mark: node.mark.clone(),
            message: message.into(),
        }
    }
}

type Read<T> = Result<T, Fault>;

/// Reads an entry. `warn` is called for options that are ignored though the job runs.
pub(super) fn read(
    name: &str,
    node: &Node,
    common: &Common,
    warn: &mut dyn FnMut(Fault),
) -> Read<Job> {
    let written = node.as_map().ok_or_else(|| {
        Fault::new(
            node,
            format!("is no mapping of options, but {}", node.kind()),
        )
    })?;
    let entry = Entry { node, written };
    let (timing, timing_text) = entry.timing(warn)?;
    let is_interval = matches!(timing, Timing::Every(_));
    let function = ["function", "func", "fun"];
    let function = function.iter().find_map(|name| written.get(name));
    let function = function.ok_or_else(|| Fault::new(node, "names no function"))?;
    let function = function
        .as_str()
        .ok_or_else(|| Fault::new(function, "\"function\" is no text"))?;
    let splay = written.get("splay").map(|node| splay(node, warn));
    let mut conditions = entry.conditions()?;
    if conditions.skip_during.is_none() {
        conditions.skip_during.clone_from(&common.skip_during);
    }
    Ok(Job {
        name: written
            .get("name")
            .and_then(Node::as_str)
            .unwrap_or(name)
            .to_owned(),
        function: function.to_owned(),
        arguments: entry.arguments()?,
        timing,
        timing_text,
        splay: match splay {
            Some(own) => own?,
            None => common.splay,
        },
        conditions,
        run_after_skip_range: entry.is_set("run_after_skip_range", false),
        skip_function: common.skip_function.clone(),
        most_running: entry.most_running()?,
        run_on_start: entry.is_set(
            "run_on_start",
            is_interval && common.intervals_start_at_once,
        ),
        enabled: entry.is_set("enabled", true) && !common.disabled,
        dry_run: entry.is_set("dry_run", false),
        report: entry.report(warn),
    })
}

/// The options of one entry.
struct Entry<'n> {
    node: &'n Node,
    written: &'n Mapping,
}

impl<'n> Entry<'n> {
    fn get(&self, name: &str) -> Option<&'n Node> {
        self.written.get(name)
    }

    fn is_set(&self, name: &str, default: bool) -> bool {
        self.get(name).map_or(default, Node::is_truthy)
    }

    fn timing(&self, warn: &mut dyn FnMut(Fault)) -> Read<(Timing, String)> {
        let slots = ["once", "when", "cron"];
        let slots: Vec<&str> = slots
            .into_iter()
            .filter(|name| self.get(name).is_some())
            .collect();
        let units: Vec<_> = UNITS
            .into_iter()
            .filter_map(|(name, seconds)| Some((name, seconds, self.get(name)?)))
            .collect();
        if let [first, second, ..] = *slots.as_slice() {
            let message = format!("has both \"{first}\" and \"{second}\"");
            return Err(Fault::new(self.node, message));
        }
        if units.is_empty() {
            return match slots.first() {
                Some(&"once") => self.once(),
                Some(&"when") => self.when(),
                Some(_) => self.cron(),
                None => Err(Fault::new(self.node, "has no time at which it would run")),
            };
        }
        if let Some(slot) = slots.first() {
            let message = format!("has an interval, beside which \"{slot}\" has no effect");
            warn(Fault::new(self.node, message));
        }
        self.interval(&units)
    }

    fn interval(&self, units: &[(&str, i64, &Node)]) -> Read<(Timing, String)> {
        let mut seconds = 0_i64;
        for (name, unit, node) in units {
            let count = whole(node).ok_or_else(|| no_number(name, node))?;
            seconds = seconds.saturating_add(count.saturating_mul(*unit));
        }
        if !(1..=MAX_INTERVAL_SECONDS).contains(&seconds) {
            let message = format!("has an interval of {seconds} seconds, which cannot be kept");
            return Err(Fault::new(self.node, message));
        }
        let timing = Timing::Every(SignedDuration::from_secs(seconds));
        Ok((timing, format!("every {seconds} s")))
    }

    fn once(&self) -> Read<(Timing, String)> {
        let form = self.get("once_fmt").and_then(Node::as_str);
        let form = form.unwrap_or(ONCE_FORM);
        let Some(node) = self.get("once") else {
            return Err(Fault::new(self.node, "has no \"once\""));
        };
        let text = spelled(node);
        let once = DateTime::strptime(form, &text).map_err(|_| {
            let message = format!("once \"{text}\" is no date of the form \"{form}\"");
            Fault::new(node, message)
        })?;
        Ok((Timing::Once(once), format!("once {text}")))
    }

    fn when(&self) -> Read<(Timing, String)> {
        let Some(node) = self.get("when") else {
            return Err(Fault::new(self.node, "has no \"when\""));
        };
        let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
        let moments: Vec<Moment> = items
            .iter()
            .map(|item| moment("when", item))
            .collect::<Read<_>>()?;
        if moments.is_empty() {
            return Err(Fault::new(node, "when is an empty list"));
        }
        let texts: Vec<String> = items.iter().map(spelled).collect();
        Ok((Timing::When(moments), format!("when {}", texts.join(", "))))
    }

    fn cron(&self) -> Read<(Timing, String)> {
        let Some(node) = self.get("cron") else {
            return Err(Fault::new(self.node, "has no \"cron\""));
        };
        let text = spelled(node);
        let slots = CronSlots::parse(&text).map_err(|error| {
            let message = format!("cron \"{text}\" is no cron expression: {error}");
            Fault::new(node, message)
        })?;
        let timing = Timing::Cron(Box::new(slots));
        if timing
            .slot_after(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true)
            .is_none()
        {
            let message = format!("cron \"{text}\" means a day that never comes");
            return Err(Fault::new(node, message));
        }
        Ok((timing, format!("cron {text}")))
    }

    fn arguments(&self) -> Read<Arguments> {
        let positional = match self.get("args") {
            None => Vec::new(),
            Some(node) if node.is_null() => Vec::new(),
            Some(node) => {
                let items = node.as_seq();
                let items = items.ok_or_else(|| Fault::new(node, "\"args\" is no list"))?;
                items.iter().cloned().map(from_yaml).collect()
            }
        };
        let named = match self.get("kwargs") {
            None => Vec::new(),
            Some(node) if node.is_null() => Vec::new(),
            Some(node) => {
                let named = node.as_map();
                named
                    .ok_or_else(|| Fault::new(node, "\"kwargs\" is no mapping"))?
                    .iter()
                    .filter_map(|(name, entry)| {
                        Some((name.as_str()?.to_owned(), from_yaml(entry.value.clone())))
                    })
                    .collect()
            }
        };
        Ok(Arguments { positional, named })
    }

    fn conditions(&self) -> Read<Conditions> {
        let range = self.get("range").map(|node| {
            Ok(Range {
                window: window("range", node)?,
                invert: node
                    .as_map()
                    .and_then(|range| range.get("invert"))
                    .is_some_and(Node::is_truthy),
            })
        });
        let skip_during = self
            .get("skip_during_range")
            .filter(|node| node.is_truthy())
            .map(|node| window("skip_during_range", node));
        let moment_of = |name| self.get(name).map(|node| moment(name, node)).transpose();
        Ok(Conditions {
            range: range.transpose()?,
            skip_during: skip_during.transpose()?,
            until: moment_of("until")?,
            after: moment_of("after")?,
        })
    }

    /// Without `jid_include` stock does not see running jobs, and starts any number.
    fn most_running(&self) -> Read<Option<usize>> {
        if !self.is_set("jid_include", true) {
            return Ok(None);
        }
        let Some(node) = self.get("maxrunning") else {
            return Ok(Some(1));
        };
        let most = whole(node).ok_or_else(|| no_number("maxrunning", node))?;
        Ok(Some(usize::try_from(most).unwrap_or(0).max(1)))
    }

    fn report(&self, warn: &mut dyn FnMut(Fault)) -> Report {
        let return_job = self.get("return_job");
        let mut report = Report {
            silent: return_job.is_some_and(|node| !node.is_truthy()),
            nocache: return_job.and_then(Node::as_str) == Some("nocache"),
            ..Report::default()
        };
        if let Some(node) = self.get("returner").filter(|node| node.is_truthy()) {
            report.has_returner = true;
            for returner in node.as_seq().unwrap_or(std::slice::from_ref(node)) {
                let returner = spelled(returner);
                match returner == DATABASE {
                    true => report.keep = true,
                    false => warn(Fault::new(
                        node,
                        format!("returner \"{returner}\" is not called, only \"{DATABASE}\" is"),
                    )),
                }
            }
        }
        if let Some(node) = self.get("metadata") {
            match from_yaml(node.clone()) {
                Value::Map(entries) => report.metadata = Some(entries),
                _ => warn(Fault::new(
                    node,
                    "\"metadata\" is no mapping and is ignored",
                )),
            }
        }
        report
    }
}

/// Reads `splay`; `warn` is called for one that stock ignores too.
pub(super) fn splay(node: &Node, warn: &mut dyn FnMut(Fault)) -> Read<Option<Splay>> {
    if !node.is_truthy() {
        return Ok(None);
    }
    let number = |node: &Node| {
        let seconds = whole(node).ok_or_else(|| no_number("splay", node))?;
        let seconds = u64::try_from(seconds.min(MAX_INTERVAL_SECONDS));
        seconds.map_err(|_| Fault::new(node, "splay is less than zero"))
    };
    let Some(bounds) = node.as_map() else {
        let to = number(node)?.max(1);
        return Ok(Some(Splay { from: 1, to }));
    };
    let (Some(start), Some(end)) = (bounds.get("start"), bounds.get("end")) else {
        return Err(Fault::new(node, "splay has no \"start\" or no \"end\""));
    };
    let (from, to) = (number(start)?, number(end)?);
    if from > to {
        warn(Fault::new(
            node,
            "splay ends before it starts and has no effect",
        ));
        return Ok(None);
    }
    Ok(Some(Splay { from, to }))
}

/// Reads a window with a start and an end.
pub(super) fn window(name: &str, node: &Node) -> Read<Window> {
    let bounds = node.as_map().ok_or_else(|| {
        Fault::new(
            node,
            format!("{name} is no mapping with \"start\" and \"end\""),
        )
    })?;
    let bound = |which: &str| {
        let missing = || Fault::new(node, format!("{name} has no \"{which}\""));
        let bound = bounds.get(which).ok_or_else(missing)?;
        moment(&format!("{name} {which}"), bound)
    };
    let window = Window {
        start: bound("start")?,
        end: bound("end")?,
    };
    match window.ends_first() {
        true => Err(Fault::new(node, format!("{name} ends before it starts"))),
        false => Ok(window),
    }
}

fn moment(name: &str, node: &Node) -> Read<Moment> {
    let text = node.as_str().ok_or_else(|| {
        let message = format!(
            "{name} is {}, not a date or time; one with colons needs quotes around it",
            node.kind()
        );
        Fault::new(node, message)
    })?;
    Moment::parse(text).ok_or_else(|| {
        let message = format!("{name} \"{text}\" is no date or time that is understood");
        Fault::new(node, message)
    })
}

fn no_number(name: &str, node: &Node) -> Fault {
    Fault::new(
        node,
        format!("{name} is {}, not a whole number", node.kind()),
    )
}

/// A number as Python's `int()` takes it.
fn whole(node: &Node) -> Option<i64> {
    match &node.value {
        NodeValue::Float(number) if number.is_finite() => Some(number.trunc() as i64),
        NodeValue::Str(text) => text.trim().parse().ok(),
        NodeValue::Bool(flag) => Some(i64::from(*flag)),
        _ => node.as_i64(),
    }
}

/// A value as shown to people.
fn spelled(node: &Node) -> String {
    match &node.value {
        NodeValue::Int(number) => number.to_string(),
        _ => node.as_str().unwrap_or(node.kind()).to_owned(),
    }
}

/// The name of an entry, as text.
pub(super) fn name_of(key: &Key) -> String {
    match key {
        Key::Int(number) => number.to_string(),
        _ => key.as_str().unwrap_or_default().to_owned(),
    }
}

//! Runs a function on minions: a form, then how many minions it means, then the job.
//!
//! Nothing is sent before its user has seen how many minions match. More than a few, or a function
//! that can do harm, need a tick; a target that means more minions than were shown is shown again.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use saltern_model::Jid;
use saltern_model::query::{JobReport, JobRequest, MinionsPage};
use saltern_netapi::v1::{Problem, ask};
use saltern_requests::typed_arguments;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{job_path, with_query};
use crate::cli;
use crate::highstate::{Text, nested};
use crate::site::{Fields, Params, Shared, Submitted, Visit};
use crate::view::View;

/// Minions that a preview names.
const SHOWN: i64 = 20;

/// More minions than that need a tick.
const MANY: usize = 50;

/// Functions that are completed at most.
const MAX_COMPLETED: i64 = 500;

/// The function of minions that returns documentation.
const DOCUMENTATION: &str = "sys.doc";

/// Functions that can do harm: modules, or whole names.
const HARMFUL: [&str; 28] = [
    "cmd.",
    "cp.push",
    "disk.format",
    "file.remove",
    "firewalld.",
    "group.delete",
    "iptables.",
    "kmod.",
    "lvm.",
    "mysql.db_remove",
    "network.",
    "partition.",
    "pkg.purge",
    "pkg.remove",
    "pkg.upgrade",
    "postgres.db_remove",
    "ps.kill",
    "ps.pkill",
    "saltutil.kill",
    "saltutil.revoke_auth",
    "saltutil.term",
    "service.disable",
    "service.stop",
    "ssh.",
    "state.",
    "system.",
    "user.delete",
    "zpool.destroy",
];

/// The types of targets, as a form offers them.
const TYPES: [(&str, &str); 11] = [
    ("glob", "Glob"),
    ("compound", "Compound"),
    ("list", "List"),
    ("grain", "Grain"),
    ("pillar", "Pillar"),
    ("nodegroup", "Nodegroup"),
    ("ipcidr", "Network"),
    ("pcre", "Regex of ids"),
    ("grain_pcre", "Regex of a grain"),
    ("pillar_pcre", "Regex of pillar"),
    ("range", "Range"),
];

/// A job as it is typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Typed {
    target: String,
    target_type: String,
    function: String,
    /// One argument a line.
    arguments: String,
    /// Minions at a time, such as `10` or `25%`.
    batch: String,
    /// Seconds between two parts of a batch.
    wait: String,
    /// Whether a batch ends with the first failure.
    failhard: bool,
}

/// Which minions a target means.
#[derive(Debug, Serialize)]
struct Preview {
    /// Nothing when the target cannot be resolved here.
    total: Option<usize>,
    minions: Vec<Matched>,
    more: usize,
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Matched {
    minion: String,
    path: String,
    is_present: bool,
}

#[derive(Serialize)]
struct RunView {
    typed: Typed,
    /// Functions that were called before, for completion.
    functions: Vec<String>,
    doc: Option<Documentation>,
    types: [(&'static str, &'static str); 11],
    preview: Option<Preview>,
    /// The job that is run again.
    again: Option<String>,
    /// The job that was just sent, for a user who may not look at jobs.
    sent: Option<String>,
}

/// Documentation of the function that is typed.
#[derive(Serialize)]
struct Documentation {
    function: String,
    /// As a minion returned it; nothing where none has been asked.
    text: Option<Text>,
    /// The form that asks one.
    ask: String,
}

#[derive(Serialize)]
struct ConfirmView {
    typed: Typed,
    preview: Preview,
    line: String,
    test_line: Option<String>,
    is_harmful: bool,
    needs_tick: bool,
    problem: Option<&'static str>,
}

impl Typed {
    fn of(fields: &Fields) -> Self {
        let text = |name: &str| fields.text(name).unwrap_or_default().to_owned();
        let target_type = fields.text("tgt_type").unwrap_or("glob").to_owned();
        Self {
            target: text("tgt"),
            target_type,
            function: text("fun"),
            arguments: fields.verbatim("args").replace("\r\n", "\n"),
            batch: text("batch"),
            wait: text("batch_wait"),
            failhard: fields.is_on("failhard"),
        }
    }

    fn lines(&self) -> Vec<String> {
        let lines = self.arguments.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn is_test(&self) -> bool {
        self.lines()
            .iter()
            .any(|line| line.eq_ignore_ascii_case("test=true"))
    }

    fn is_state(&self) -> bool {
        self.function.starts_with("state.")
    }

    fn is_harmful(&self) -> bool {
        let is_dry_run = self.is_state() && self.is_test();
        !is_dry_run
            && HARMFUL
                .iter()
                .any(|prefix| self.function.starts_with(prefix))
    }

    fn line(&self, more: &[&str]) -> String {
        let mut options = Vec::new();
        if !self.batch.is_empty() {
            options.extend(["-b".to_owned(), self.batch.clone()]);
            if !self.wait.is_empty() {
                options.extend(["--batch-wait".to_owned(), self.wait.clone()]);
            }
            if self.failhard {
                options.push("--failhard".to_owned());
            }
        }
        let mut arguments = self.lines();
        arguments.extend(more.iter().map(|one| (*one).to_owned()));
        cli::salt(
            &options,
            (&self.target, &self.target_type),
            &self.function,
            &arguments,
        )
    }
}

/// The form. With a target, also which minions it means.
pub(crate) async fn page(
    State(site): State<Shared>,
    visit: Visit,
    Params(params): Params,
) -> Response {
    let view = view(&site, &visit, &params).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let again = params.text("again");
    let typed = match again {
        Some(jid) => again_typed(site, visit, jid, params.text("only") == Some("failed")).await?,
        None => Typed::of(params),
    };
    let sent = params
        .text("sent")
        .and_then(|jid| Jid::parse(jid).ok())
        .map(|jid| jid.to_string());
    form_view(site, visit, typed, (again, sent)).await
}

/// The form with what is typed; the job that is run again, and the one that was just sent.
async fn form_view(
    site: &Shared,
    visit: &Visit,
    typed: Typed,
    (again, sent): (Option<&str>, Option<String>),
) -> Result<View, Problem> {
    let preview = match typed.target.is_empty() {
        true => None,
        false => Some(preview(site, visit, &typed).await?),
    };
    let line = match typed.target.is_empty() || typed.function.is_empty() {
        true => "salt TARGET FUNCTION".to_owned(),
        false => typed.line(&[]),
    };
    let content = RunView {
        functions: functions(site, visit).await?,
        doc: doc(site, visit, &typed, preview.as_ref()).await?,
        typed,
        types: TYPES,
        preview,
        again: again.map(str::to_owned),
        sent,
    };
    Ok(View::new("run.html", "run", "Run", content).cli([line]))
}

/// Functions that are offered although nobody has called them here.
const COMMON: [&str; 18] = [
    "cmd.run",
    "disk.usage",
    "grains.items",
    "network.ip_addrs",
    "pillar.items",
    "pkg.list_upgrades",
    "pkg.version",
    "saltutil.refresh_pillar",
    "saltutil.sync_all",
    "service.restart",
    "service.status",
    "state.apply",
    "state.highstate",
    "state.sls",
    "status.uptime",
    "sys.doc",
    "test.ping",
    "test.version",
];

/// Functions for completion: those that were called before, as shells complete them, and common ones.
async fn functions(site: &Shared, visit: &Visit) -> Result<Vec<String>, Problem> {
    let mut names: Vec<String> = COMMON.map(str::to_owned).into();
    if visit.may.jobs && !visit.is_fragment {
        let arguments = vec![("limit", Some(MAX_COMPLETED.into()))];
        let called: Vec<String> = site.query(visit, "functions.names", arguments).await?;
        names.extend(called);
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Documentation of the function that is typed, and the form that asks a minion for it.
async fn doc(
    site: &Shared,
    visit: &Visit,
    typed: &Typed,
    preview: Option<&Preview>,
) -> Result<Option<Documentation>, Problem> {
    let function = typed.function.as_str();
    if !function.contains('.') || function.ends_with('.') || function == DOCUMENTATION {
        return Ok(None);
    }
    let mut text: Option<String> = None;
    if visit.may.returns {
        let arguments = vec![("function", Some(function.into()))];
        text = site.query(visit, "functions.doc", arguments).await?;
    }
    let minions = preview.map(|preview| preview.minions.as_slice());
    let mut minions = minions.unwrap_or_default().iter();
    let minion = minions.find(|minion| minion.is_present);
    let target = minion.map_or("*", |minion| minion.minion.as_str());
    let parameters = [
        ("tgt", Some(target)),
        ("fun", Some(DOCUMENTATION)),
        ("args", Some(function)),
    ];
    Ok(Some(Documentation {
        function: function.to_owned(),
        text: text.map(|text| Text::cut(text.trim().to_owned())),
        ask: with_query("/console/run", &parameters),
    }))
}

/// The request of a job once more, for those of its minions that failed or are missing, or for all.
async fn again_typed(
    site: &Shared,
    visit: &Visit,
    jid: &str,
    only_failed: bool,
) -> Result<Typed, Problem> {
    let of_job = || vec![("jid", Some(Value::from(jid)))];
    let request: JobRequest<Value> = site.query(visit, "jobs.request", of_job()).await?;
    let Some(function) = request.function.as_str() else {
        return Err(Problem::conflict(
            "this job called several functions at once, which the console cannot do",
        ));
    };
    let (target, target_type) = match only_failed {
        true => {
            let report: JobReport = site.query(visit, "jobs.explain", of_job()).await?;
            let failed = report.returned.iter().filter(|one| one.retcode != 0);
            let failed = failed.map(|one| one.minion.as_str());
            let missing = report.missing.iter().map(|one| one.minion.as_str());
            let ids: Vec<&str> = failed.chain(missing).collect();
            (ids.join(","), "list".to_owned())
        }
        false => {
            let target = match request.target.as_array() {
                Some(ids) => {
                    let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
                    ids.join(",")
                }
                None => nested(&request.target),
            };
            (target, request.target_type)
        }
    };
    Ok(Typed {
        target,
        target_type,
        function: function.to_owned(),
        arguments: typed_lines(request.arguments.as_array().unwrap_or_default()).join("\n"),
        ..Typed::default()
    })
}

/// Arguments as one types them, a line each.
pub(crate) fn typed_lines(arguments: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for argument in arguments {
        let entries = argument.as_map().filter(|entries| {
            let mark = |(name, mark): &(Value, Value)| {
                name.as_str() == Some("__kwarg__") && mark.as_bool() == Some(true)
            };
            entries.iter().any(mark)
        });
        match entries {
            Some(entries) => {
                let named = entries
                    .iter()
                    .filter_map(|(name, value)| Some((name.as_str()?, value)));
                let named = named.filter(|(name, _)| *name != "__kwarg__");
                lines.extend(
                    named.map(|(name, value)| format!("{name}={}", typed_value(value, Some(name)))),
                );
            }
            None => lines.push(typed_value(argument, None)),
        }
    }
    lines
}

/// A value as one types it: a text as it is where it is read as that text again.
fn typed_value(value: &Value, name: Option<&str>) -> String {
    let Some(text) = value.as_str() else {
        return saltern_output::json_line(value);
    };
    let line = match name {
        Some(name) => format!("{name}={text}"),
        None => text.to_owned(),
    };
    let is_one_line = !text.contains(['\n', '\r']) && text.trim() == text && !text.is_empty();
    let read = typed_arguments([Value::Str(line)], &[]);
    let is_same = match (name, read.as_slice()) {
        (None, [one]) => one == value,
        (Some(name), [one]) => one.get(name) == Some(value),
        _ => false,
    };
    match is_one_line && is_same {
        true => text.to_owned(),
        false => saltern_output::json_line(value),
    }
}

/// A target as the search box of minions takes it; nothing where it has no such form.
pub(crate) fn compound(target: &str, target_type: &str) -> Option<String> {
    let letter = match target_type {
        "glob" | "compound" => return Some(target.to_owned()),
        "list" => "L",
        "grain" => "G",
        "grain_pcre" => "P",
        "pillar" => "I",
        "pillar_pcre" => "J",
        "pcre" => "E",
        "ipcidr" => "S",
        "nodegroup" => "N",
        "range" => "R",
        _ => return None,
    };
    let has_space = target.contains(char::is_whitespace);
    (!has_space).then(|| format!("{letter}@{target}"))
}

async fn preview(site: &Shared, visit: &Visit, typed: &Typed) -> Result<Preview, Problem> {
    let unknown = |problem: &str| Preview {
        total: None,
        minions: Vec::new(),
        more: 0,
        problem: Some(problem.to_owned()),
    };
    let Some(target) = compound(&typed.target, &typed.target_type) else {
        return Ok(unknown(
            "the console cannot say which minions this target means",
        ));
    };
    if !visit.may.minions {
        return Ok(unknown(
            "you may not list minions, so they cannot be counted here",
        ));
    }
    let arguments = vec![
        ("target", Some(target.into())),
        ("limit", Some(SHOWN.into())),
    ];
    let found: Result<MinionsPage<Value>, Problem> =
        site.query(visit, "minions.page", arguments).await;
    let page = match found {
        Ok(page) => page,
        Err(problem) if problem.field().is_some() => {
            return Ok(Preview {
                total: Some(0),
                ..unknown(problem.detail())
            });
        }
        Err(problem) => return Err(problem),
    };
    let minions: Vec<Matched> = page
        .minions
        .into_iter()
        .map(|row| Matched {
            path: super::minion_path(row.minion.id.as_str()),
            minion: row.minion.id.to_string(),
            is_present: row.minion.is_present,
        })
        .collect();
    Ok(Preview {
        total: Some(page.total),
        more: page.total.saturating_sub(minions.len()),
        minions,
        problem: None,
    })
}

/// Shows what would be sent, or sends it.
pub(crate) async fn send(State(site): State<Shared>, submitted: Submitted) -> Response {
    let Submitted { visit, form } = submitted;
    let is_batch = form.text("batch").is_some_and(|size| !size.is_empty());
    match step(&site, &visit, &form).await {
        // The first part of a batch begins a moment later; until then there is no job to show.
        Ok(Step::Sent(_)) if is_batch && visit.may.batches => {
            Redirect::to("/console/batches").into_response()
        }
        Ok(Step::Sent(jid)) if visit.may.job => Redirect::to(&job_path(&jid)).into_response(),
        Ok(Step::Sent(jid)) => {
            let path = with_query("/console/run", &[("sent", Some(&jid))]);
            Redirect::to(&path).into_response()
        }
        Ok(Step::Ask(view)) => site.respond(&visit, Ok(view)),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

/// Step after the form.
enum Step {
    /// The user is asked, once more.
    Ask(View),
    /// The job is published.
    Sent(String),
}

async fn step(site: &Shared, visit: &Visit, form: &Fields) -> Result<Step, Problem> {
    let mut typed = Typed::of(form);
    if typed.target.is_empty() || typed.function.is_empty() {
        return Err(Problem::invalid(None, "a target and a function are needed"));
    }
    if form.text("mode") == Some("edit") {
        let view = form_view(site, visit, typed, (None, None)).await?;
        return Ok(Step::Ask(view));
    }
    let preview = preview(site, visit, &typed).await?;
    let is_sent = form.text("step") == Some("send");
    if is_sent && form.text("mode") == Some("test") && !typed.is_test() {
        typed.arguments = format!("{}\ntest=True", typed.arguments.trim_end());
    }
    let seen: Option<usize> = form.text("seen").and_then(|seen| seen.parse().ok());
    let is_many = preview.total.is_none_or(|total| total > MANY);
    let needs_tick = typed.is_harmful() || is_many;
    let has_grown = preview.total > seen && seen.is_some();
    let problem = match is_sent {
        false => None,
        true if has_grown => Some("The target means more minions now than when you looked."),
        true if needs_tick && !form.is_on("confirm") => Some("Please tick that you mean it."),
        true => return publish(site, visit, &typed).await.map(Step::Sent),
    };
    let is_dry_run_first = typed.is_state() && !typed.is_test();
    let content = ConfirmView {
        line: typed.line(&[]),
        test_line: is_dry_run_first.then(|| typed.line(&["test=True"])),
        is_harmful: typed.is_harmful(),
        needs_tick,
        preview,
        problem,
        typed: typed.clone(),
    };
    let title = format!("Run {}", typed.function);
    // The page itself has the command line.
    Ok(Step::Ask(View::new(
        "run_confirm.html",
        "run",
        title,
        content,
    )))
}

async fn publish(site: &Shared, visit: &Visit, typed: &Typed) -> Result<String, Problem> {
    let target = match typed.target_type.as_str() {
        "list" => {
            let ids = typed.target.split(',').map(str::trim);
            Value::Array(ids.filter(|id| !id.is_empty()).map(Value::from).collect())
        }
        _ => typed.target.as_str().into(),
    };
    let lines = typed.lines().into_iter().map(Value::Str);
    let mut load = vec![
        ("tgt", target),
        ("tgt_type", typed.target_type.as_str().into()),
        ("fun", typed.function.as_str().into()),
        ("arg", Value::Array(typed_arguments(lines, &[]))),
    ];
    if !typed.batch.is_empty() {
        let mut batch = vec![
            ("size", Value::from(typed.batch.as_str())),
            ("failhard", typed.failhard.into()),
        ];
        if !typed.wait.is_empty() {
            let wait: f64 = typed.wait.parse().map_err(|_| {
                let detail = format!("\"{}\" is no number of seconds", typed.wait);
                Problem::invalid(Some("batch_wait"), detail)
            })?;
            batch.push(("wait", Value::from(wait)));
        }
        load.push(("batch", Value::map(batch)));
    }
    let reply = ask::publish(&site.backend.gate(), &visit.caller, load).await?;
    let jid = reply.get("jid").and_then(Value::as_str);
    let unknown = || Problem::failed("the master does not say under which jid it was published");
    jid.map(str::to_owned).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_typed_so_that_they_are_read_again() {
        let named = Value::map([
            ("__kwarg__", Value::from(true)),
            ("name", "nginx".into()),
            ("count", "1".into()),
            ("list", Value::Array(vec![1_i64.into(), "a".into()])),
        ]);
        let arguments = vec![
            "uptime".into(),
            "a=b".into(),
            "true".into(),
            Value::from(true),
            "two\nlines".into(),
            Value::from(1_i64),
            named,
        ];
        let lines = typed_lines(&arguments);
        assert_eq!(lines[0], "uptime");
        let read = typed_arguments(lines.into_iter().map(Value::Str), &[]);
        assert_eq!(read, arguments);
    }

    #[test]
    fn dry_run_of_states_is_harmless() {
        let typed = |function: &str, arguments: &str| Typed {
            function: function.to_owned(),
            arguments: arguments.to_owned(),
            ..Typed::default()
        };
        assert!(typed("state.apply", "web").is_harmful());
        assert!(!typed("state.apply", "web\ntest=True").is_harmful());
        assert!(typed("cmd.run", "test=True").is_harmful());
        assert!(!typed("test.ping", "").is_harmful());
    }

    #[test]
    fn target_of_each_type_is_a_search() {
        assert_eq!(compound("a,b", "list").as_deref(), Some("L@a,b"));
        assert_eq!(
            compound("web* and G@os:Debian", "compound").as_deref(),
            Some("web* and G@os:Debian")
        );
        assert_eq!(compound("os:Red Hat", "grain"), None);
    }
}

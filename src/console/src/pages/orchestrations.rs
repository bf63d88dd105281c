//! Orchestrations (`state.orchestrate`): those that run with their steps, those that ended with their
//! report, and the start of one.

use axum::extract::{Path, State as Site};
use axum::response::{IntoResponse, Redirect, Response};
use saltern_config::yaml;
use saltern_model::Jid;
use saltern_model::query::{CallStep, ReturnsPage, RunningCall};
use saltern_netapi::v1::{Problem, ask};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::run::typed_lines;
use super::{JobLine, State, job_lines, job_path, with_query};
use crate::cli;
use crate::highstate::{Returned, nested};
use crate::moment::{Moment, duration};
use crate::site::{Fields, Params, Shared, Submitted, Visit, encoded};
use crate::view::View;

/// Orchestrations of one page that ended.
const ROWS: i64 = 50;

/// The functions, as their returns are kept.
const FUNCTIONS: &str = "runner.state.*";

/// Jobs that are listed beside one that runs.
const BESIDE: i64 = 20;

#[derive(Serialize)]
struct ListView<'a> {
    running: Vec<CallLine>,
    ended: Vec<JobLine>,
    older: Option<String>,
    newest: Option<String>,
    mods: &'a str,
}

/// An orchestration that runs.
#[derive(Serialize)]
struct CallLine {
    jid: String,
    path: String,
    function: String,
    arguments: String,
    user: String,
    began: Moment,
    took: String,
    steps: usize,
    last: String,
}

fn path_of(jid: &str) -> String {
    format!("/console/orchestrations/{}", encoded(jid))
}

/// The calls of orchestrations that run, as far as the visitor may see them.
async fn running(site: &Shared, visit: &Visit) -> Result<Vec<RunningCall<Value>>, Problem> {
    if !visit.may.running {
        return Ok(Vec::new());
    }
    let mut calls: Vec<RunningCall<Value>> = site.query(visit, "calls.running", Vec::new()).await?;
    calls.retain(|call| call.function.starts_with("runner.state."));
    Ok(calls)
}

/// The page.
pub(crate) async fn page(
    Site(site): Site<Shared>,
    visit: Visit,
    Params(params): Params,
) -> Response {
    let view = list(&site, &visit, &params).await;
    site.respond(&visit, view)
}

async fn list(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let before = params.text("before");
    let arguments = vec![
        ("function", Some(FUNCTIONS.into())),
        ("before", before.map(Value::from)),
        ("limit", Some(ROWS.into())),
    ];
    let (mut ended, next) = job_lines(site, visit, arguments).await?;
    for line in &mut ended {
        line.path = path_of(&line.jid);
    }
    let calls = running(site, visit).await?.into_iter();
    let path = "/console/orchestrations";
    let content = ListView {
        running: calls.map(|call| call_line(&call, visit.now)).collect(),
        ended,
        older: next.map(|next| with_query(path, &[("before", Some(&next))])),
        newest: before.map(|_| path.to_owned()),
        mods: params.text("mods").unwrap_or_default(),
    };
    let view = View::new(
        "orchestrations.html",
        "orchestrations",
        "Orchestrations",
        content,
    );
    let line = match params.text("mods") {
        Some(mods) => cli::line(["salt-run", "state.orchestrate", mods]),
        None => "salt-run state.orchestrate SLS".to_owned(),
    };
    Ok(view.cli([line]).live([
        "salt/run/*/new",
        "salt/run/*/args",
        "salt/run/*/ret",
        "saltern/run/*/step",
    ]))
}

fn arguments_of(call: &RunningCall<Value>) -> Vec<String> {
    lines_of(call.arguments.as_array().unwrap_or_default())
}

/// The arguments of a call, a line each. Named ones stand in a map at the end, without stock's mark.
fn lines_of(arguments: &[Value]) -> Vec<String> {
    match arguments.split_last() {
        Some((Value::Map(named), rest)) => {
            let mark = (Value::from("__kwarg__"), Value::from(true));
            let named = named.iter().cloned().chain([mark]);
            let all = rest.iter().cloned().chain([Value::Map(named.collect())]);
            typed_lines(&all.collect::<Vec<_>>())
        }
        _ => typed_lines(arguments),
    }
}

fn call_line(call: &RunningCall<Value>, now: i64) -> CallLine {
    let steps = step_lines(&call.steps, now);
    CallLine {
        jid: call.jid.to_string(),
        path: path_of(call.jid.as_str()),
        function: short(&call.function).to_owned(),
        arguments: arguments_of(call).join(" "),
        user: call.user.clone(),
        began: Moment::new(call.began, now),
        took: duration(now - call.began),
        steps: steps.len() + call.left_out,
        last: steps
            .last()
            .map(|step| step.name.clone())
            .unwrap_or_default(),
    }
}

fn short(function: &str) -> &str {
    function.strip_prefix("runner.").unwrap_or(function)
}

#[derive(Serialize)]
struct OneView {
    jid: String,
    function: String,
    arguments: Vec<String>,
    user: String,
    began: Option<Moment>,
    ended: Option<Moment>,
    took: Option<String>,
    state: State,
    is_running: bool,
    steps: Vec<StepLine>,
    left_out: usize,
    /// Jobs that began since, of one that runs.
    beside: Option<Vec<JobLine>>,
    /// The report, of one that ended.
    returned: Option<Returned>,
    job_path: Option<String>,
    again: Option<String>,
}

/// A step of an orchestration that runs.
#[derive(Serialize)]
struct StepLine {
    name: String,
    kind: String,
    target: String,
    began: Moment,
    took: String,
    state: State,
    comment: String,
    #[serde(skip)]
    at: i64,
}

const RUNNING: State = State {
    word: "running",
    tone: "run",
};

/// One orchestration.
pub(crate) async fn one(
    Site(site): Site<Shared>,
    visit: Visit,
    Path(jid): Path<String>,
) -> Response {
    let view = one_view(&site, &visit, &jid).await;
    site.respond(&visit, view)
}

async fn one_view(site: &Shared, visit: &Visit, jid: &str) -> Result<View, Problem> {
    let parsed = Jid::parse(jid);
    let parsed = parsed.map_err(|_| Problem::not_found(format!("\"{jid}\" is no jid")))?;
    let mut calls = running(site, visit).await?.into_iter();
    let content = match calls.find(|call| call.jid == parsed) {
        Some(call) => running_view(site, visit, &call).await?,
        None => ended_view(site, visit, &parsed).await?,
    };
    let title = format!("{} · {jid}", content.function);
    let is_running = content.is_running;
    let words = ["salt-run", &content.function];
    let arguments = content.arguments.iter().map(String::as_str);
    let line = cli::line(words.into_iter().chain(arguments));
    let lookup = cli::line(["salt-run", "jobs.lookup_jid", jid]);
    let lookup = (!is_running).then_some(lookup);
    let view = View::new("orchestration.html", "orchestrations", title, content);
    let view = view.cli([line].into_iter().chain(lookup));
    Ok(match is_running {
        true => {
            let tags = [
                format!("salt/run/{jid}/*"),
                format!("saltern/run/{jid}/step"),
            ];
            let tags = tags.iter().map(String::as_str);
            view.live(tags.chain(["salt/job/*/new", "salt/job/*/ret/*"]))
                .watched()
        }
        false => view,
    })
}

async fn running_view(
    site: &Shared,
    visit: &Visit,
    call: &RunningCall<Value>,
) -> Result<OneView, Problem> {
    let mut beside = None;
    if visit.may.jobs {
        let arguments = vec![
            ("since", Some(call.began.into())),
            ("limit", Some(BESIDE.into())),
        ];
        beside = Some(job_lines(site, visit, arguments).await?.0);
    }
    Ok(OneView {
        jid: call.jid.to_string(),
        function: short(&call.function).to_owned(),
        arguments: arguments_of(call),
        user: call.user.clone(),
        began: Some(Moment::new(call.began, visit.now)),
        ended: None,
        took: Some(duration(visit.now - call.began)),
        state: RUNNING,
        is_running: true,
        steps: step_lines(&call.steps, visit.now),
        left_out: call.left_out,
        beside,
        returned: None,
        job_path: None,
        again: None,
    })
}

/// Steps with their results. A step without one runs: each is announced as it ends.
fn step_lines(steps: &[CallStep<Value>], now: i64) -> Vec<StepLine> {
    let mut lines: Vec<StepLine> = Vec::new();
    for step in steps {
        if step.kind != "result" {
            lines.push(StepLine {
                name: step.name.clone(),
                kind: step.kind.clone(),
                target: match step.target.as_array() {
                    Some(ids) => {
                        let ids: Vec<String> = ids.iter().map(nested).collect();
                        ids.join(",")
                    }
                    None if step.target.is_nil() => String::new(),
                    None => nested(&step.target),
                },
                began: Moment::new(step.at, now),
                took: duration(now - step.at),
                state: RUNNING,
                comment: String::new(),
                at: step.at,
            });
            continue;
        }
        let (word, tone) = match step.result {
            Some(true) => ("ok", "ok"),
            Some(false) => ("failed", "bad"),
            None => ("would change", "warn"),
        };
        let state = State { word, tone };
        let comment = step.comment.clone().unwrap_or_default();
        let name = step.id.as_ref().unwrap_or(&step.name);
        let own = lines.iter_mut().rev();
        let own = own
            .filter(|line| line.state == RUNNING)
            .find(|line| line.name == step.name);
        match own {
            Some(line) => {
                name.clone_into(&mut line.name);
                line.state = state;
                line.comment = comment;
                line.took = duration(step.at - line.at);
            }
            // Of a state that announces its end alone.
            None => lines.push(StepLine {
                name: name.clone(),
                kind: "state".to_owned(),
                target: String::new(),
                began: Moment::new(step.at, now),
                took: String::new(),
                state,
                comment,
                at: step.at,
            }),
        }
    }
    lines
}

async fn ended_view(site: &Shared, visit: &Visit, jid: &Jid) -> Result<OneView, Problem> {
    let arguments = vec![
        ("jid", Some(jid.as_str().into())),
        ("limit", Some(1_i64.into())),
    ];
    let page: ReturnsPage<Value> = site.query(visit, "jobs.returns", arguments).await?;
    let unknown = || {
        let detail = format!("there is no orchestration {jid}: it waits, was lost, or is not kept");
        Problem::not_found(detail)
    };
    let one = page.returns.into_iter().next().ok_or_else(unknown)?;
    let part = |name: &str| one.value.get(name);
    let function = short(&one.function).to_owned();
    let arguments = part("fun_args").and_then(Value::as_array);
    let arguments = lines_of(arguments.unwrap_or_default());
    let (word, tone) = match one.retcode == 0 && one.success {
        true => ("succeeded", "ok"),
        false => ("failed", "bad"),
    };
    let mods = arguments
        .first()
        .map(|first| first.trim_start_matches("mods="));
    Ok(OneView {
        jid: jid.to_string(),
        again: mods.map(|mods| with_query("/console/orchestrations", &[("mods", Some(mods))])),
        function,
        user: part("user").map(nested).unwrap_or_default(),
        began: None,
        ended: Some(Moment::new(one.received, visit.now)),
        took: None,
        state: State { word, tone },
        is_running: false,
        steps: Vec::new(),
        left_out: 0,
        beside: None,
        returned: Some(Returned::of(&one.value)),
        job_path: visit.may.job.then(|| job_path(jid.as_str())),
        arguments,
    })
}

/// Starts an orchestration.
pub(crate) async fn start(Site(site): Site<Shared>, submitted: Submitted) -> Response {
    let Submitted { visit, form } = submitted;
    match started(&site, &visit, &form).await {
        // It begins a moment later, and until then there is nothing to show.
        Ok(_) => Redirect::to("/console/orchestrations").into_response(),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

async fn started(site: &Shared, visit: &Visit, form: &Fields) -> Result<Value, Problem> {
    let missing = || Problem::invalid(Some("mods"), "the name of the orchestration is needed");
    let mods = form.text("mods").ok_or_else(missing)?;
    let is_test = form.text("mode") == Some("test");
    if !is_test && !form.is_on("confirm") {
        let detail = "please tick that you mean it, or have it run as a dry run";
        return Err(Problem::invalid(Some("confirm"), detail));
    }
    let mut arguments = vec![("mods", Value::from(mods))];
    if is_test {
        arguments.push(("test", true.into()));
    }
    if let Some(pillar) = form.text("pillar") {
        arguments.push(("pillar", pillar_of(pillar)?));
    }
    let gate = site.backend.gate();
    ask::runner(&gate, &visit.caller, "state.orchestrate", arguments).await
}

/// A pillar in YAML, which has to be a mapping.
fn pillar_of(text: &str) -> Result<Value, Problem> {
    let wrong = |detail: String| Problem::invalid(Some("pillar"), detail);
    let node = yaml::parse(text, "pillar", &yaml::Limits::DEFAULT);
    let node = node.map_err(|error| wrong(format!("the pillar is no YAML: {error}")))?;
    let value = saltern_requests::yaml_value(&node);
    match value.as_map() {
        Some(_) => Ok(value),
        None => Err(wrong("the pillar has to be a mapping".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ends_with_its_result_and_runs_until_then() {
        let step = |kind: &str, name: &str, result: Option<bool>, at: i64| CallStep {
            at,
            kind: kind.to_owned(),
            name: name.to_owned(),
            id: result.map(|_| format!("id of {name}")),
            target: Value::Nil,
            result,
            comment: None,
        };
        let steps = [
            step("state", "one", None, 0),
            step("result", "one", Some(true), 2_000_000),
            step("result", "alone", Some(false), 2_500_000),
            step("function", "two", None, 3_000_000),
            step("runner", "three", None, 4_000_000),
        ];
        let lines = step_lines(&steps, 5_000_000);
        let words = lines.iter();
        let words: Vec<_> = words
            .map(|line| (line.name.as_str(), line.state.word, line.took.as_str()))
            .collect();
        let expected = [
            ("id of one", "ok", "2.0 s"),
            ("id of alone", "failed", ""),
            ("two", "running", "2.0 s"),
            ("three", "running", "1.0 s"),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn named_arguments_of_a_call_are_lines_of_their_own() {
        let named = Value::map([("test", Value::from(true)), ("mods", "a".into())]);
        let lines = lines_of(&["b".into(), named]);
        assert_eq!(lines, ["b", "test=true", "mods=a"]);
    }

    #[test]
    fn pillar_is_a_mapping_in_yaml() {
        let one = Value::map([("a", Value::from(1_i64))]);
        assert_eq!(pillar_of("a: 1").unwrap(), one);
        for wrong in ["a", "- a", "a: ["] {
            assert!(pillar_of(wrong).is_err(), "{wrong}");
        }
    }
}

//! Drift: the last highstate of each minion, grouped by equal change, and by minion.
//!
//! A dry run can be started from here for one minion, or for all of a group or a verdict.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use saltern_model::query::{
    HighstateCounts, HighstateGroup, HighstateGroups, HighstateRow, HighstateRun, HighstatesPage,
};
use saltern_netapi::v1::{Problem, ask};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{State as Word, beside_filters, job_path, minion_path, with_query};
use crate::cli;
use crate::moment::Moment;
use crate::site::{Fields, Params, Shared, Submitted, Visit};
use crate::view::View;

/// Minions of one page.
const ROWS: i64 = 100;

/// Minions that one form tests at most: more have a target of their own, on the page "Run".
const MAX_TESTED: usize = 5_000;

/// The function of a highstate.
const FUNCTION: &str = "state.apply";

#[derive(Serialize)]
struct DriftView {
    tabs: Vec<Tab>,
    groups: Option<Vec<Group>>,
    more_groups: usize,
    rows: Option<Vec<Row>>,
    /// The group that is shown alone.
    group: Option<Group>,
    total: usize,
    next: Option<String>,
    first: Option<String>,
    /// Form fields that name the minions that are shown.
    test: Option<Test>,
    behind: u64,
    is_empty: bool,
    run_all: String,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Tab {
    label: &'static str,
    path: String,
    count: Option<usize>,
    is_current: bool,
}

/// Minions with the same change.
#[derive(Serialize)]
struct Group {
    id: String,
    path: String,
    verdict: Word,
    states: Vec<String>,
    more: usize,
    total: usize,
    minions: Vec<Named>,
    oldest: Moment,
    newest: Moment,
    test: Option<Test>,
}

#[derive(Serialize)]
struct Named {
    minion: String,
    path: String,
}

/// A minion with its last highstate.
#[derive(Serialize)]
pub(super) struct Row {
    minion: String,
    path: String,
    verdict: Word,
    pub(super) run: Option<Run>,
    test: Option<Test>,
}

/// Result of a highstate.
#[derive(Serialize)]
pub(super) struct Run {
    jid: String,
    job: String,
    received: Moment,
    is_test: bool,
    succeeded: usize,
    changed: usize,
    would_change: usize,
    failed: usize,
    states: Vec<String>,
    more: usize,
    files: Vec<String>,
    group: String,
}

/// A form that starts a dry run.
#[derive(Clone, Serialize)]
struct Test {
    /// Name and value of the field that names the minions.
    field: &'static str,
    value: String,
    total: usize,
    line: String,
}

/// The verdicts, with their words, in the order of the tabs.
const VERDICTS: [(&str, &str, Word); 5] = [
    ("failed", "Failed", word("failed", "bad")),
    ("drifted", "Drifted", word("drifted", "warn")),
    ("corrected", "Corrected", word("corrected", "run")),
    ("in_line", "In line", word("in line", "ok")),
    ("unknown", "Unknown", word("unknown", "mute")),
];

const fn word(word: &'static str, tone: &'static str) -> Word {
    Word { word, tone }
}

pub(super) fn verdict(name: &str) -> Word {
    let known = VERDICTS.iter().find(|(known, ..)| *known == name);
    known.map_or(word("unknown", "mute"), |(.., word)| *word)
}

impl Group {
    fn new(group: HighstateGroup, now: i64, may_test: bool) -> Self {
        let sample: Vec<&str> = group.minions.iter().map(|id| id.as_str()).collect();
        let test = Test::of(("group", &group.group), &sample, group.total);
        Self {
            path: with_query("/console/drift", &[("group", Some(&group.group))]),
            verdict: verdict(&group.verdict),
            states: group.states,
            more: group.more,
            total: group.total,
            minions: named(
                &group
                    .minions
                    .iter()
                    .map(|id| id.as_str())
                    .collect::<Vec<_>>(),
            ),
            oldest: Moment::new(group.oldest, now),
            newest: Moment::new(group.newest, now),
            test: test.filter(|_| may_test),
            id: group.group,
        }
    }
}

fn named(minions: &[&str]) -> Vec<Named> {
    const SHOWN: usize = 4;
    let shown = minions.iter().take(SHOWN);
    shown
        .map(|id| Named {
            minion: (*id).to_owned(),
            path: minion_path(id),
        })
        .collect()
}

impl Row {
    pub(super) fn new(row: HighstateRow, now: i64, may_test: bool) -> Self {
        let id = row.minion.as_str();
        let test = Test::of(("minion", id), &[id], 1);
        Self {
            path: minion_path(id),
            verdict: verdict(&row.verdict),
            run: row.run.map(|run| Run::new(run, now)),
            test: test.filter(|_| may_test),
            minion: row.minion.to_string(),
        }
    }
}

impl Run {
    fn new(run: HighstateRun, now: i64) -> Self {
        Self {
            job: job_path(run.jid.as_str()),
            jid: run.jid.to_string(),
            received: Moment::new(run.received, now),
            is_test: run.is_test,
            succeeded: run.succeeded,
            changed: run.changed,
            would_change: run.would_change,
            failed: run.failed,
            group: with_query("/console/drift", &[("group", Some(&run.group))]),
            states: run.states,
            more: run.more,
            files: run.files,
        }
    }
}

impl Test {
    /// For these minions, of which some are named; nothing for too many.
    fn of((field, value): (&'static str, &str), sample: &[&str], total: usize) -> Option<Self> {
        const SHOWN: usize = 10;
        let shown = sample.iter().take(SHOWN).copied().collect::<Vec<_>>();
        let rest = if total > shown.len() { ",…" } else { "" };
        let target = format!("{}{rest}", shown.join(","));
        let arguments = ["test=True".to_owned()];
        (1..=MAX_TESTED).contains(&total).then(|| Self {
            field,
            value: value.to_owned(),
            total,
            line: cli::salt(&[], (&target, "list"), FUNCTION, &arguments),
        })
    }
}

/// The page.
pub(crate) async fn page(
    State(site): State<Shared>,
    visit: Visit,
    Params(params): Params,
) -> Response {
    let view = view(&site, &visit, &params).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let groups: HighstateGroups = site.query(visit, "highstates.groups", Vec::new()).await?;
    let (wanted, of_group) = (params.text("verdict"), params.text("group"));
    let is_overview = wanted.is_none() && of_group.is_none();
    let counts = groups.counts;
    let tabs = tabs(&counts, wanted, is_overview);
    let behind = groups.behind;
    let more_groups = groups.more;
    let found = groups
        .groups
        .iter()
        .find(|one| Some(one.group.as_str()) == of_group)
        .cloned();
    let shown_groups = match (is_overview, found) {
        (true, _) => groups.groups,
        (false, found) => found.into_iter().collect(),
    };
    let samples: Vec<Vec<&str>> = shown_groups
        .iter()
        .map(|group| group.minions.iter().map(|id| id.as_str()).collect())
        .collect();
    let may = may_test(site, visit, &samples).await?;
    let shown_groups = shown_groups.into_iter().zip(may);
    let mut shown_groups: Vec<Group> = shown_groups
        .map(|(group, may)| Group::new(group, visit.now, may))
        .collect();
    let (mut rows, mut next, mut total, mut problem) = (None, None, 0, None);
    if !is_overview {
        let found = minions(site, visit, params).await;
        let nothing = (Vec::new(), 0, None);
        let ((found, of_all, cursor), fault) = beside_filters(found, nothing)?;
        (rows, total, next, problem) = (Some(found), of_all, cursor, fault);
    }
    let is_empty = counts
        == HighstateCounts {
            unknown: counts.unknown,
            ..Default::default()
        };
    let first = rows.as_deref().and_then(|rows| rows.first());
    let may_test_first = first.is_some_and(|row: &Row| row.test.is_some());
    let test = rows.as_deref().and_then(|rows| {
        let ids: Vec<&str> = rows.iter().map(|row| row.minion.as_str()).collect();
        match (of_group, wanted) {
            (Some(group), _) => Test::of(("group", group), &ids, total),
            (None, Some(verdict)) => Test::of(("verdict", verdict), &ids, total),
            (None, None) => None,
        }
    });
    let kept = [("verdict", wanted), ("group", of_group)];
    let content = DriftView {
        tabs,
        group: match is_overview {
            true => None,
            false => shown_groups.pop(),
        },
        groups: is_overview.then_some(shown_groups),
        more_groups,
        rows,
        total,
        next: next.as_deref().map(|next| {
            let mut kept = kept.to_vec();
            kept.push(("after", Some(next)));
            with_query("/console/drift", &kept)
        }),
        first: params
            .text("after")
            .map(|_| with_query("/console/drift", &kept)),
        test: test.filter(|_| may_test_first),
        behind,
        is_empty,
        run_all: with_query(
            "/console/run",
            &[
                ("tgt", Some("*")),
                ("fun", Some(FUNCTION)),
                ("args", Some("test=True")),
            ],
        ),
        problem,
    };
    let view = View::new("drift.html", "drift", "Drift", content);
    let view = view.cli([cli::salt(
        &[],
        ("*", "glob"),
        FUNCTION,
        &["test=True".to_owned()],
    )]);
    Ok(match params.text("after") {
        None => view.live(["salt/job/*/ret/*"]),
        Some(_) => view,
    })
}

fn tabs(counts: &HighstateCounts, wanted: Option<&str>, is_overview: bool) -> Vec<Tab> {
    let count = |name: &str| match name {
        "failed" => counts.failed,
        "drifted" => counts.drifted,
        "corrected" => counts.corrected,
        "in_line" => counts.in_line,
        _ => counts.unknown,
    };
    let overview = Tab {
        label: "Changes",
        path: "/console/drift".to_owned(),
        count: None,
        is_current: is_overview,
    };
    let verdicts = VERDICTS.iter().map(|(name, label, _)| Tab {
        label,
        path: with_query("/console/drift", &[("verdict", Some(name))]),
        count: Some(count(name)),
        is_current: wanted == Some(name),
    });
    std::iter::once(overview).chain(verdicts).collect()
}

/// Minions of a page, how many there are in all, and the cursor of the next page.
async fn minions(
    site: &Shared,
    visit: &Visit,
    params: &Fields,
) -> Result<(Vec<Row>, usize, Option<String>), Problem> {
    let text = |name: &str| params.text(name).map(Value::from);
    let arguments = vec![
        ("verdict", text("verdict")),
        ("group", text("group")),
        ("after", text("after")),
        ("limit", Some(ROWS.into())),
    ];
    let page: HighstatesPage = site.query(visit, "highstates.page", arguments).await?;
    let samples: Vec<Vec<&str>> = page
        .rows
        .iter()
        .map(|row| vec![row.minion.as_str()])
        .collect();
    let may = may_test(site, visit, &samples).await?;
    let rows = page.rows.into_iter().zip(may);
    let rows = rows.map(|(row, may)| Row::new(row, visit.now, may));
    Ok((rows.collect(), page.total, page.next))
}

/// Whether the visitor may start a dry run on each of these lists of minions.
pub(super) async fn may_test(
    site: &Shared,
    visit: &Visit,
    lists: &[Vec<&str>],
) -> Result<Vec<bool>, Problem> {
    let jobs = lists.iter().map(|minions| {
        let minions = minions.iter().map(|id| Value::from(*id));
        Value::map([
            ("fun", FUNCTION.into()),
            ("arg", Value::Array(vec![dry_run()])),
            ("tgt", Value::Array(minions.collect())),
        ])
    });
    site.may_publish(visit, jobs.collect()).await
}

/// `test=True` as an argument of a job.
fn dry_run() -> Value {
    Value::map([("__kwarg__", true), ("test", true)])
}

/// Starts a dry run for the minions that the form names.
pub(crate) async fn test(State(site): State<Shared>, submitted: Submitted) -> Response {
    let Submitted { visit, form } = submitted;
    match tested(&site, &visit, &form).await {
        Ok(jid) if visit.may.job => Redirect::to(&job_path(&jid)).into_response(),
        Ok(_) => Redirect::to("/console/drift").into_response(),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

async fn tested(site: &Shared, visit: &Visit, form: &Fields) -> Result<String, Problem> {
    let minions = match form.text("minion") {
        Some(minion) => vec![minion.to_owned()],
        None => named_by(site, visit, form).await?,
    };
    if minions.is_empty() {
        return Err(Problem::conflict("no minion has this result any more"));
    }
    let minions = minions.iter().map(|id| Value::from(id.as_str())).collect();
    let load = vec![
        ("tgt", Value::Array(minions)),
        ("tgt_type", "list".into()),
        ("fun", FUNCTION.into()),
        ("arg", Value::Array(vec![dry_run()])),
    ];
    let reply = ask::publish(&site.backend.gate(), &visit.caller, load).await?;
    let jid = reply.get("jid").and_then(Value::as_str);
    Ok(jid.unwrap_or_default().to_owned())
}

/// The minions of the group or verdict of a form.
async fn named_by(site: &Shared, visit: &Visit, form: &Fields) -> Result<Vec<String>, Problem> {
    let (group, verdict) = (form.text("group"), form.text("verdict"));
    if group.is_none() && verdict.is_none() {
        return Err(Problem::invalid(
            None,
            "a minion, a group or a verdict is needed",
        ));
    }
    let mut ids = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let arguments = vec![
            ("group", group.map(Value::from)),
            ("verdict", verdict.map(Value::from)),
            ("after", after.as_deref().map(Value::from)),
            (
                "limit",
                Some(Value::from(saltern_model::query::MAX_ROWS as u64)),
            ),
        ];
        let page: HighstatesPage = site.query(visit, "highstates.page", arguments).await?;
        ids.extend(page.rows.iter().map(|row| row.minion.to_string()));
        if ids.len() > MAX_TESTED {
            let text = "too many minions for one form; the page \"Run\" takes a target";
            return Err(Problem::conflict(text));
        }
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

//! The reactor: its rules with what they did, the latest reactions, and dead letters with their replay.

use axum::extract::State as Site;
use axum::response::{IntoResponse, Redirect, Response};
use saltern_model::query::{
    DeadLetterRow, DeadLettersPage, ReactionRow, ReactorFile, ReactorReport, ReactorRule,
};
use saltern_netapi::v1::Problem;
use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{State, job_path, with_query};
use crate::cli;
use crate::moment::Moment;
use crate::site::{Fields, Params, Shared, Submitted, Visit};
use crate::view::View;

/// Dead letters of one page.
const ROWS: i64 = 50;

/// Rules of one page.
const MAX_RULES: usize = 200;

/// Latest reactions that are shown.
const MAX_LATEST: usize = 30;

#[derive(Serialize)]
struct ReactorView {
    report: Option<ReportView>,
    /// Nothing for who may not see them.
    letters: Option<Vec<LetterView>>,
    total_letters: usize,
    older: Option<String>,
    newest: Option<String>,
}

#[derive(Serialize)]
struct ReportView {
    is_leader: bool,
    waiting: usize,
    dropped: u64,
    rules: Vec<RuleView>,
    more_rules: usize,
    latest: Vec<ReactionView>,
}

#[derive(Serialize)]
struct RuleView {
    tags: String,
    events_path: String,
    files: Vec<FileView>,
    events: u64,
    last: Option<Moment>,
}

/// A file of a rule, with the reactions of what it matches.
#[derive(Serialize)]
struct FileView {
    reference: String,
    done: u64,
    failed: u64,
}

#[derive(Serialize)]
struct ReactionView {
    at: Moment,
    state: State,
    tag: String,
    sls: String,
    id: String,
    call: String,
    reason: String,
    job: Option<String>,
}

#[derive(Serialize)]
struct LetterView {
    name: String,
    reaction: ReactionView,
    line: String,
}

/// The page.
pub(crate) async fn page(
    Site(site): Site<Shared>,
    visit: Visit,
    Params(params): Params,
) -> Response {
    let view = view(&site, &visit, &params).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let report: Option<ReactorReport> = site.query(visit, "reactor.report", Vec::new()).await?;
    let mut page = None;
    let before = params.text("before");
    if visit.may.dead_letters {
        let arguments = vec![
            ("before", before.map(Value::from)),
            ("limit", Some(ROWS.into())),
        ];
        let letters: DeadLettersPage = site.query(visit, "reactor.letters", arguments).await?;
        page = Some(letters);
    }
    let path = "/console/reactor";
    let older = page.as_ref().and_then(|page| page.next.as_deref());
    let content = ReactorView {
        older: older.map(|older| with_query(path, &[("before", Some(older))])),
        newest: before.map(|_| path.to_owned()),
        total_letters: page.as_ref().map_or(0, |page| page.total),
        letters: page.map(|page| {
            let letters = page.letters.into_iter();
            letters.map(|row| letter(row, visit.now)).collect()
        }),
        report: report.map(|report| shown(report, visit)),
    };
    let lines = ["salt-run reactor.list", "saltern reactor dead"];
    let view = View::new("reactor.html", "reactor", "Reactor", content);
    Ok(view.cli(lines.map(str::to_owned)).live([
        "saltern/reactor/*",
        "salt/reactors/*",
        "salt/job/*/new",
        "salt/run/*/ret",
    ]))
}

fn shown(report: ReactorReport, visit: &Visit) -> ReportView {
    let files = &report.files;
    let more_rules = report.rules.len().saturating_sub(MAX_RULES);
    let rules = report.rules.into_iter().take(MAX_RULES);
    let latest = report.latest.into_iter().take(MAX_LATEST);
    ReportView {
        is_leader: report.is_leader,
        waiting: report.waiting,
        dropped: report.dropped,
        rules: rules
            .map(|rule| rule_view(rule, files, visit.now))
            .collect(),
        more_rules,
        latest: latest.map(|row| reaction(row, visit)).collect(),
    }
}

fn rule_view(rule: ReactorRule, files: &[ReactorFile], now: i64) -> RuleView {
    let references = rule.references.into_iter();
    RuleView {
        events_path: with_query("/console/events", &[("tag", Some(&rule.tags))]),
        files: references
            .map(|reference| file_view(reference, files))
            .collect(),
        events: rule.events,
        last: rule.last.map(|last| Moment::new(last, now)),
        tags: rule.tags,
    }
}

fn file_view(reference: String, files: &[ReactorFile]) -> FileView {
    let pattern = Pattern::glob(&reference).ok();
    let is_it = |file: &&ReactorFile| {
        let matches = |pattern: &Pattern| pattern.matches(&file.sls);
        file.sls == reference || pattern.as_ref().is_some_and(matches)
    };
    let own: Vec<&ReactorFile> = files.iter().filter(is_it).collect();
    FileView {
        done: own.iter().map(|file| file.done).sum(),
        failed: own.iter().map(|file| file.failed).sum(),
        reference,
    }
}

fn reaction(row: ReactionRow, visit: &Visit) -> ReactionView {
    let jid = row.jid.as_ref().filter(|_| visit.may.job);
    let job = jid.map(|jid| job_path(jid.as_str()));
    ReactionView {
        job,
        ..reaction_without_job(row, visit.now)
    }
}

fn reaction_without_job(row: ReactionRow, now: i64) -> ReactionView {
    let (word, tone) = match row.outcome.as_str() {
        "done" => ("done", "ok"),
        "nobody" => ("no minion", "mute"),
        "dropped" => ("dropped", "warn"),
        "lost" => ("lost", "bad"),
        _ => ("failed", "bad"),
    };
    let call = [row.kind, row.function].into_iter().flatten();
    ReactionView {
        at: Moment::new(row.at, now),
        state: State { word, tone },
        tag: row.tag,
        sls: row.sls.unwrap_or_default(),
        id: row.id.unwrap_or_default(),
        call: call.collect::<Vec<_>>().join(" "),
        reason: row.reason.unwrap_or_default(),
        job: None,
    }
}

fn letter(row: DeadLetterRow, now: i64) -> LetterView {
    LetterView {
        line: cli::line(["saltern", "reactor", "replay", &row.name]),
        reaction: reaction_without_job(row.reaction, now),
        name: row.name,
    }
}

/// Replays a dead letter with the present rules and files.
pub(crate) async fn replay(Site(site): Site<Shared>, submitted: Submitted) -> Response {
    let Submitted { visit, form } = submitted;
    let letter = form.text("letter").unwrap_or_default();
    let arguments = vec![("letter", Some(Value::from(letter)))];
    let replayed: Result<bool, Problem> = site.query(&visit, "reactor.replay", arguments).await;
    match replayed {
        Ok(_) => Redirect::to("/console/reactor").into_response(),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

//! The audit trail in pages, with filters, the state of its chain of hashes, and an export.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use saltern_http::Stopping;
use saltern_model::query::{AuditLine, AuditPage, AuditState, AuditVerification};
use saltern_model::{AuditDoor, AuditVerdict};
use saltern_netapi::v1::{Caller, Problem, ask::Arguments, audit};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{State as Word, beside_filters, job_path, time_filter, with_query};
use crate::cli;
use crate::live::stop_of;
use crate::moment::Moment;
use crate::site::{Fields, Params, Shared, Submitted, Visit};
use crate::view::View;

/// Rows of one page.
const ROWS: i64 = 100;

/// Filters, and the options of `saltern audit` that do the same.
const FILTERS: [(&str, Option<&str>); 6] = [
    ("user", Some("--user")),
    ("door", Some("--door")),
    ("function", Some("--fun")),
    ("verdict", Some("--verdict")),
    ("since", None),
    ("until", None),
];

#[derive(Serialize)]
struct AuditView<'a> {
    rows: Vec<Row>,
    chain: Option<Chain>,
    user: &'a str,
    door: &'a str,
    function: &'a str,
    verdict: &'a str,
    since: &'a str,
    until: &'a str,
    doors: Vec<&'static str>,
    verdicts: Vec<&'static str>,
    is_filtered: bool,
    /// The page of older rows.
    older: Option<String>,
    /// The first page, when this is another one.
    newest: Option<String>,
    export: String,
    path: String,
    problem: Option<String>,
}

/// A row of the trail.
#[derive(Serialize)]
struct Row {
    number: i64,
    at: Moment,
    door: String,
    user: String,
    backend: Option<String>,
    proof: String,
    is_proved: bool,
    origin: Option<String>,
    command: String,
    function: String,
    target: Option<String>,
    target_type: Option<String>,
    arguments: Option<String>,
    verdict: Word,
    reason: Option<String>,
    jid: Option<String>,
    job: Option<String>,
    suppressed: u64,
    head: String,
}

/// Number and hash of a row, and the beginning of both.
#[derive(Serialize)]
struct Head {
    whole: String,
    short: String,
}

impl Head {
    fn new(whole: String) -> Self {
        const CHARACTERS: usize = 12;
        let short = match whole.split_once(':') {
            Some((number, hash)) => {
                let hash: String = hash.chars().take(CHARACTERS).collect();
                format!("{number}:{hash}…")
            }
            None => whole.clone(),
        };
        Self { whole, short }
    }
}

/// State of the chain.
#[derive(Serialize)]
struct Chain {
    head: Option<Head>,
    removed: i64,
    check: Option<Check>,
}

#[derive(Serialize)]
struct Check {
    at: Moment,
    by: String,
    rows: u64,
    head: Head,
    fault: Option<String>,
}

impl Row {
    fn new(line: AuditLine, now: i64) -> Self {
        let is_allowed = line.verdict == AuditVerdict::Allowed.as_str();
        Self {
            at: Moment::new(line.at, now),
            verdict: Word {
                word: if is_allowed { "allowed" } else { "refused" },
                tone: if is_allowed { "ok" } else { "bad" },
            },
            is_proved: line.proof != "none",
            // Calls of runners and wheels have a jid, too, and no job.
            job: line
                .jid
                .as_deref()
                .filter(|_| line.target.is_some())
                .map(job_path),
            arguments: Some(line.arguments)
                .filter(|text| !matches!(text.as_str(), "" | "[]" | "{}" | "null")),
            number: line.number,
            door: line.door,
            user: line.user,
            backend: line.backend,
            proof: line.proof,
            origin: line.origin,
            command: line.command,
            function: line.function,
            target: line.target,
            target_type: line.target_type,
            reason: line.reason,
            jid: line.jid,
            suppressed: line.suppressed,
            head: line.head,
        }
    }
}

impl Chain {
    fn new(state: AuditState, now: i64) -> Self {
        let check = state.check.map(|check| Check {
            at: Moment::new(check.at, now),
            by: check.by,
            rows: check.rows,
            head: Head::new(check.head),
            fault: check.fault,
        });
        Self {
            head: state.head.map(Head::new),
            removed: state.removed,
            check,
        }
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

fn filters(params: &Fields, now: i64) -> Result<Arguments, Problem> {
    let text = |name: &str| params.text(name).map(Value::from);
    Ok(vec![
        ("user", text("user")),
        ("door", text("door")),
        ("function", text("function")),
        ("verdict", text("verdict")),
        ("since", time_filter(params, "since", now)?),
        ("until", time_filter(params, "until", now)?),
    ])
}

fn kept(params: &Fields) -> Vec<(&'static str, Option<&str>)> {
    let names = FILTERS.iter();
    names.map(|(name, _)| (*name, params.text(name))).collect()
}

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let asked = async {
        let mut arguments = filters(params, visit.now)?;
        arguments.push(("before", params.text("before").map(Value::from)));
        arguments.push(("limit", Some(ROWS.into())));
        site.query(visit, "audit.page", arguments).await
    };
    let nothing = AuditPage {
        rows: Vec::new(),
        next: None,
    };
    let (page, problem) = beside_filters(asked.await, nothing)?;
    let state: AuditState = site.query(visit, "audit.state", Vec::new()).await?;
    let is_first = params.text("before").is_none();
    let kept = kept(params);
    let of = |name: &str| params.text(name).unwrap_or_default();
    let older = page.next.as_deref().map(|next| {
        let mut kept = kept.clone();
        kept.push(("before", Some(next)));
        with_query("/console/audit", &kept)
    });
    let rows = page.rows.into_iter();
    let content = AuditView {
        rows: rows.map(|row| Row::new(row, visit.now)).collect(),
        chain: Some(Chain::new(state, visit.now)),
        user: of("user"),
        door: of("door"),
        function: of("function"),
        verdict: of("verdict"),
        since: of("since"),
        until: of("until"),
        doors: AuditDoor::ALL.iter().map(|door| door.as_str()).collect(),
        verdicts: AuditVerdict::ALL.iter().map(|one| one.as_str()).collect(),
        is_filtered: kept.iter().any(|(_, value)| value.is_some()),
        older,
        newest: (!is_first).then(|| with_query("/console/audit", &kept)),
        export: with_query("/console/audit/export", &kept),
        path: with_query("/console/audit", &kept),
        problem,
    };
    let view = View::new("audit.html", "audit", "Audit", content);
    let view = view.cli([
        command_line(params, visit.now),
        "saltern audit verify".to_owned(),
    ]);
    Ok(match is_first {
        true => view.live([
            "salt/job/*/new",
            "salt/run/*/new",
            "salt/wheel/*/new",
            "salt/key",
        ]),
        false => view,
    })
}

/// `saltern audit` with the same filters.
fn command_line(params: &Fields, now: i64) -> String {
    let mut words = vec!["saltern".to_owned(), "audit".to_owned()];
    for (name, option) in FILTERS {
        if let (Some(option), Some(value)) = (option, params.text(name)) {
            words.extend([option.to_owned(), value.to_owned()]);
        }
    }
    for name in ["since", "until"] {
        let typed = params
            .text(name)
            .and_then(|text| crate::moment::typed(text, now));
        if let Some(micros) = typed {
            let age = now.saturating_sub(micros).max(0) / 1_000_000;
            words.extend([format!("--{name}"), age.to_string()]);
        }
    }
    cli::line(words.iter().map(String::as_str))
}

/// All rows that the filters match, as lines of JSON.
pub(crate) async fn export(
    State(site): State<Shared>,
    visit: Visit,
    stopping: Option<Extension<Stopping>>,
    Params(params): Params,
) -> Response {
    let lines = async {
        let filters = filters(&params, visit.now)?;
        let caller = Caller {
            token: visit.caller.token.clone(),
            from: visit.caller.from,
        };
        audit::export(site.backend.gate(), caller, filters, stop_of(stopping)).await
    };
    match lines.await {
        Ok(lines) => lines,
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

/// Recomputes the chain of hashes, and shows the page again.
pub(crate) async fn verify(State(site): State<Shared>, submitted: Submitted) -> Response {
    let visit = submitted.visit;
    let checked: Result<AuditVerification, Problem> =
        site.query(&visit, "audit.verify", Vec::new()).await;
    match checked {
        Ok(_) => Redirect::to("/console/audit").into_response(),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

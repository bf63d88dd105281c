//! Jobs in pages, with filters.

use axum::extract::State;
use axum::response::Response;
use saltern_netapi::v1::Problem;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{JobLine, JobLines, beside_filters, job_page, time_filter, with_query};
use crate::cli;
use crate::site::{Fields, Params, Shared, Visit};
use crate::view::View;

/// Jobs of one page.
const ROWS: i64 = 100;

/// Filters that are texts, and the parameters of `salt-run jobs.list_jobs` that do the same.
const FILTERS: [(&str, Option<&str>); 6] = [
    ("function", Some("search_function")),
    ("user", None),
    ("target", Some("search_target")),
    ("minion", None),
    ("since", None),
    ("until", None),
];

#[derive(Serialize)]
struct JobsView<'a> {
    jobs: Vec<JobLine>,
    function: &'a str,
    user: &'a str,
    target: &'a str,
    minion: &'a str,
    state: &'a str,
    since: &'a str,
    until: &'a str,
    is_filtered: bool,
    /// The page of older jobs.
    older: Option<String>,
    /// The first page, when this is another one.
    newest: Option<String>,
    problem: Option<String>,
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
    let text = |name: &str| params.text(name).map(Value::from);
    let asked = async {
        let arguments = vec![
            ("function", text("function")),
            ("user", text("user")),
            ("target", text("target")),
            ("minion", text("minion")),
            ("state", text("state")),
            ("since", time_filter(params, "since", visit.now)?),
            ("until", time_filter(params, "until", visit.now)?),
            ("before", text("before")),
            ("limit", Some(ROWS.into())),
        ];
        job_page(site, visit, arguments).await
    };
    let (page, problem) = beside_filters(asked.await, JobLines::default())?;
    let (jobs, next) = (page.lines, page.next);
    let problem = problem.or(page.incomplete);
    let of = |name: &str| params.text(name).unwrap_or_default();
    let mut kept: Vec<(&str, Option<&str>)> = FILTERS
        .iter()
        .map(|(name, _)| (*name, params.text(name)))
        .collect();
    kept.push(("state", params.text("state")));
    let newest = with_query("/console/jobs", &kept);
    let is_first = params.text("before").is_none();
    let is_filtered = kept.iter().any(|(_, value)| value.is_some());
    let older = next.as_deref().map(|next| {
        let mut kept = kept.clone();
        kept.push(("before", Some(next)));
        with_query("/console/jobs", &kept)
    });
    let content = JobsView {
        jobs,
        function: of("function"),
        user: of("user"),
        target: of("target"),
        minion: of("minion"),
        state: of("state"),
        since: of("since"),
        until: of("until"),
        is_filtered,
        older,
        newest: (!is_first).then_some(newest),
        problem,
    };
    let view = View::new("jobs.html", "jobs", "Jobs", content).cli(command_lines(params));
    // Older pages change seldom, and nobody waits for that.
    Ok(match is_first {
        true => view.live([
            "salt/job/*/new",
            "salt/job/*/ret/*",
            "saltern/job/*/finished",
        ]),
        false => view,
    })
}

/// `jobs.list_jobs` where it has all of the filters, else `/v1`, which has.
fn command_lines(params: &Fields) -> Vec<String> {
    let named = FILTERS.iter().chain([&("state", None)]);
    let given: Vec<_> = named
        .filter_map(|(name, stock)| Some((name, stock, params.text(name)?)))
        .collect();
    let stock: Option<Vec<String>> = given
        .iter()
        .map(|(_, stock, value)| Some(format!("{}={value}", (**stock)?)))
        .collect();
    let line = match stock {
        Some(words) => cli::line(
            ["salt-run", "jobs.list_jobs"]
                .into_iter()
                .chain(words.iter().map(String::as_str)),
        ),
        None => {
            let parameters: Vec<_> = given
                .iter()
                .map(|(name, _, value)| (**name, Some(*value)))
                .collect();
            let path = with_query("/v1/jobs", &parameters);
            let header = "Authorization: Bearer $TOKEN";
            format!(
                "curl -H \"{header}\" {}",
                cli::line([&*format!("https://MASTER{path}")])
            )
        }
    };
    vec![line]
}

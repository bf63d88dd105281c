//! Minions by target expression, with presence and columns that the visitor chooses: grains, version,
//! address, the last job, the last highstate.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use saltern_model::control::InventoryRow;
use saltern_model::query::{HighstateRow, HighstatesPage, LastJobRow, MinionsPage};
use saltern_netapi::v1::Problem;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{State as Word, beside_filters, drift, if_allowed, job_path, minion_path, with_query};
use crate::cli;
use crate::highstate::nested;
use crate::moment::Moment;
use crate::site::{Fields, Params, Shared, Visit};
use crate::view::View;

/// Minions of one page.
const ROWS: i64 = 100;

/// Columns unless others are asked for.
const DEFAULT: &str = "os,osrelease,version,last_job";

/// Columns at most.
const MAX_COLUMNS: usize = 8;

/// Characters of one grain in a table.
const MAX_CELL: usize = 80;

/// Columns that are offered; any other grain can be typed.
const OFFERED: [&str; 14] = [
    "os",
    "osrelease",
    "version",
    "last_job",
    "highstate",
    "address",
    "kernelrelease",
    "cpuarch",
    "num_cpus",
    "mem_total",
    "virtual",
    "roles",
    "environment",
    "fqdn",
];

#[derive(Serialize)]
struct MinionsView<'a> {
    minions: Vec<Row>,
    columns: Vec<Heading>,
    /// Columns that can be added or taken away.
    choices: Vec<Choice>,
    kinds: &'static [(&'static str, &'static str, &'static str)],
    target: &'a str,
    grains: &'a str,
    present: &'a str,
    total: usize,
    next: Option<String>,
    first: Option<String>,
    run: String,
    problem: Option<String>,
}

/// The kinds of a target: how it is written, an example, and what it means.
const KINDS: [(&str, &str, &str); 9] = [
    ("web*", "web*", "ids by wildcard"),
    ("L@", "L@web1,web2", "a list of ids"),
    ("E@", "E@web\\d+", "ids by regular expression"),
    ("G@", "G@os:Debian", "a grain by wildcard"),
    (
        "P@",
        "P@os:(Debian|Ubuntu)",
        "a grain by regular expression",
    ),
    ("I@", "I@role:web", "pillar by wildcard"),
    ("J@", "J@role:(web|db)", "pillar by regular expression"),
    ("S@", "S@10.0.0.0/8", "an address or a network"),
    ("N@", "N@group", "a nodegroup"),
];

#[derive(Serialize)]
struct Heading {
    name: String,
    label: &'static str,
}

#[derive(Serialize)]
struct Choice {
    name: &'static str,
    is_shown: bool,
    path: String,
}

/// Column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    /// The grain at this path.
    Grain(String),
    Version,
    Address,
    LastJob,
    Highstate,
}

impl Column {
    fn of(name: &str) -> Self {
        match name {
            "version" | "saltversion" => Self::Version,
            "address" => Self::Address,
            "last_job" => Self::LastJob,
            "highstate" => Self::Highstate,
            path => Self::Grain(path.to_owned()),
        }
    }

    /// The grain that it shows.
    fn grain(&self) -> Option<&str> {
        match self {
            Self::Grain(path) => Some(path),
            Self::Version => Some("saltversion"),
            Self::Address | Self::LastJob | Self::Highstate => None,
        }
    }

    fn heading(&self) -> Heading {
        let (name, label) = match self {
            Self::Grain(path) => (path.clone(), ""),
            Self::Version => ("version".to_owned(), "Version"),
            Self::Address => ("address".to_owned(), "Address"),
            Self::LastJob => ("last_job".to_owned(), "Last job"),
            Self::Highstate => ("highstate".to_owned(), "Highstate"),
        };
        Heading { name, label }
    }

    /// The field of `saltern minions --columns` that shows the same.
    fn field(&self) -> Option<&str> {
        match self {
            Self::Grain(path) => Some(path),
            Self::Version => Some("saltversion"),
            Self::Address => Some("address"),
            Self::LastJob => Some("job"),
            Self::Highstate => None,
        }
    }
}

/// A minion of the table.
#[derive(Serialize)]
struct Row {
    minion: String,
    path: String,
    is_present: bool,
    standing: String,
    last_heard: Option<Moment>,
    cells: Vec<Cell>,
}

/// Content of a column.
#[derive(Default, Serialize)]
struct Cell {
    text: String,
    path: Option<String>,
    pill: Option<Word>,
    moment: Option<Moment>,
}

impl Cell {
    fn text(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// A minion of a list.
#[derive(Serialize)]
pub(crate) struct MinionLine {
    pub(crate) minion: String,
    pub(crate) path: String,
    pub(crate) is_present: bool,
    /// Its presence in words.
    pub(crate) standing: String,
    pub(crate) last_heard: Option<Moment>,
    pub(crate) address: String,
}

impl MinionLine {
    pub(crate) fn new(row: InventoryRow<Value>, now: i64) -> Self {
        let minion = row.minion;
        Self {
            path: minion_path(minion.id.as_str()),
            minion: minion.id.to_string(),
            is_present: minion.is_present,
            standing: minion.standing,
            last_heard: minion.last_heard.map(|heard| Moment::new(heard, now)),
            address: minion
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
        }
    }
}

/// A grain in one line.
fn cell_text(value: Option<Value>) -> String {
    let text = value.as_ref().map(nested).unwrap_or_default();
    let text = text.trim().replace('\n', " ");
    text.chars().take(MAX_CELL).collect()
}

/// Values of the columns that are no grains, by minion.
#[derive(Default)]
struct Others {
    jobs: HashMap<String, LastJobRow>,
    highstates: HashMap<String, HighstateRow>,
}

impl Others {
    /// Asked for only where a column shows it and the visitor may see it.
    async fn of(
        site: &Shared,
        visit: &Visit,
        columns: &[Column],
        minions: &[String],
    ) -> Result<Self, Problem> {
        let mut others = Self::default();
        let ids = || minions.iter().map(|id| Value::from(id.as_str())).collect();
        let arguments = || vec![("minions", Some(Value::Array(ids())))];
        if minions.is_empty() {
            return Ok(others);
        }
        if columns.contains(&Column::LastJob) && visit.may.jobs {
            let jobs: Result<Vec<LastJobRow>, Problem> =
                site.query(visit, "minions.last_jobs", arguments()).await;
            let jobs = if_allowed(jobs)?.unwrap_or_default().into_iter();
            others.jobs = jobs.map(|job| (job.minion.to_string(), job)).collect();
        }
        if columns.contains(&Column::Highstate) && visit.may.returns {
            let mut arguments = arguments();
            arguments.push(("limit", Some(ROWS.into())));
            let page: Result<HighstatesPage, Problem> =
                site.query(visit, "highstates.page", arguments).await;
            let rows = if_allowed(page)?.map(|page| page.rows).unwrap_or_default();
            let rows = rows.into_iter();
            others.highstates = rows.map(|row| (row.minion.to_string(), row)).collect();
        }
        Ok(others)
    }

    fn last_job(&self, minion: &str, visit: &Visit) -> Cell {
        let Some(job) = self.jobs.get(minion) else {
            return Cell::default();
        };
        let pill = (job.retcode != 0).then_some(Word {
            word: "failed",
            tone: "bad",
        });
        Cell {
            path: visit.may.job.then(|| job_path(&job.jid)),
            moment: Some(Moment::new(job.received, visit.now)),
            text: job.function.clone(),
            pill,
        }
    }

    fn highstate(&self, minion: &str, now: i64) -> Cell {
        let Some(row) = self.highstates.get(minion) else {
            return Cell::default();
        };
        Cell {
            pill: Some(drift::verdict(&row.verdict)),
            moment: row.run.as_ref().map(|run| Moment::new(run.received, now)),
            ..Cell::default()
        }
    }
}

fn row(row: InventoryRow<Value>, columns: &[Column], others: &Others, visit: &Visit) -> Row {
    let mut grains = row.grains.into_iter();
    let line = MinionLine::new(
        InventoryRow {
            minion: row.minion,
            grains: Vec::new(),
        },
        visit.now,
    );
    let cells = columns.iter().map(|column| match column {
        Column::Grain(_) | Column::Version => Cell::text(cell_text(grains.next().flatten())),
        Column::Address => Cell::text(line.address.clone()),
        Column::LastJob => others.last_job(&line.minion, visit),
        Column::Highstate => others.highstate(&line.minion, visit.now),
    });
    let cells = cells.collect();
    Row {
        minion: line.minion,
        path: line.path,
        is_present: line.is_present,
        standing: line.standing,
        last_heard: line.last_heard,
        cells,
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
    let text = |name: &str| params.text(name);
    let typed = text("grains").unwrap_or(DEFAULT);
    let names: Vec<&str> = column_names(typed);
    let columns: Vec<Column> = names.iter().map(|name| Column::of(name)).collect();
    let paths = columns.iter().filter_map(Column::grain);
    let paths = paths.map(Value::from).collect();
    let present = match text("present") {
        Some("yes") => Some(true),
        Some("no") => Some(false),
        _ => None,
    };
    let arguments = vec![
        ("target", text("target").map(Value::from)),
        ("present", present.map(Value::from)),
        ("grains", Some(Value::Array(paths))),
        ("after", text("after").map(Value::from)),
        ("limit", Some(ROWS.into())),
    ];
    let found: Result<MinionsPage<Value>, Problem> =
        site.query(visit, "minions.page", arguments).await;
    let nothing = MinionsPage {
        minions: Vec::new(),
        total: 0,
        next: None,
    };
    let (page, problem) = beside_filters(found, nothing)?;
    let kept = [
        ("target", text("target")),
        ("grains", text("grains")),
        ("present", text("present")),
    ];
    let next = page.next.as_deref().map(|next| {
        let mut kept = kept.to_vec();
        kept.push(("after", Some(next)));
        with_query("/console/minions", &kept)
    });
    let target = text("target").unwrap_or_default();
    let run = match target {
        "" => with_query("/console/run", &[("tgt", Some("*"))]),
        target => with_query(
            "/console/run",
            &[("tgt", Some(target)), ("tgt_type", Some("compound"))],
        ),
    };
    let ids = page.minions.iter().map(|row| row.minion.id.to_string());
    let ids: Vec<String> = ids.collect();
    let others = Others::of(site, visit, &columns, &ids).await?;
    let minions = page.minions.into_iter();
    let minions = minions.map(|minion| row(minion, &columns, &others, visit));
    let content = MinionsView {
        minions: minions.collect(),
        columns: columns.iter().map(Column::heading).collect(),
        choices: choices(&names, params),
        kinds: &KINDS,
        target,
        grains: typed,
        present: text("present").unwrap_or_default(),
        total: page.total,
        next,
        first: text("after").map(|_| with_query("/console/minions", &kept)),
        run,
        problem,
    };
    let fields = columns.iter().filter_map(Column::field);
    let fields: Vec<&str> = ["id", "present"].into_iter().chain(fields).collect();
    let shown = if target.is_empty() { "*" } else { target };
    let view = View::new("minions.html", "minions", "Minions", content).cli([cli::line([
        "saltern",
        "minions",
        "--columns",
        &fields.join(","),
        shown,
    ])]);
    Ok(match text("after").is_none() {
        true => view.live(["salt/presence/change", "salt/minion/*/start", "salt/key"]),
        false => view,
    })
}

/// The names of columns, each once.
fn column_names(typed: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in typed.split(',').map(str::trim) {
        if !name.is_empty() && !names.contains(&name) && names.len() < MAX_COLUMNS {
            names.push(name);
        }
    }
    names
}

/// Offered columns, each with the page on which it is added or taken away.
fn choices(shown: &[&str], params: &Fields) -> Vec<Choice> {
    let choice = |name: &'static str| {
        let is_shown = shown.contains(&name);
        let mut names: Vec<&str> = shown.to_vec();
        match is_shown {
            true => names.retain(|one| *one != name),
            false => names.push(name),
        }
        let grains = names.join(",");
        let kept = [
            ("target", params.text("target")),
            ("present", params.text("present")),
            ("grains", Some(grains.as_str())),
        ];
        Choice {
            name,
            is_shown,
            path: with_query("/console/minions", &kept),
        }
    };
    OFFERED.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_is_shown_once_and_choice_toggles_it() {
        let names = column_names(" os,version, os,,last_job");
        assert_eq!(names, ["os", "version", "last_job"]);
        assert_eq!(column_names(&"a,".repeat(20)).len(), 1);
        let params = Fields::parse("target=web*&after=x");
        let choices = choices(&names, &params);
        let path = |name: &str| {
            let choice = choices.iter().find(|choice| choice.name == name).unwrap();
            (choice.is_shown, choice.path.clone())
        };
        let without = "/console/minions?target=web%2A&grains=version%2Clast_job".to_owned();
        assert_eq!(path("os"), (true, without));
        let with = "/console/minions?target=web%2A&grains=os%2Cversion%2Clast_job%2Chighstate";
        assert_eq!(path("highstate"), (false, with.to_owned()));
    }
}

//! Minions by target expression, with presence and some grains.

use axum::extract::State;
use axum::response::Response;
use saltern_model::control::InventoryRow;
use saltern_model::query::MinionsPage;
use saltern_netapi::v1::Problem;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{beside_filters, minion_path, with_query};
use crate::cli;
use crate::highstate::nested;
use crate::moment::Moment;
use crate::site::{Fields, Params, Shared, Visit};
use crate::view::View;

/// Minions of one page.
const ROWS: i64 = 100;

/// Columns of grains unless others are asked for.
const GRAINS: &str = "os,osrelease,saltversion";

/// Columns of grains at most.
const MAX_COLUMNS: usize = 8;

/// Characters of one grain in a table.
const MAX_CELL: usize = 80;

#[derive(Serialize)]
struct MinionsView<'a> {
    minions: Vec<MinionLine>,
    columns: Vec<String>,
    target: &'a str,
    grains: &'a str,
    present: &'a str,
    total: usize,
    next: Option<String>,
    first: Option<String>,
    run: String,
    problem: Option<String>,
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
    pub(crate) grains: Vec<String>,
}

impl MinionLine {
    pub(crate) fn new(row: InventoryRow<Value>, now: i64) -> Self {
        let InventoryRow { minion, grains } = row;
        let cell = |value: Option<Value>| {
            let text = value.as_ref().map(nested).unwrap_or_default();
            let text = text.trim().replace('\n', " ");
            text.chars().take(MAX_CELL).collect()
        };
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
            grains: grains.into_iter().map(cell).collect(),
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

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> Result<View, Problem> {
    let text = |name: &str| params.text(name);
    let grains = text("grains").unwrap_or(GRAINS);
    let columns = grains
        .split(',')
        .map(str::trim)
        .filter(|path| !path.is_empty());
    let columns: Vec<String> = columns.take(MAX_COLUMNS).map(str::to_owned).collect();
    let paths = columns.iter().map(|path| path.as_str().into()).collect();
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
    let minions = page.minions.into_iter();
    let content = MinionsView {
        minions: minions.map(|row| MinionLine::new(row, visit.now)).collect(),
        target,
        grains,
        present: text("present").unwrap_or_default(),
        total: page.total,
        next,
        first: text("after").map(|_| with_query("/console/minions", &kept)),
        run,
        problem,
        columns: columns.clone(),
    };
    let fields = format!("id,present,{}", columns.join(","));
    let shown = if target.is_empty() { "*" } else { target };
    let view = View::new("minions.html", "minions", "Minions", content).cli([cli::line([
        "saltern",
        "minions",
        "--columns",
        &fields,
        shown,
    ])]);
    Ok(match text("after").is_none() {
        true => view.live(["salt/presence/change", "salt/minion/*/start", "salt/key"]),
        false => view,
    })
}

//! A minion: presence and its history, its last highstate, grains, the keys of its pillar, its mine,
//! its jobs, its key.

use axum::extract::{Path, State as Site};
use axum::response::Response;
use saltern_model::query::{HighstatesPage, KeysPage, MinionEvent, MinionHistory, MinionsPage};
use saltern_netapi::v1::Problem;
use saltern_python::fnmatch::escaped;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::minions::MinionLine;
use super::{JobLine, KeyLine, State, drift, if_allowed, job_lines, with_query};
use crate::cli;
use crate::highstate::{Text, nested};
use crate::moment::Moment;
use crate::site::{Shared, Submitted, Visit, encoded};
use crate::view::View;

/// Jobs that are shown.
const JOBS: i64 = 15;

/// Events of its history that are shown.
const EVENTS: i64 = 20;

/// Functions of its mine that are shown.
const MINE: usize = 100;

/// Bytes of the values of its mine that are shown in all.
const MAX_MINE: usize = 64 << 10;

#[derive(Serialize)]
struct MinionView {
    minion: String,
    seen: Option<MinionLine>,
    grains: Vec<Entry>,
    /// The names of the pillar's first level; nothing for who may not see them.
    pillar: Option<Vec<String>>,
    /// The values, when they were asked for.
    pillar_values: Option<Text>,
    pillar_path: String,
    /// Functions of its mine with their results; nothing for who may not see them.
    mine: Option<Vec<Mined>>,
    highstate: Option<drift::Row>,
    history: Option<History>,
    jobs: Option<Vec<JobLine>>,
    all_jobs: String,
    keys: Option<Vec<KeyLine>>,
    run: String,
    path: String,
}

/// A grain.
#[derive(Serialize)]
struct Entry {
    name: String,
    value: String,
}

/// A function of the mine; without its value where the page has no room for it.
#[derive(Serialize)]
struct Mined {
    function: String,
    value: Option<String>,
}

/// History of its presence.
#[derive(Serialize)]
struct History {
    events: Vec<Happened>,
    /// How far back kept events were looked at; nothing when none is kept.
    since: Option<Moment>,
}

#[derive(Serialize)]
struct Happened {
    at: Moment,
    state: State,
    /// In words.
    text: String,
}

impl Happened {
    fn new(event: MinionEvent, now: i64) -> Self {
        let (word, tone, text) = match event.kind.as_str() {
            "connected" => ("connected", "ok", "It was connected."),
            "lost" => ("lost", "bad", "Its connection was lost."),
            "started" => ("started", "ok", "Its process started."),
            "authenticated" => ("authenticated", "mute", "It proved its key."),
            "refused" => ("not admitted", "warn", "Its key was not accepted"),
            _ => ("key", "mute", "Its key was changed"),
        };
        let text = match event.detail.as_deref() {
            Some(action) if matches!(event.kind.as_str(), "refused" | "key") => {
                format!("{text}: {action}")
            }
            _ => text.to_owned(),
        };
        Self {
            at: Moment::new(event.at, now),
            state: State { word, tone },
            text,
        }
    }
}

/// The page.
pub(crate) async fn page(
    Site(site): Site<Shared>,
    visit: Visit,
    Path(id): Path<String>,
) -> Response {
    let view = view(&site, &visit, &id, false).await;
    site.respond(&visit, view)
}

/// The page with the values of the pillar: asked for by a form, so that they are in no history.
pub(crate) async fn pillar(
    Site(site): Site<Shared>,
    Path(id): Path<String>,
    submitted: Submitted,
) -> Response {
    let visit = submitted.visit;
    let view = view(&site, &visit, &id, true).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit, id: &str, with_values: bool) -> Result<View, Problem> {
    let of_minion = || vec![("minion", Some(Value::from(id)))];
    let page: MinionsPage<Value> = site.query(visit, "minions.page", of_minion()).await?;
    let seen = page.minions.into_iter().next();
    let of_key = vec![("match", Some(escaped(id).into()))];
    let keys: Option<KeysPage> = match visit.may.keys {
        true => if_allowed(site.query(visit, "keys.page", of_key).await)?,
        false => None,
    };
    let keys = keys.map(|page| {
        let keys = page
            .keys
            .into_iter()
            .filter(|key| key.minion.as_str() == id);
        keys.map(|key| KeyLine::new(key, visit.now, None))
            .collect::<Vec<_>>()
    });
    if seen.is_none() && keys.as_ref().is_none_or(Vec::is_empty) {
        return Err(Problem::not_found(format!("no minion is called \"{id}\"")));
    }
    let grains: Value = site.query(visit, "minions.grains", of_minion()).await?;
    let pillar: Option<Value> = match visit.may.pillar {
        true => if_allowed(site.query(visit, "minions.pillar", of_minion()).await)?,
        false => None,
    };
    if with_values && pillar.is_none() {
        return Err(Problem::conflict(
            "you may not see the pillar of this minion",
        ));
    }
    let mut of_jobs = of_minion();
    of_jobs.push(("limit", Some(JOBS.into())));
    let jobs = match visit.may.jobs {
        true => if_allowed(job_lines(site, visit, of_jobs).await)?,
        false => None,
    };
    let names = |value: &Value| {
        let entries = value.as_map().unwrap_or_default();
        let mut names: Vec<String> = entries.iter().map(|(name, _)| nested(name)).collect();
        names.sort_unstable();
        names
    };
    let content = MinionView {
        minion: id.to_owned(),
        seen: seen.map(|seen| MinionLine::new(seen, visit.now)),
        grains: entries(&grains),
        pillar: pillar.as_ref().map(names),
        pillar_values: pillar
            .as_ref()
            .filter(|_| with_values)
            .map(|pillar| Text::cut(nested(pillar))),
        pillar_path: format!("/console/minions/{}/pillar", encoded(id)),
        mine: mine(site, visit, id).await?,
        highstate: highstate(site, visit, id).await?,
        history: history(site, visit, id).await?,
        jobs: jobs.map(|(jobs, _)| jobs),
        all_jobs: with_query("/console/jobs", &[("minion", Some(id))]),
        keys,
        run: with_query(
            "/console/run",
            &[("tgt", Some(id)), ("tgt_type", Some("list"))],
        ),
        path: super::minion_path(id),
    };
    let view = View::new("minion.html", "minions", id, content).cli([
        cli::line(["saltern", "minions", id]),
        cli::line(["salt-run", "cache.grains", id]),
        cli::line(["salt-run", "cache.mine", id]),
        cli::line(["salt-key", "-f", id]),
    ]);
    // Values that were asked for stay until the page is left.
    Ok(match with_values {
        true => view,
        false => {
            let tags = [
                format!("salt/job/*/ret/{id}"),
                format!("salt/minion/{id}/start"),
                "salt/presence/change".to_owned(),
            ];
            view.live(tags.iter().map(String::as_str))
        }
    })
}

/// Its mine, sorted by function.
async fn mine(site: &Shared, visit: &Visit, id: &str) -> Result<Option<Vec<Mined>>, Problem> {
    if !visit.may.mine {
        return Ok(None);
    }
    let of_minion = vec![("minion", Some(Value::from(id)))];
    let mine: Result<Value, Problem> = site.query(visit, "minions.mine", of_minion).await;
    let Some(mine) = if_allowed(mine)? else {
        return Ok(None);
    };
    let mut functions: Vec<(String, &Value)> = mine
        .as_map()
        .unwrap_or_default()
        .iter()
        .map(|(name, value)| (nested(name), value))
        .collect();
    functions.sort_by(|one, other| one.0.cmp(&other.0));
    let mut room = MAX_MINE;
    let functions = functions.into_iter().take(MINE);
    let mined = functions.map(|(function, value)| {
        let value = nested(value);
        let fits = value.len() <= room;
        if fits {
            room -= value.len();
        }
        Mined {
            function,
            value: fits.then_some(value),
        }
    });
    Ok(Some(mined.collect()))
}

/// Its last highstate; nothing where it has none or the visitor may not see it.
async fn highstate(site: &Shared, visit: &Visit, id: &str) -> Result<Option<drift::Row>, Problem> {
    if !visit.may.returns {
        return Ok(None);
    }
    let minions = Value::Array(vec![id.into()]);
    let arguments = vec![("minions", Some(minions))];
    let page: Result<HighstatesPage, Problem> =
        site.query(visit, "highstates.page", arguments).await;
    let row = if_allowed(page)?.and_then(|page| page.rows.into_iter().next());
    let Some(row) = row else { return Ok(None) };
    let may = drift::may_test(site, visit, &[vec![id]]).await?;
    let may_test = may.first().copied().unwrap_or_default();
    Ok(Some(drift::Row::new(row, visit.now, may_test)))
}

async fn history(site: &Shared, visit: &Visit, id: &str) -> Result<Option<History>, Problem> {
    let arguments = vec![
        ("minion", Some(Value::from(id))),
        ("limit", Some(EVENTS.into())),
    ];
    let history: Result<MinionHistory, Problem> =
        site.query(visit, "minions.history", arguments).await;
    let history = if_allowed(history)?.map(|history| History {
        events: history
            .events
            .into_iter()
            .map(|event| Happened::new(event, visit.now))
            .collect(),
        since: history.since.map(|since| Moment::new(since, visit.now)),
    });
    Ok(history)
}

/// Grains, sorted by name.
fn entries(grains: &Value) -> Vec<Entry> {
    let entries = grains.as_map().unwrap_or_default().iter();
    let mut entries: Vec<Entry> = entries
        .map(|(name, value)| Entry {
            name: nested(name),
            value: Text::cut(nested(value)).text,
        })
        .collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

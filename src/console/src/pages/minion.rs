//! A minion: presence, grains, the keys of its pillar, its jobs, its key.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use saltern_model::query::{KeysPage, MinionsPage};
use saltern_netapi::v1::Problem;
use saltern_python::fnmatch::escaped;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::minions::MinionLine;
use super::{JobLine, KeyLine, job_lines, with_query};
use crate::cli;
use crate::highstate::{Text, nested};
use crate::site::{Shared, Submitted, Visit, encoded};
use crate::view::View;

/// Jobs that are shown.
const JOBS: i64 = 15;

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

/// The page.
pub(crate) async fn page(
    State(site): State<Shared>,
    visit: Visit,
    Path(id): Path<String>,
) -> Response {
    let view = view(&site, &visit, &id, false).await;
    site.respond(&visit, view)
}

/// The page with the values of the pillar: asked for by a form, so that they are in no history.
pub(crate) async fn pillar(
    State(site): State<Shared>,
    Path(id): Path<String>,
    submitted: Submitted,
) -> Response {
    let visit = submitted.visit;
    let view = view(&site, &visit, &id, true).await;
    site.respond(&visit, view)
}

/// Nothing where the rules do not allow it: the rest of the page is shown.
fn if_allowed<T>(found: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.status() == StatusCode::FORBIDDEN => Ok(None),
        Err(problem) => Err(problem),
    }
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

//! Keys of minions: what waits first; accept, reject and delete, several at once.
//!
//! A form names each key by its fingerprint, too: a key that has been replaced since the page was made
//! is not changed.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use saltern_model::query::KeysPage;
use saltern_netapi::v1::{Problem, ask};
use saltern_python::fnmatch::escaped;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::{KeyLine, beside_filters, plain, with_query};
use crate::cli;
use crate::site::{Fields, Params, Shared, Submitted, Visit, own_path};
use crate::view::View;

/// Keys of one page.
const ROWS: i64 = 100;

/// Pending keys that are shown above the others.
const PENDING: i64 = 200;

/// Keys that one form changes at most.
const MAX_CHANGED: usize = 200;

#[derive(Serialize)]
struct KeysView<'a> {
    pending: Vec<KeyLine>,
    has_more_pending: bool,
    keys: Vec<KeyLine>,
    pattern: &'a str,
    state: &'a str,
    compare: &'a str,
    /// How many of the shown keys have the fingerprint that was pasted.
    compared: usize,
    next: Option<String>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct ConfirmView {
    action: Action,
    keys: Vec<KeyLine>,
    next: String,
    line: String,
}

/// Action on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Reject,
    Delete,
}

impl Action {
    fn of(form: &Fields) -> Result<Self, Problem> {
        match form.text("action") {
            Some("accept") => Ok(Self::Accept),
            Some("reject") => Ok(Self::Reject),
            Some("delete") => Ok(Self::Delete),
            _ => Err(Problem::invalid(Some("action"), "there is no such action")),
        }
    }

    fn function(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Accept => ("key.accept", Some("include_rejected")),
            Self::Reject => ("key.reject", Some("include_accepted")),
            Self::Delete => ("key.delete", None),
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Accept => "-a",
            Self::Reject => "-r",
            Self::Delete => "-d",
        }
    }

    /// Whether it can change a key of this state.
    fn applies_to(self, state: &str) -> bool {
        match self {
            Self::Accept => matches!(state, "pending" | "rejected"),
            Self::Reject => matches!(state, "pending" | "accepted"),
            Self::Delete => true,
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
    let compare = text("compare").map(plain);
    let asked = |state: Option<&str>, after: Option<&str>, limit: i64| {
        vec![
            ("match", text("match").map(Value::from)),
            ("state", state.map(Value::from)),
            ("after", after.map(Value::from)),
            ("limit", Some(limit.into())),
        ]
    };
    let lines = |page: KeysPage| -> Vec<KeyLine> {
        let keys = page.keys.into_iter();
        keys.map(|key| KeyLine::new(key, visit.now, compare.as_deref()))
            .collect()
    };
    let (after, state) = (text("after"), text("state"));
    let nothing = || KeysPage {
        keys: Vec::new(),
        next: None,
    };
    let (pending, pending_problem) = match after.is_none() && state.is_none() {
        true => {
            let arguments = asked(Some("pending"), None, PENDING);
            let found = site.query(visit, "keys.page", arguments).await;
            beside_filters(found, nothing())?
        }
        false => (nothing(), None),
    };
    let has_more_pending = pending.next.is_some();
    let pending = lines(pending);
    let found = site
        .query(visit, "keys.page", asked(state, after, ROWS))
        .await;
    let (page, problem) = beside_filters(found, nothing())?;
    let problem = problem.or(pending_problem);
    let next = page.next.as_deref().map(|next| {
        let kept = [
            ("match", text("match")),
            ("state", state),
            ("after", Some(next)),
        ];
        with_query("/console/keys", &kept)
    });
    let mut keys = lines(page);
    if state.is_none() {
        keys.retain(|key| key.state != "pending" || after.is_some());
    }
    let compared = pending
        .iter()
        .chain(&keys)
        .filter(|key| key.is_compared)
        .count();
    let content = KeysView {
        pending,
        has_more_pending,
        keys,
        pattern: text("match").unwrap_or_default(),
        state: state.unwrap_or_default(),
        compare: text("compare").unwrap_or_default(),
        compared,
        next,
        problem,
    };
    let view = View::new("keys.html", "keys", "Keys", content);
    Ok(view
        .cli(["salt-key -L".to_owned(), "salt-key -F".to_owned()])
        .live(["salt/key", "salt/auth"]))
}

/// Changes keys; asks once more before it deletes any.
pub(crate) async fn change(State(site): State<Shared>, submitted: Submitted) -> Response {
    let Submitted { visit, form } = submitted;
    match changed(&site, &visit, &form).await {
        Ok(None) => Redirect::to(own_path(form.text("next"))).into_response(),
        Ok(Some(view)) => site.respond(&visit, Ok(view)),
        Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => {
            site.respond(&visit, Err(problem))
        }
        Err(problem) => site.refusal(&visit, problem.status(), &problem),
    }
}

async fn changed(site: &Shared, visit: &Visit, form: &Fields) -> Result<Option<View>, Problem> {
    let action = Action::of(form)?;
    let named = form.all("key");
    if named.is_empty() {
        return Err(Problem::invalid(Some("key"), "no key is ticked"));
    }
    if named.len() > MAX_CHANGED {
        let detail = format!("at most {MAX_CHANGED} keys are changed at once");
        return Err(Problem::invalid(Some("key"), detail));
    }
    let mut keys = Vec::with_capacity(named.len());
    for named in named {
        keys.push(current(site, visit, action, named).await?);
    }
    let ids: Vec<&str> = keys.iter().map(|key| key.minion.as_str()).collect();
    let lines: Vec<String> = ids
        .iter()
        .map(|id| cli::line(["salt-key", action.option(), id]))
        .collect();
    if action == Action::Delete && !form.is_on("confirmed") {
        let content = ConfirmView {
            action,
            line: lines.join("; "),
            next: own_path(form.text("next")).to_owned(),
            keys,
        };
        let view = View::new("keys_confirm.html", "keys", "Delete keys", content);
        return Ok(Some(view.cli(lines)));
    }
    let (function, flag) = action.function();
    let patterns = ids.iter().map(|id| escaped(id).into()).collect();
    let mut arguments = vec![("match", Value::Array(patterns))];
    arguments.extend(flag.map(|flag| (flag, true.into())));
    ask::wheel(&site.backend.gate(), &visit.caller, function, arguments).await?;
    Ok(None)
}

/// The key that a form names by fingerprint and id, if it is still that one.
async fn current(
    site: &Shared,
    visit: &Visit,
    action: Action,
    named: &str,
) -> Result<KeyLine, Problem> {
    let wrong = || {
        Problem::invalid(
            Some("key"),
            "a key is named by its fingerprint and its minion",
        )
    };
    let (fingerprint, id) = named.split_once(' ').ok_or_else(wrong)?;
    let arguments = vec![("match", Some(escaped(id).into()))];
    let page: KeysPage = site.query(visit, "keys.page", arguments).await?;
    let keys = page.keys.into_iter();
    let mut keys = keys.filter(|key| key.minion.as_str() == id);
    let is_it = |key: &saltern_model::query::KeyRow| {
        key.fingerprint.as_deref().unwrap_or_default() == fingerprint
    };
    let key = keys.find(is_it).ok_or_else(|| {
        let detail =
            format!("the key of \"{id}\" is another one by now, or gone; look at it again");
        Problem::conflict(detail)
    })?;
    if !action.applies_to(&key.state) {
        return Err(Problem::conflict(format!(
            "the key of \"{id}\" is {}",
            key.state
        )));
    }
    Ok(KeyLine::new(key, visit.now, None))
}

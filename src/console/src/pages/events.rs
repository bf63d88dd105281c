//! Events: the latest ones, those that come, and one in full.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use saltern_http::Stopping;
use saltern_netapi::stream::{BusEvent, Position, TagRules};
use saltern_netapi::v1::Problem;
use saltern_wire::msgpack::{Limits, Value, decode};
use serde::Serialize;

use super::{job_path, with_query};
use crate::cli;
use crate::highstate::Text;
use crate::live::{
    COMMENT, Chunks, News, NoStream, Subscription, block, is_shown, position_block, response,
    stop_of, wanted_tags,
};
use crate::site::{Fields, Params, Shared, Visit};
use crate::view::View;

/// Events that the page begins with.
const ROWS: usize = 100;

/// Kept events that are looked through for those of a filter.
const MAX_LOOKED_AT: usize = 2_000;

/// Maximum time for reading kept events.
const READ_TIME: Duration = Duration::from_secs(3);

/// Characters of an event's data in a list.
const MAX_SUMMARY: usize = 300;

/// Digits of a jid.
const JID_DIGITS: usize = 20;

#[derive(Serialize)]
struct EventsView<'a> {
    rows: Vec<Row>,
    tag: &'a str,
    /// The stream of what comes behind these.
    stream: String,
    is_kept: bool,
    problem: Option<String>,
    /// Older events were not looked through; how many newer ones were.
    looked_at: Option<usize>,
}

/// An event of a list.
#[derive(Serialize)]
struct Row {
    position: String,
    path: String,
    tag: String,
    /// The time of day in UTC.
    time: String,
    summary: String,
    job: Option<String>,
}

#[derive(Serialize)]
struct Rows<'a> {
    rows: &'a [Row],
}

impl Row {
    fn new(position: Position, event: &BusEvent) -> Self {
        let data = decode(&event.data, &Limits::WIRE).unwrap_or(Value::Nil);
        let stamp = data
            .get("_stamp")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let time = stamp.split('T').nth(1).unwrap_or_default();
        let shown = match &data {
            Value::Map(entries) => {
                let entries = entries.iter();
                let entries = entries.filter(|(name, _)| name.as_str() != Some("_stamp"));
                Value::Map(entries.cloned().collect())
            }
            other => other.clone(),
        };
        let summary = saltern_output::json_line(&shown);
        Self {
            position: position.to_string(),
            path: format!("/console/events/{position}"),
            time: time.chars().take(8).collect(),
            summary: summary.chars().take(MAX_SUMMARY).collect(),
            job: jid_of(&event.tag).map(job_path),
            tag: event.tag.clone(),
        }
    }
}

/// The jid in a tag, if it has one.
fn jid_of(tag: &str) -> Option<&str> {
    let is_jid =
        |part: &&str| part.len() >= JID_DIGITS && part.bytes().all(|byte| byte.is_ascii_digit());
    tag.split('/').find(is_jid)
}

/// The wildcard of a filter: what has none is looked for everywhere in a tag.
fn wildcards(params: &Fields) -> Vec<String> {
    let tag = params.text("tag").into_iter();
    tag.map(|tag| match tag.contains(['*', '?', '[']) {
        true => tag.to_owned(),
        false => format!("*{tag}*"),
    })
    .collect()
}

/// The page.
pub(crate) async fn page(
    State(site): State<Shared>,
    visit: Visit,
    Params(params): Params,
) -> Response {
    let view = view(&site, &visit, &params).await;
    site.respond(&visit, Ok(view))
}

async fn view(site: &Shared, visit: &Visit, params: &Fields) -> View {
    let newest = site.backend.events().and_then(|source| source.newest());
    let (mut found, mut problem) = (Latest::default(), None);
    if let Some(newest) = newest {
        let mut wanted = None;
        match wanted_tags(&wildcards(params)) {
            Ok(tags) => wanted = tags,
            Err(wrong) => problem = Some(wrong.to_string()),
        }
        if problem.is_none() {
            let read = latest(site, visit, wanted.as_ref(), newest, &mut found);
            let in_time = tokio::time::timeout(READ_TIME, read).await;
            match in_time {
                Ok(Ok(())) => {}
                Ok(Err(wrong)) => problem = Some(wrong.to_string()),
                // What cannot be read in time is left out.
                Err(_) => found.is_cut = true,
            }
        }
    }
    let after = newest.map(|newest| newest.to_string());
    let parameters = [("tag", params.text("tag")), ("after", after.as_deref())];
    let content = EventsView {
        looked_at: found.is_cut.then_some(found.looked_at),
        rows: found.rows,
        tag: params.text("tag").unwrap_or_default(),
        stream: with_query("/console/events/stream", &parameters),
        is_kept: site.backend.events().is_some(),
        problem,
    };
    let line = match params.text("tag") {
        Some(tag) => cli::line(["saltern", "events", "--follow", "--tag", tag]),
        None => "saltern events --follow".to_owned(),
    };
    View::new("events.html", "events", "Events", content).cli([line])
}

/// The latest events of a page, the newest first.
#[derive(Default)]
struct Latest {
    rows: Vec<Row>,
    looked_at: usize,
    /// There are older ones that were not looked through, though the page has room.
    is_cut: bool,
}

/// Reads the latest events backwards, until the page is full.
async fn latest(
    site: &Shared,
    visit: &Visit,
    wanted: Option<&TagRules>,
    newest: Position,
    found: &mut Latest,
) -> Result<(), NoStream> {
    let source = site.backend.events().ok_or(NoStream::NoEvents)?;
    let rules = site.backend.event_rules(&visit.user);
    let mut through = newest.number;
    while through > 0 && found.rows.len() < ROWS {
        let left = MAX_LOOKED_AT.saturating_sub(found.looked_at);
        found.is_cut = left == 0;
        if found.is_cut {
            break;
        }
        // Without a filter, no more than are shown.
        let count = match wanted.is_none() && rules.is_none() {
            true => ROWS - found.rows.len(),
            false => left,
        };
        let read = source.backwards(through, count).await;
        let read = read.map_err(|_| NoStream::Unreadable)?;
        found.looked_at += read.events.len();
        let events = read.events.iter();
        let events = events.filter(|event| is_shown(rules.as_deref(), wanted, &event.tag));
        let rows = events.map(|event| Row::new(position(newest, event.number), event));
        let room = ROWS - found.rows.len();
        found.rows.extend(rows.take(room));
        through = read.rest.min(through - 1);
    }
    Ok(())
}

fn position(newest: Position, number: i64) -> Position {
    Position { number, ..newest }
}

/// The events behind a position, as they come.
pub(crate) async fn stream(
    State(site): State<Shared>,
    visit: Visit,
    stopping: Option<Extension<Stopping>>,
    headers: HeaderMap,
    Params(params): Params,
) -> Response {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.or_else(|| params.text("after"));
    let after = match last.map(str::parse).transpose() {
        Ok(after) => after,
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    };
    let wanted = (&*wildcards(&params), after);
    match Subscription::open(&site, &visit, wanted, stop_of(stopping)) {
        Ok(subscription) => response(EventRows { site, subscription }),
        Err(refused) => refused.into_response(),
    }
}

/// Events as rows of the page.
struct EventRows {
    site: Shared,
    subscription: Subscription,
}

#[derive(Serialize)]
struct RowsMessage {
    count: usize,
    html: String,
}

impl Chunks for EventRows {
    async fn next(&mut self) -> Option<Bytes> {
        Some(match self.subscription.next().await? {
            News::Events(events, through) if events.is_empty() => position_block(through),
            News::Events(events, through) => {
                let rows: Vec<Row> = events
                    .iter()
                    .rev()
                    .map(|(at, event)| Row::new(*at, event))
                    .collect();
                let html = self
                    .site
                    .templates
                    .part("event_row.html", Rows { rows: &rows });
                let message = RowsMessage {
                    count: rows.len(),
                    html: html.unwrap_or_default(),
                };
                block("rows", &message, Some(through))
            }
            News::Gap(missed) => block("gap", &missed, None),
            News::Silence => COMMENT,
            News::Closed(reason) => block("closed", &reason, None),
        })
    }
}

#[derive(Serialize)]
struct EventView {
    tag: String,
    position: String,
    data: Text,
    job: Option<String>,
    before: Option<String>,
    after: String,
}

/// One event in full.
pub(crate) async fn one(
    State(site): State<Shared>,
    visit: Visit,
    Path(position): Path<String>,
) -> Response {
    let view = one_view(&site, &visit, &position).await;
    site.respond(&visit, view)
}

async fn one_view(site: &Shared, visit: &Visit, position: &str) -> Result<View, Problem> {
    let wrong =
        || Problem::not_found("there is no event of this position, or it is not kept any more");
    let position: Position = position.parse().map_err(|_| wrong())?;
    let newest = site.backend.events().and_then(|source| source.newest());
    if newest
        .is_none_or(|newest| newest.history != position.history || newest.number < position.number)
    {
        return Err(wrong());
    }
    let near = |number: i64| Position { number, ..position };
    let source = site.backend.events().ok_or_else(wrong)?;
    let read = tokio::time::timeout(READ_TIME, source.backwards(position.number, 1)).await;
    let slow = || Problem::conflict("the event cannot be read in time: try again");
    let read = read.map_err(|_elapsed| slow())?;
    let read = read.map_err(|_| Problem::conflict(NoStream::Unreadable.to_string()))?;
    let rules = site.backend.event_rules(&visit.user);
    let event = read.events.iter().find(|event| {
        event.number == position.number && is_shown(rules.as_deref(), None, &event.tag)
    });
    let event = event.ok_or_else(wrong)?;
    let data = decode(&event.data, &Limits::WIRE).unwrap_or(Value::Nil);
    let path = |number: i64| format!("/console/events/{}", near(number));
    let content = EventView {
        tag: event.tag.clone(),
        position: position.to_string(),
        data: Text::cut(saltern_output::json(&data)),
        job: jid_of(&event.tag).map(job_path),
        before: (position.number > 1).then(|| path(position.number - 1)),
        after: path(position.number + 1),
    };
    let line = cli::line(["saltern", "events", "--tag", &event.tag]);
    Ok(View::new("event.html", "events", event.tag.clone(), content).cli([line]))
}

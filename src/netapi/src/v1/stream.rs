//! `/v1/jobs/{jid}/stream`: a job as server-sent events. First what is there already, then what
//! comes, last the verdict.
//!
//! The subscription stands before the job is read, so nothing falls between the two; a return that
//! came by both ways is sent once. Where events were lost, and after a while without any, the job is
//! read again. Each reading passes the gate, and a token that is revoked ends the stream at once.

use std::collections::HashSet;
use std::convert::Infallible;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use saltern_client::{EventListener, FollowNews, JobFollower};
use saltern_http::{LongStream, Stopping};
use saltern_model::Jid;
use saltern_requests::as_json;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Shared;
use super::caller::Caller;
use super::jobs::{report, returns_page};
use super::problem::Problem;
use super::schema::{Job, Return, Returns};

/// Events that wait for the client; the job is not read on meanwhile.
const QUEUE: usize = 16;

/// Follows a job. Events: `return` (a `Return`) for each minion, a `verdict` (a `Job`) at the end, or
/// an `error` (a `Problem`).
#[utoipa::path(
    get,
    path = "/v1/jobs/{jid}/stream",
    params(("jid" = String, Path, description = "The job's id.")),
    responses(
        (status = 200, description = "Server-sent events.", body = String, content_type = "text/event-stream"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn follow(
    State(backend): State<Shared>,
    caller: Caller,
    stopping: Option<Extension<Stopping>>,
    Path(jid): Path<String>,
) -> Result<Response, Problem> {
    let wrong = |error| Problem::invalid(Some("jid"), format!("\"jid\" is none: {error}"));
    let parsed = Jid::parse(&jid).map_err(wrong)?;
    let follower = JobFollower::new(EventListener::inside(backend.listen()), parsed);
    // Refusals have a status of their own, which the stream has not.
    report(&backend, &caller, &jid).await?;
    let (events, received) = channel(QUEUE);
    let followed = Followed {
        backend,
        caller,
        jid,
        follower,
        sent: HashSet::new(),
        events,
    };
    tokio::spawn(async move {
        let stop = stopping
            .map(|Extension(Stopping(stop))| stop)
            .unwrap_or_default();
        tokio::select! {
            () = stop.cancelled() => {}
            () = followed.run() => {}
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let body = Body::from_stream(stream::unfold(received, next));
    Ok((headers, Extension(LongStream), body).into_response())
}

async fn next(
    mut received: Receiver<Bytes>,
) -> Option<(Result<Bytes, Infallible>, Receiver<Bytes>)> {
    let event = received.recv().await?;
    Some((Ok(event), received))
}

/// The client went away.
struct Gone;

/// A job that is followed for a client.
struct Followed {
    backend: Shared,
    caller: Caller,
    jid: String,
    follower: JobFollower,
    /// Minions whose returns were sent.
    sent: HashSet<String>,
    events: Sender<Bytes>,
}

/// Why a stream ends.
enum End {
    Gone,
    Problem(Problem),
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Followed {
    async fn run(mut self) {
        let ended = self.backend.ended(self.caller.token.clone());
        let end = tokio::select! {
            end = self.follow() => end,
            () = ended => Err(Problem::unauthenticated().into()),
        };
        if let Err(End::Problem(problem)) = end {
            // A client that went away needs none.
            let _ = self.send("error", &problem).await;
        }
    }

    async fn follow(&mut self) -> Result<(), End> {
        while !self.catch_up().await? {
            loop {
                let events = self.events.clone();
                let news = tokio::select! {
                    () = events.closed() => return Err(End::Gone),
                    news = self.follower.next() => news,
                };
                let news = news.map_err(|error| Problem::busy(error.to_string()))?;
                match news {
                    FollowNews::Returned(returned) => {
                        if self.sent.insert(returned.id.clone()) {
                            let live = Return {
                                minion: returned.id,
                                received: None,
                                retcode: returned.retcode,
                                value: as_json(&returned.value),
                            };
                            self.send("return", &live).await?;
                        }
                    }
                    FollowNews::Over(_) | FollowNews::Unsure => break,
                }
            }
            // Also shows whether the client is still there.
            self.events
                .send(Bytes::from_static(b": waiting\n\n"))
                .await
                .map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Sends the returns that are stored and were not sent; whether the job is over, and the verdict
    /// was sent.
    async fn catch_up(&mut self) -> Result<bool, End> {
        let report = report(&self.backend, &self.caller, &self.jid).await?;
        let is_new = |minion: &str| !self.sent.contains(minion);
        let mut minions = report.returned.iter().map(|one| one.minion.as_str());
        let mut cursor = None;
        let mut has_more = minions.any(is_new);
        while has_more {
            let page = (cursor.take(), None);
            let page = returns_page(&self.backend, &self.caller, &self.jid, page).await?;
            let Returns { returns, next } = page.into();
            for returned in returns {
                if self.sent.insert(returned.minion.clone()) {
                    self.send("return", &returned).await?;
                }
            }
            has_more = next.is_some();
            cursor = next;
        }
        if report.state == "open" {
            return Ok(false);
        }
        self.send("verdict", &Job::from(report)).await?;
        Ok(true)
    }

    async fn send(&mut self, event: &str, data: &impl Serialize) -> Result<(), Gone> {
        // JSON has no line breaks in it, so the data is one line.
        let data = serde_json::to_string(data).unwrap_or_default();
        let text = format!("event: {event}\ndata: {data}\n\n");
        self.events.send(text.into()).await.map_err(|_| Gone)
    }
}

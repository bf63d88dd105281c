//! The web console: pages about jobs, minions, keys and events, made on the server.
//!
//! ```text
//! request ─▶ Visit (session ─▶ token) ─▶ page ─▶ Backend::gate ─▶ the gate of port 4506
//!                                          │        saltern_query, publish, wheel
//!            HTML ◀── template ◀── view ◀──┘
//! ```
//!
//! Each page asks as `/v1` does, with the token of the session: nothing here decides who may do what.
//! A page is a template that is always escaped. Where a script runs, the part of a page that is
//! called `live` is fetched again when events say that it has changed.
//!
//! Suggested reading order: `site` (requests, sessions, responses), `view` (what all templates have),
//! then a page in `pages`, its template of the same name in `templates`, and `live`.
//!
//! Not here: connections and TLS (`saltern-http`), stock's API and `/v1` (`saltern-netapi`).

mod assets;
mod backend;
mod chart;
mod cli;
mod highstate;
mod live;
mod moment;
mod pages;
mod session;
mod site;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use saltern_base::clock::Clock;
use saltern_config::ApiServer;
use saltern_netapi::Api;
use saltern_store::shared_state::CONSOLE_SESSIONS;
use saltern_store::{SharedState, StoreError};
use tokio::sync::Semaphore;

pub use backend::{Backend, LogIn, NewToken};

use backend::ServedApi;
use pages::{
    audit, batches, drift, events, job, jobs, keys, log_in, minion, minions, now, orchestrations,
    reactor, run, schedule,
};
use session::ConsoleSessions;
use site::Site;
use view::Templates;

/// Streams that may be open at a time.
const MAX_STREAMS: usize = 512;

/// Why the console cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The sessions cannot be read.
    #[error("the sessions of the console cannot be opened")]
    Sessions(#[from] StoreError),
    /// A template is malformed.
    #[error("the pages of the console cannot be used")]
    Templates(#[from] minijinja::Error),
}

/// The console of one master.
pub struct Console {
    sessions: Arc<ConsoleSessions>,
    templates: Arc<Templates>,
    streams: Arc<Semaphore>,
    clock: Clock,
}

impl Console {
    /// The console, with the sessions that an earlier process left in a directory of `cachedir`.
    ///
    /// # Errors
    /// When these cannot be read.
    pub fn open(cachedir: PathBuf, clock: Clock, state: &SharedState) -> Result<Self, OpenError> {
        Ok(Self {
            sessions: Arc::new(ConsoleSessions::open(
                cachedir.join(CONSOLE_SESSIONS),
                clock.clone(),
                state,
            )?),
            templates: Arc::new(Templates::new()?),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            clock,
        })
    }

    /// The pages beside the API on one of its servers, if that is to serve them.
    pub fn beside(&self, api: &Arc<Api>, server: &ApiServer) -> Router {
        let served = api.router(server);
        if !server.console {
            return served;
        }
        let backend = ServedApi {
            api: Arc::clone(api),
            server: server.clone(),
        };
        self.router(Arc::new(backend), server.tls.is_some())
            .merge(served)
    }

    /// The pages before a master; `is_secure` when they are served over TLS.
    pub fn router(&self, backend: Arc<dyn Backend>, is_secure: bool) -> Router {
        let site = Arc::new(Site {
            backend,
            is_secure,
            sessions: self.sessions.clone(),
            templates: self.templates.clone(),
            streams: self.streams.clone(),
            clock: self.clock.clone(),
        });
        Router::new()
            .route("/console", get(site::to_front))
            .route("/console/", get(now::page))
            .route("/console/login", get(log_in::page).post(log_in::log_in))
            .route("/console/logout", post(log_in::log_out))
            .route("/console/theme", post(log_in::theme))
            .route("/console/assets/{name}", get(assets::serve))
            .route("/console/live", get(live::changes))
            .route("/console/jobs", get(jobs::page))
            .route("/console/jobs/{jid}", get(job::page))
            .route("/console/jobs/{jid}/kill", post(job::kill))
            .route("/console/jobs/{jid}/minions/{id}", get(job::returned))
            .route("/console/minions", get(minions::page))
            .route("/console/minions/{id}", get(minion::page))
            .route("/console/minions/{id}/pillar", post(minion::pillar))
            .route("/console/keys", get(keys::page).post(keys::change))
            .route("/console/run", get(run::page).post(run::send))
            .route("/console/events", get(events::page))
            .route("/console/events/stream", get(events::stream))
            .route("/console/events/{position}", get(events::one))
            .route("/console/audit", get(audit::page))
            .route("/console/audit/export", get(audit::export))
            .route("/console/audit/verify", post(audit::verify))
            .route("/console/drift", get(drift::page))
            .route("/console/drift/test", post(drift::test))
            .route(
                "/console/orchestrations",
                get(orchestrations::page).post(orchestrations::start),
            )
            .route("/console/orchestrations/{jid}", get(orchestrations::one))
            .route("/console/reactor", get(reactor::page))
            .route("/console/reactor/replay", post(reactor::replay))
            .route("/console/schedule", get(schedule::page))
            .route("/console/batches", get(batches::page))
            .route("/console/batches/{jid}/pause", post(batches::pause))
            .route("/console/batches/{jid}/resume", post(batches::resume))
            .route("/console/batches/{jid}/stop", post(batches::stop))
            .route("/console/{*path}", axum::routing::any(site::no_such_page))
            .method_not_allowed_fallback(site::no_such_method)
            .layer(axum::middleware::from_fn_with_state(
                site.clone(),
                site::guard,
            ))
            .with_state(site)
    }
}

#[cfg(test)]
mod tests;

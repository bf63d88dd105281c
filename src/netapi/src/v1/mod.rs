//! `/v1`: our own API, with a document of it in OpenAPI ([`document`]) that is made from this code.
//!
//! ```text
//! request ─▶ Caller (token) ─▶ handler ─▶ wire command ─▶ Backend::ask ─▶ the gate of port 4506
//!                                 │            saltern_query, publish, wheel
//!                                 └─▶ answer, or a Problem (RFC 9457)
//! ```
//!
//! Every read and every action is a command of the request port with the caller's token in it, so
//! nothing here decides who may do what. Handlers hold no state; a list is paged by a cursor.
//!
//! Suggested reading order: [`schema`] (requests and answers), `ask` (how the master is asked),
//! `problem` (errors), `jobs`, `stream`.
//!
//! Not here: log-ins and sessions, which are those of the other interfaces; TLS and limits.

pub mod ask;
pub mod audit;
mod batches;
mod caller;
mod jobs;
mod keys;
mod master;
mod minions;
mod problem;
#[cfg(test)]
mod reference_tests;
pub mod schema;
mod stream;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_client::EventSource;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use zeroize::Zeroizing;

pub use caller::Caller;
pub use problem::Problem;

/// Interface of `/v1` to the API that it is part of.
pub trait Backend: Send + Sync + 'static {
    /// Hands a packed request, which bears a token, of the client at `from` to the gate; gives the
    /// packed reply, or `None` when there is no room for it.
    fn ask(
        &self,
        request: Bytes,
        token: &str,
        from: SocketAddr,
    ) -> BoxFuture<'static, Option<Bytes>>;

    /// The token that `X-Auth-Token` stands for, as an answer to `/login` gave it; `None` when there
    /// is certainly none. The gate says whether it is good.
    fn session_token(&self, id: &str) -> Option<Zeroizing<String>>;

    /// Subscribes to the events of one jid, which is named later.
    fn listen(&self) -> Box<dyn EventSource>;

    /// Resolves when a token is good no more.
    fn ended(&self, token: Zeroizing<String>) -> BoxFuture<'static, ()>;
}

/// State of the routes.
type Shared = Arc<dyn Backend>;

/// The parts of the document that no route has.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Saltern",
        description = "Jobs, minions, keys, batches and the audit trail of a Salt master. A page of a list names the \
                       cursor of the next one, and may be short although more follow. Times are UTC.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(problem::Problem)),
    security(("token" = []), ("session" = [])),
    modifiers(&Security)
)]
struct Base;

/// The two ways to say who asks.
struct Security;

impl utoipa::Modify for Security {
    fn modify(&self, document: &mut Document) {
        use utoipa::openapi::security::{
            ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme,
        };
        let components = document.components.get_or_insert_default();
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("token", bearer);
        let session = ApiKey::Header(ApiKeyValue::new(caller::SESSION_HEADER));
        components.add_security_scheme("session", SecurityScheme::ApiKey(session));
    }
}

fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(jobs::list, jobs::publish))
        .routes(routes!(jobs::one))
        .routes(routes!(jobs::returns))
        .routes(routes!(stream::follow))
        .routes(routes!(minions::list))
        .routes(routes!(minions::one))
        .routes(routes!(keys::list))
        .routes(routes!(keys::accept))
        .routes(routes!(keys::reject))
        .routes(routes!(keys::delete))
        .routes(routes!(batches::list))
        .routes(routes!(batches::one))
        .routes(routes!(batches::pause))
        .routes(routes!(batches::resume))
        .routes(routes!(batches::stop))
        .routes(routes!(audit::list))
        .routes(routes!(audit::download))
        .routes(routes!(master::health))
        .routes(routes!(master::version))
        .routes(routes!(master::openapi))
}

/// The document of this API.
pub fn document() -> Document {
    routes().into_openapi()
}

/// The routes below `/v1`.
pub fn router(backend: Arc<dyn Backend>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .route("/v1/{*path}", axum::routing::any(no_such_path))
        .method_not_allowed_fallback(wrong_method)
        .with_state(backend)
}

async fn no_such_path() -> Problem {
    Problem::not_found("there is no such path below /v1")
}

async fn wrong_method() -> Problem {
    Problem::wrong_method()
}

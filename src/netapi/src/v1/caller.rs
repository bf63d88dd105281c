//! Token of a caller: the one in `Authorization: Bearer`, or the one that the session in
//! `X-Auth-Token` stands for. Never in a URL. The gate decides whether it is valid.

use std::net::SocketAddr;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Json, Query, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use saltern_http::Peer;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::Shared;
use super::problem::{Problem, unreadable};

/// The header with the id of a session.
pub(super) const SESSION_HEADER: &str = "X-Auth-Token";

/// The caller of a route. Has no `Debug`: it holds a token.
pub struct Caller {
    /// The token, as the gate takes it.
    pub token: Zeroizing<String>,
    /// The client's address.
    pub from: SocketAddr,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, backend: &Shared) -> Result<Self, Problem> {
        let Some(Peer(from)) = parts.extensions.get::<Peer>().copied() else {
            return Err(Problem::failed("the server does not say who is connected"));
        };
        let header = |name: &str| parts.headers.get(name)?.to_str().ok();
        let bearer = header(AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            let is_bearer = scheme.eq_ignore_ascii_case("bearer");
            is_bearer.then(|| Zeroizing::new(token.trim().to_owned()))
        });
        let session = || header(SESSION_HEADER).and_then(|id| backend.session_token(id));
        let token = bearer
            .or_else(session)
            .ok_or_else(Problem::unauthenticated)?;
        Ok(Self { token, from })
    }
}

/// The parameters of a URL; an unknown or wrong one is a problem that names it.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        let refused = |refusal: QueryRejection| unreadable(&refusal.body_text());
        read.map(|Query(params)| Self(params)).map_err(refused)
    }
}

/// A body in JSON, likewise.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Json::<T>::from_request(request, state).await;
        let refused = |refusal: JsonRejection| unreadable(&refusal.body_text());
        read.map(|Json(body)| Self(body)).map_err(refused)
    }
}

//! One request: its form and size are checked, its body is read, the router is asked, and the
//! response is counted, timed and logged.
//!
//! The access log has the route's pattern and never the path or the query, where clients of stock
//! put tokens.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use saltern_base::trace::TraceContext;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::activity::{Activity, Exchange};
use super::limits::HttpLimits;
use super::metrics::{HttpMeters, MethodClass, Open, Refusal};
use super::request_info::{
    LongStream, Peer, REQUEST_ID, RequestId, RequestIds, Stopping, trace_of,
};
use super::response_body::ResponseBody;

/// Time beside the deadline of a request in which its refusal can still be sent.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// State that all requests of a server share.
pub(super) struct Answering {
    pub(super) limits: HttpLimits,
    pub(super) router: Router,
    pub(super) meters: HttpMeters,
    pub(super) ids: RequestIds,
    /// Requests in all.
    pub(super) requests: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

/// A request that gets no response of a handler.
struct Refused {
    status: StatusCode,
    reason: Refusal,
    text: &'static str,
}

const fn refused(status: StatusCode, reason: Refusal, text: &'static str) -> Refused {
    Refused {
        status,
        reason,
        text,
    }
}

impl Answering {
    /// Answers one request of a connection.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        activity: &Arc<Activity>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let began = Instant::now();
        let deadline = began + self.limits.exchange_time;
        let is_http2 = request.version() == Version::HTTP_2;
        let exchange = activity.begin(deadline + REFUSAL_TIME, is_http2);
        let mut answered = Answered {
            meters: self.meters.clone(),
            exchange,
            permit: None,
            stream: None,
            access: Access {
                peer,
                id: self.ids.of(request.headers()),
                trace: trace_of(request.headers()),
                method: request.method().clone(),
                began,
                route: None,
                status: None,
                bytes: 0,
            },
        };
        let response = self.respond(request, deadline, &mut answered).await;
        let response = response.unwrap_or_else(|refused| {
            self.meters.refused(refused.reason);
            plain(&refused, is_http2)
        });
        Ok(self.finish(response, answered, activity))
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        deadline: Instant,
        answered: &mut Answered,
    ) -> Result<Response<Body>, Refused> {
        let (mut head, body) = request.into_parts();
        self.check(&head)?;
        if answered.exchange.is_ambiguous() {
            return Err(refused(
                StatusCode::BAD_REQUEST,
                Refusal::Broken,
                "a request has either a length or a transfer coding\n",
            ));
        }
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        answered.permit = Some(permit.map_err(|_| {
            refused(
                StatusCode::SERVICE_UNAVAILABLE,
                Refusal::Requests,
                "too many requests are being answered\n",
            )
        })?);
        let body_deadline = deadline.min(answered.access.began + self.limits.body_time);
        let body = tokio::time::timeout_at(body_deadline, self.read(body)).await;
        let body = body.map_err(|_| {
            refused(
                StatusCode::REQUEST_TIMEOUT,
                Refusal::Timeout,
                "the body did not arrive in time\n",
            )
        })??;
        let access = &answered.access;
        head.extensions.insert(access.peer);
        head.extensions.insert(access.id.clone());
        head.extensions.insert(Stopping(self.stop.clone()));
        if let Some(trace) = &access.trace {
            head.extensions.insert(trace.clone());
        }
        let request = Request::from_parts(head, Body::from(body));
        let response = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
        let response = tokio::time::timeout_at(deadline, response).await;
        let response = response.map_err(|_| {
            refused(
                StatusCode::SERVICE_UNAVAILABLE,
                Refusal::Timeout,
                "there is no answer in time\n",
            )
        })?;
        // The panic hook has logged it.
        let response =
            response.unwrap_or_else(|_| Ok(status_only(StatusCode::INTERNAL_SERVER_ERROR)));
        let response = response.unwrap_or_else(|never| match never {});
        let class = MethodClass::of(&answered.access.method);
        self.meters.answered(class, response.status());
        Ok(response)
    }

    /// Refuses forms that two readers could read in two ways, and heads that are too long.
    fn check(&self, head: &Parts) -> Result<(), Refused> {
        let broken = |text| Err(refused(StatusCode::BAD_REQUEST, Refusal::Broken, text));
        if head.headers.len() > self.limits.headers {
            return Err(refused(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                Refusal::Broken,
                "there are too many headers\n",
            ));
        }
        let hosts = head.headers.get_all(header::HOST).iter().count();
        if hosts > 1 || (hosts == 0 && head.version == Version::HTTP_11) {
            return broken("a request has one header \"host\"\n");
        }
        if head.method == Method::CONNECT {
            return broken("this is no proxy\n");
        }
        Ok(())
    }

    /// Reads the whole body, if it is within the limit.
    async fn read(&self, body: Incoming) -> Result<Bytes, Refused> {
        let most = self.limits.body_bytes;
        let too_large = refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodySize,
            "the body is too large\n",
        );
        // A body over the limit is refused by its announced length, before any of it is read.
        if body.size_hint().lower() > most as u64 {
            return Err(too_large);
        }
        match Limited::new(body, most).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large),
            Err(_) => Err(refused(
                StatusCode::BAD_REQUEST,
                Refusal::Broken,
                "the body is broken\n",
            )),
        }
    }

    fn finish(
        &self,
        response: Response<Body>,
        mut answered: Answered,
        activity: &Arc<Activity>,
    ) -> Response<ResponseBody> {
        let (mut head, body) = response.into_parts();
        if let Ok(id) = HeaderValue::from_str(&answered.access.id.0) {
            head.headers.insert(REQUEST_ID, id);
        }
        answered.access.status = Some(head.status);
        answered.access.route = head.extensions.remove();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            activity.upgrade(self.meters.open_stream());
        }
        let is_stream = head.extensions.remove::<LongStream>().is_some();
        let body = match is_stream {
            false => ResponseBody::new(body, answered),
            true => {
                answered.permit = None;
                answered.exchange.set_stream();
                answered.stream = Some(self.meters.open_stream());
                ResponseBody::stream(body, answered, self.stop.clone())
            }
        };
        Response::from_parts(head, body)
    }
}

/// A request until its response has ended; then it is logged.
pub(super) struct Answered {
    meters: HttpMeters,
    exchange: Exchange,
    permit: Option<OwnedSemaphorePermit>,
    stream: Option<Open>,
    access: Access,
}

impl Answered {
    /// Counts bytes of the response's body.
    pub(super) fn sent(&mut self, count: usize) {
        self.access.bytes += count as u64;
    }
}

/// A line of the access log.
struct Access {
    peer: Peer,
    id: RequestId,
    trace: Option<TraceContext>,
    method: Method,
    began: Instant,
    route: Option<MatchedPath>,
    /// None if the client went before there was a response.
    status: Option<StatusCode>,
    bytes: u64,
}

impl Drop for Answered {
    fn drop(&mut self) {
        let access = &self.access;
        let took = access.began.elapsed();
        let is_stream = self.exchange.is_stream();
        if !is_stream {
            self.meters.took(took);
        }
        let trace = access.trace.as_ref();
        tracing::debug!(
            target: "saltern_http::access",
            server = self.meters.server(),
            peer = %access.peer.0,
            request = &*access.id.0,
            // A method may be any word of a client.
            method = ?access.method,
            route = access.route.as_ref().map_or("-", MatchedPath::as_str),
            status = access.status.map(|status| status.as_u16()),
            bytes = access.bytes,
            ms = took.as_secs_f64() * 1e3,
            is_stream,
            trace = trace.map(|trace| format!("{:032x}", trace.trace())),
            "HTTP request"
        );
    }
}

fn status_only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The response to a refused request. Its body may be unread, so the connection ends with it.
fn plain(refused: &Refused, is_http2: bool) -> Response<Body> {
    let mut response = Response::new(Body::from(refused.text));
    *response.status_mut() = refused.status;
    let headers = response.headers_mut();
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, text);
    if refused.status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if !is_http2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

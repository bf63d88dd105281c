//! Extensions of a request for its handler, and those that a handler may add to its response.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};
use hyper::http::Extensions;
use saltern_base::trace::TraceContext;
use tokio_util::sync::CancellationToken;

/// Header with the id of a request.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// Longest id of a request that is taken over from the client.
const MAX_REQUEST_ID: usize = 64;

/// Extension of a request: the address of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// The address among the extensions of a request; one that nobody has where a server did not say.
    #[must_use]
    pub fn of(extensions: &Extensions) -> SocketAddr {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        extensions.get::<Self>().map_or(nowhere, |peer| peer.0)
    }
}

/// The value of the first cookie of this name in a request, as it stands there.
#[must_use]
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    })
}

/// Extension of a request: cancelled when the server stops.
#[derive(Clone, Debug)]
pub struct Stopping(pub CancellationToken);

/// Extension of a request: its id, of the client if that sent a usable one. It is the response's
/// header `x-request-id`, and in the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

/// Extension of a response: its body goes on until the client goes or the server stops.
///
/// It has no deadline but that its peer reads, is not compressed, and ends when the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongStream;

/// Makes ids for requests.
pub(super) struct RequestIds {
    key: RandomState,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        Self {
            key: RandomState::new(),
            next: AtomicU64::new(0),
        }
    }

    /// The id of a request: the client's, or a new one.
    pub(super) fn of(&self, headers: &HeaderMap) -> RequestId {
        let given = headers.get(REQUEST_ID).map(HeaderValue::as_bytes);
        let given = given.and_then(|given| std::str::from_utf8(given).ok());
        RequestId(match given.filter(|given| is_usable(given)) {
            Some(given) => given.into(),
            None => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                format!("{:016x}", self.key.hash_one(number)).into()
            }
        })
    }
}

/// Whether an id can stand in a log and a header as it is.
fn is_usable(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(is_plain)
}

/// The place in a trace that a request names (W3C Trace Context). A second `traceparent` makes both
/// unusable.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let (parent, None) = (parents.next()?, parents.next()) else {
        return None;
    };
    let state = headers.get("tracestate");
    let state = state.and_then(|state| state.to_str().ok());
    TraceContext::parse(parent.to_str().ok()?, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_is_taken_over_only_if_it_is_plain() {
        let ids = RequestIds::new();
        for (given, is_kept) in [
            ("a-b_c.d:9", true),
            ("", false),
            ("with space", false),
            ("quo\"te", false),
            (&"x".repeat(MAX_REQUEST_ID), true),
            (&"x".repeat(MAX_REQUEST_ID + 1), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, given.parse().expect("a value"));
            let id = ids.of(&headers);
            assert_eq!(*id.0 == *given, is_kept, "{given}");
            assert!(is_usable(&id.0), "{given}");
        }
        assert_ne!(ids.of(&HeaderMap::new()), ids.of(&HeaderMap::new()));
    }

    #[test]
    fn trace_of_two_parents_is_none() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut headers = HeaderMap::new();
        headers.append("traceparent", parent.parse().expect("a value"));
        let trace = trace_of(&headers).map(|trace| trace.to_string());
        assert_eq!(trace.as_deref(), Some(parent));
        headers.append("traceparent", parent.parse().expect("a value"));
        assert_eq!(trace_of(&headers), None);
    }
}

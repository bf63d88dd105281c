//! Small HTTP/1.1 server for programs that monitor or call the master: metrics, health, webhooks.
//!
//! It may be opened to a network, so it is built limits first, as the two ports are: connections,
//! bytes of head and body, and time are bounded before a handler is called. **A connection carries
//! one request.** So one deadline covers everything that happens on it, and there are no idle
//! connections to keep.
//!
//! Not here: what is served (a [`Handler`] decides), streaming, HTTP/2, and access control: a
//! handler that needs it checks the request's headers.
//!
//! Reading order: `limits`, `server`, `exchange`, `connection_slots`, `metrics`.

mod connection_slots;
mod exchange;
mod limits;
mod metrics;
mod server;

pub use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};

pub use limits::HttpLimits;
pub use metrics::{HttpMeters, HttpMetrics};
pub use server::{Handler, HttpServer};

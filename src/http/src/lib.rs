//! HTTP: the server of the master's own pages, hooks and API, and the one client.
//!
//! The server binds sockets and takes TLS as the two ports do (`saltern_wire::port`). Neither knows
//! what is served or fetched, nor who may ask.

pub mod client;
pub mod server;
pub mod websocket;

pub use axum;
pub use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};

pub use server::{
    HttpLimits, HttpMeters, HttpMetrics, HttpServer, LongStream, Peer, RequestId, Stopping, cookie,
};

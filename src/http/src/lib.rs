//! HTTP: the server of the master's own pages and hooks. It binds sockets and takes TLS as the two
//! ports do (`saltern_wire::port`), and knows neither what is served nor who may ask.

pub mod server;

pub use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};

pub use server::{Handler, HttpLimits, HttpMeters, HttpMetrics, HttpServer};

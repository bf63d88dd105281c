//! Salt's websocket transport (`transport: ws`, since 3007; stock `salt/transport/ws.py`): RFC
//! 6455 behind an HTTP/1.1 upgrade, on any path, one binary message a request, a reply or a
//! publication.
//!
//! The handshake and the headers of frames are read by `tungstenite`; its streams are not used,
//! because they reserve what a peer announces. Not here: the contents of a message, extensions
//! (compression), which no Salt client requests.

mod client;
mod frames;
pub(crate) mod framing;

pub use client::{ReqClient, SubClient};

//! Replies that are the same for every command.
//!
//! The texts are those that stock sends; a stock peer acts on some of them, so they are facts of
//! the protocol (`salt/channel/server.py`, `handle_message`).

use bytes::Bytes;
use saltern_model::Compat;
use saltern_wire::msgpack::{Dialect, Encoder, pack};
use serde::Serialize;

use crate::events::NamedError;

/// Answer to a request that failed without one of its own: a fixstr/str8-free packed string, so
/// that it is also a valid answer to an encrypted request.
pub const NO_ANSWER: &str = "Some exception handling minion payload";

/// A plain packed string.
pub(crate) fn text(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 3);
    Encoder::new(&mut out, Dialect::Raw).str(text);
    out.into()
}

/// A plain packed value.
pub(crate) fn clear<T: Serialize>(value: &T) -> Bytes {
    pack(value, Dialect::Raw).into()
}

/// `bad load`: makes a stock minion authenticate anew and send once more.
pub(crate) fn bad_load() -> Bytes {
    text("bad load")
}

/// Stock's answer to a request whose handler failed.
pub(crate) fn no_answer() -> Bytes {
    text(NO_ANSWER)
}

/// The answer to bytes that are not msgpack.
pub(crate) fn not_msgpack(compat: Compat) -> Bytes {
    match compat {
        Compat::V3006 | Compat::V3007 => clear(&BadMessage { msg: "bad load" }),
        Compat::V3008 => plain_error("Routing error"),
    }
}

/// An error as clear commands give it: `{"error": {"name": …, "message": …}}`.
pub(crate) fn named_error(name: &str, message: &str) -> Bytes {
    let error = NamedError { name, message };
    clear(&Refusal { error })
}

/// An error in one sentence: `{"error": …}`; a stock client prints it.
pub(crate) fn plain_error(message: &str) -> Bytes {
    clear(&Refusal { error: message })
}

/// A load in an answer to a clear command.
pub(crate) fn clear_load<T: Serialize>(load: &T) -> Bytes {
    clear(&Envelope { enc: "clear", load })
}

#[derive(Serialize)]
struct BadMessage {
    msg: &'static str,
}

#[derive(Serialize)]
struct Refusal<T> {
    error: T,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    enc: &'static str,
    load: &'a T,
}

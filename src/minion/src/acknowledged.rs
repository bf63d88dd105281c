//! A log of the returns that a master acknowledged, so that a test can verify afterwards that it
//! still has all of them.
//!
//! A line a return: the job's id, the minion, the function, and the SHA-256 of the returned value
//! packed as msgpack with today's types. The file is not made durable: it is for tests that end the
//! master and not the swarm.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use saltern_base::hex;
use saltern_wire::msgpack::{Dialect, Value, encode};
use sha2::{Digest, Sha256};

/// The file.
pub struct Acknowledged(Mutex<File>);

impl Acknowledged {
    /// A new file; one that is there is emptied.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path).map(Mutex::new).map(Self)
    }

    /// Appends an acknowledged return. Each line is written at once and whole.
    pub(crate) fn note(&self, fields: &[(&str, Value)]) {
        let line = line_of(fields);
        if let Err(error) = self.0.lock().write_all(line.as_bytes()) {
            tracing::error!("an acknowledged return cannot be recorded: {error}");
        }
    }
}

fn line_of(fields: &[(&str, Value)]) -> String {
    let text = |name| text(fields, name);
    let digest = digest(fields);
    format!("{} {} {} {digest}\n", text("jid"), text("id"), text("fun"))
}

/// A field of a return.
fn field<'f>(fields: &'f [(&str, Value)], wanted: &str) -> &'f Value {
    let found = fields.iter().find(|(name, _)| *name == wanted);
    found.map_or(&Value::Nil, |(_, value)| value)
}

/// A field of a return that is a text; `-` where it is none.
pub(crate) fn text<'f>(fields: &'f [(&str, Value)], name: &str) -> &'f str {
    field(fields, name).as_str().unwrap_or("-")
}

/// The SHA-256 of the returned value.
pub(crate) fn digest(fields: &[(&str, Value)]) -> String {
    hex(&Sha256::digest(encode(
        field(fields, "return"),
        Dialect::Bin,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_line_names_the_return_and_its_digest() {
        let fields = [
            ("id", Value::from("m1")),
            ("jid", Value::from("20261121120000000000")),
            ("fun", Value::from("test.echo")),
            ("return", Value::from("abc")),
        ];
        // printf '\xa3abc' | sha256sum
        let digest = "0c4a44e90bc687970dbc25eb6304a2c1f375ee76c2d09e448d3b4611302aa593";
        let expected = format!("20261121120000000000 m1 test.echo {digest}\n");
        assert_eq!(line_of(&fields), expected);
    }
}

//! The test keys and the known answers in `tests/vectors/crypto.json`, made by stock Salt.

use saltern_crypto::{PrivateKey, PublicKey};
use serde_json::Value;

/// The whole file of known answers.
pub(crate) fn vectors() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/crypto.json"
    );
    let text = std::fs::read_to_string(path).expect("tests/vectors/crypto.json is in the checkout");
    serde_json::from_str(&text).expect("tests/vectors/crypto.json is JSON")
}

/// Every entry of one list, of all releases of Salt, each with a name for a failure message.
pub(crate) fn entries(list: &str) -> Vec<(String, Value)> {
    let vectors = vectors();
    let stock = vectors["stock"]
        .as_object()
        .expect("a section for each release");
    let named = |(release, section): (&String, &Value)| {
        let entries = section[list]
            .as_array()
            .expect("a list of known answers")
            .clone();
        let name = |(index, entry)| (format!("{release} {list} {index}"), entry);
        entries
            .into_iter()
            .enumerate()
            .map(name)
            .collect::<Vec<_>>()
    };
    let entries: Vec<_> = stock.iter().flat_map(named).collect();
    assert!(
        entries.len() >= 3,
        "{list}: known answers of three releases"
    );
    entries
}

/// One test key in one PEM form.
pub(crate) fn form(name: &str, form: &str) -> String {
    text(&vectors()["keys"][name], form).to_owned()
}

pub(crate) fn private(name: &str) -> PrivateKey {
    PrivateKey::from_pem(form(name, "pkcs1"), None).expect("a test key")
}

pub(crate) fn public(name: &str) -> PublicKey {
    PublicKey::from_pem(form(name, "public")).expect("a test key")
}

pub(crate) fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().expect("a text")
}

pub(crate) fn bytes(entry: &Value, field: &str) -> Vec<u8> {
    let digits = text(entry, field);
    let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
        .collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

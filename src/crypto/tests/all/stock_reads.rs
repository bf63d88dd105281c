//! The other direction: what this crate writes is read by stock Salt itself.

use saltern_crypto::{Crypticle, EncAlgo, KeyString, PrivateKey, SigAlgo};
use serde_json::{Value, json};

use crate::keys::{form, hex, public};

fn rsa_outputs(key: &PrivateKey) -> Value {
    let message = b"from saltern".as_slice();
    let encrypted = [EncAlgo::OaepSha1, EncAlgo::OaepSha224].map(|algo| {
        let ciphertext = public("minion").encrypt(algo, message).unwrap();
        json!({ "algo": algo.wire_name(), "ciphertext": hex(&ciphertext) })
    });
    let signed = [SigAlgo::Pkcs1v15Sha1, SigAlgo::Pkcs1v15Sha224].map(|algo| {
        let signature = key.sign(algo, message).unwrap();
        json!({ "algo": algo.wire_name(), "signature": hex(&signature) })
    });
    json!({
        "message": hex(message),
        "minion_private": form("minion", "pkcs1"),
        "encrypted": encrypted,
        "private": key.to_pem(None).unwrap().expose(),
        "private_encrypted": key.to_pem(Some("open sesame")).unwrap().expose(),
        "passphrase": "open sesame",
        "public": key.public().pem(),
        "finger": key.public().fingerprint(Default::default()).unwrap(),
        "signed": signed,
        "x931": hex(&key.x931_sign(message).unwrap()),
    })
}

fn crypticle_outputs() -> Value {
    let key = KeyString::generate();
    let crypticle = Crypticle::new(&key);
    let nonce = "0123456789abcdef0123456789abcdef";
    // Message-pack of the text "x" * n, for every amount of padding.
    let packed = |n: u8| [vec![0xa0 | n], vec![b'x'; usize::from(n)]].concat();
    let messages: Vec<_> = (0..32)
        .map(|n| {
            json!({
                "length": n,
                "bare": hex(&crypticle.dumps(&packed(n), None)),
                "with_nonce": hex(&crypticle.dumps(&packed(n), Some(nonce.as_bytes()))),
            })
        })
        .collect();
    json!({ "key_string": key.as_str(), "nonce": nonce, "messages": messages })
}

#[test]
fn stock_opens_our_keys_signatures_and_crypticles() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = json!({
        "directory": directory.path(),
        "rsa": rsa_outputs(&PrivateKey::generate(2048).unwrap()),
        "crypticle": crypticle_outputs(),
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/stock_reads.py");
    let read = saltern_stock::answer(saltern_stock::NEWEST, script, &outputs.to_string());
    let read = String::from_utf8_lossy(&read);
    // Salt's exception hook must not be able to turn a failure into a quiet exit.
    assert_eq!(read.trim(), "all read");
}

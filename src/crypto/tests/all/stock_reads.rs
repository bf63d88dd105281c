//! The other direction: what this crate writes is read by stock Salt itself.
//!
//! Needs a python in which Salt is installed: `SALTERN_STOCK_PYTHON`, or the one that
//! `make test` installs. Without one the test fails, because a skipped proof proves nothing.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use saltern_crypto::{Crypticle, EncAlgo, KeyString, PrivateKey, SigAlgo};
use serde_json::{Value, json};

use crate::keys::{form, hex, public};

fn stock_python() -> PathBuf {
    let python = match std::env::var_os("SALTERN_STOCK_PYTHON") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default())
            .join(".cache/saltern/stock/3008.3/bin/python"),
    };
    assert!(
        python.is_file(),
        "no stock Salt to compare with: \"{}\" does not exist; run \"make test\", which installs \
         it, or set SALTERN_STOCK_PYTHON to the python of an environment with Salt in it",
        python.display()
    );
    python
}

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
fn stock_salt_reads_what_we_write() {
    let python = stock_python();
    let directory = tempfile::tempdir().unwrap();
    let outputs = json!({
        "directory": directory.path(),
        "rsa": rsa_outputs(&PrivateKey::generate(2048).unwrap()),
        "crypticle": crypticle_outputs(),
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/stock_reads.py");
    let mut child = Command::new(&python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(outputs.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}{stderr}");
    // Salt's exception hook must not be able to turn a failure into a quiet exit.
    assert_eq!(stdout.trim(), "all read", "{stderr}");
}

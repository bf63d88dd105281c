//! Sealed messages and PEM.

use saltern_crypto::{Crypticle, KeyString, PrivateKey, PublicKey, clean_key};
use saltern_fuzz::Fuzz;

use crate::site::key_pair;

const NONCE: &[u8] = b"0123456789abcdef0123456789abcdef";

/// Nothing opens but what was sealed.
#[test]
fn crypticle() {
    let crypticle = Crypticle::new(&KeyString::generate());
    let seeds = vec![
        crypticle.dumps(b"\x81\xa1a\x01", None),
        crypticle.dumps(b"\x81\xa1a\x01", Some(NONCE)),
        crypticle.encrypt(b"plain"),
    ];
    let genuine = seeds.clone();
    Fuzz {
        name: "crypticle",
        seeds,
        words: &[b"pickle::", NONCE, &[0; 16], &[0; 32]],
        count: 20_000,
    }
    .run(|bytes| {
        let opened = crypticle.decrypt(bytes).is_ok()
            | crypticle.loads(bytes).is_ok()
            | crypticle.loads_with_nonce(bytes, NONCE).is_ok();
        assert!(!opened || genuine.iter().any(|sealed| sealed == bytes));
    });
}

/// A key that is read is written and read as the same.
#[test]
fn pem() {
    let pair = key_pair("minion");
    let large = key_pair("large").public;
    Fuzz {
        name: "pem",
        seeds: vec![
            pair.public.clone().into_bytes(),
            pair.public.replace('\n', "\r\n").into_bytes(),
            pair.private.into_bytes(),
            large.into_bytes(),
        ],
        words: &[
            b"-----BEGIN PUBLIC KEY-----",
            b"-----END PUBLIC KEY-----",
            b"-----BEGIN RSA PUBLIC KEY-----",
            b"Proc-Type: 4,ENCRYPTED\n",
            b"\r\n",
            b"=",
            b"AAAA",
        ],
        count: 300,
    }
    .run(|bytes| {
        if let Ok(key) = PublicKey::from_pem(bytes) {
            let again = PublicKey::from_pem(key.pem()).unwrap();
            assert_eq!(again.pem(), key.pem());
            let _ = key.verify(saltern_crypto::SigAlgo::Pkcs1v15Sha1, b"x", bytes);
        }
        let _ = PrivateKey::from_pem(bytes, None);
        let text = String::from_utf8_lossy(bytes);
        let clean = clean_key(&text);
        assert_eq!(clean_key(&clean), clean);
    });
}

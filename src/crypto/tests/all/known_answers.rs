//! Stock's own outputs, of every release, against ours.

use std::collections::HashMap;

use saltern_crypto::{
    Crypticle, EncAlgo, HashType, KeyString, PrivateKey, PublicKey, SigAlgo, clean_key, pem_finger,
    text_finger,
};

use crate::keys::{bytes, entries, private, public, text};

fn pairs() -> HashMap<&'static str, (PrivateKey, PublicKey)> {
    ["master", "minion", "large"]
        .map(|name| (name, (private(name), public(name))))
        .into()
}

#[test]
fn key_strings_have_stocks_digest() {
    for (name, entry) in entries("key_strings") {
        let key = KeyString::parse(text(&entry, "key_string")).unwrap();
        assert_eq!(key.digest_hex(), text(&entry, "digest"), "{name}");
    }
}

#[test]
fn x931_signatures_are_stocks_byte_for_byte() {
    let pairs = pairs();
    for (name, entry) in entries("x931") {
        let (private, public) = &pairs[text(&entry, "key")];
        let (message, signature) = (bytes(&entry, "message"), bytes(&entry, "signature"));
        assert_eq!(private.x931_sign(&message).unwrap(), signature, "{name}");
        assert_eq!(public.x931_recover(&signature).unwrap(), message, "{name}");
    }
}

#[test]
fn pkcs1v15_signatures_are_stocks_byte_for_byte() {
    let pairs = pairs();
    for (name, entry) in entries("signatures") {
        let (private, public) = &pairs[text(&entry, "key")];
        let algo = SigAlgo::from_wire(text(&entry, "algo")).unwrap();
        let (message, signature) = (bytes(&entry, "message"), bytes(&entry, "signature"));
        assert_eq!(private.sign(algo, &message).unwrap(), signature, "{name}");
        assert!(public.verify(algo, &message, &signature), "{name}");
        assert!(
            !public.verify(algo, b"another message", &signature),
            "{name}"
        );
    }
}

#[test]
fn rsa_ciphertext_of_stock_is_decrypted() {
    let pairs = pairs();
    for (name, entry) in entries("ciphertexts") {
        let (private, _) = &pairs[text(&entry, "key")];
        let algo = EncAlgo::from_wire(text(&entry, "algo")).unwrap();
        let ciphertext = bytes(&entry, "ciphertext");
        let plain = private.decrypt(algo, &ciphertext).unwrap();
        assert_eq!(plain.expose(), bytes(&entry, "message"), "{name}");
        let other = match algo {
            EncAlgo::OaepSha1 => EncAlgo::OaepSha224,
            EncAlgo::OaepSha224 => EncAlgo::OaepSha1,
        };
        assert!(private.decrypt(other, &ciphertext).is_err(), "{name}");
    }
}

#[test]
fn crypticle_of_stock_is_opened() {
    for (name, entry) in entries("crypticles") {
        let key = KeyString::parse(text(&entry, "key_string")).unwrap();
        let crypticle = Crypticle::new(&key);
        let message = bytes(&entry, "message");
        let found = match entry["nonce"].as_str() {
            None => crypticle.loads(&message),
            Some(nonce) => crypticle.loads_with_nonce(&message, nonce.as_bytes()),
        };
        let packed = bytes(&entry, "packed");
        assert_eq!(found.unwrap(), packed, "{name}");
        let ours = crypticle.dumps(&packed, entry["nonce"].as_str().map(str::as_bytes));
        assert_eq!(ours.len(), message.len(), "{name}");
    }
}

#[test]
fn fingerprints_are_the_ones_stock_shows() {
    for (name, entry) in entries("fingerprints") {
        let pem = text(&entry, "text").as_bytes();
        for (hash_type, by_path) in entry["by_path"].as_object().unwrap() {
            let case = format!("{name}, {}, {hash_type}", text(&entry, "case"));
            let known = HashType::from_name(hash_type).unwrap();
            assert_eq!(*by_path, pem_finger(pem, known).unwrap(), "{case}");
            // 3008.3 hashes the armour too when it is given a text: see fingerprint.rs.
            let by_key = &entry["by_key"][hash_type];
            match name.starts_with("3008") {
                true => assert_eq!(*by_key, text_finger(pem, known).unwrap(), "{case}"),
                false => assert_eq!(*by_key, pem_finger(pem, known).unwrap(), "{case}"),
            }
            let key = PublicKey::from_pem(pem).unwrap();
            assert_eq!(*by_path, key.fingerprint(known).unwrap(), "{case}");
        }
    }
    assert!(HashType::from_name("sha3").is_none());
}

#[test]
fn keys_are_cleaned_as_stock_cleans_them() {
    for (name, entry) in entries("clean_keys") {
        assert_eq!(
            clean_key(text(&entry, "given")),
            text(&entry, "clean"),
            "{name}"
        );
    }
}

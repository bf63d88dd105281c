//! Every PEM form of a key that stock reads or writes, and the texts that are refused.

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use saltern_crypto::{KeyError, PrivateKey, PublicKey, SigAlgo, clean_key};

use crate::keys::{form, private, public};

const KEYS: [&str; 3] = ["master", "minion", "large"];

fn kind(result: Result<PrivateKey, KeyError>) -> &'static str {
    match result {
        Ok(_) => "read",
        Err(KeyError::NoPem(_)) => "no pem",
        Err(KeyError::Unreadable { .. }) => "unreadable",
        Err(KeyError::PassphraseNeeded) => "passphrase needed",
        Err(KeyError::WrongPassphrase) => "wrong passphrase",
        Err(KeyError::NotRsa) => "not rsa",
        Err(KeyError::Size(_)) => "size",
        Err(KeyError::Exponent) => "exponent",
        Err(KeyError::OpenSsl { .. }) => "openssl",
    }
}

#[test]
fn all_private_forms_are_the_same_key() {
    for name in KEYS {
        let passphrase = form(name, "passphrase");
        let expected = form(name, "pkcs1");
        let forms = [
            ("pkcs1", None),
            // One that is not needed does no harm.
            ("pkcs1", Some(passphrase.as_str())),
            ("pkcs1", Some("")),
            ("pkcs8", None),
            ("pkcs1_encrypted", Some(passphrase.as_str())),
            ("pkcs8_encrypted", Some(passphrase.as_str())),
        ];
        for (form_name, passphrase) in forms {
            let key = PrivateKey::from_pem(form(name, form_name), passphrase).unwrap();
            let written = key.to_pem(None).unwrap();
            assert_eq!(written.expose(), expected, "{name} {form_name}");
            assert_eq!(
                key.public().pem(),
                clean_key(&form(name, "public")),
                "{name} {form_name}"
            );
        }
    }
}

#[test]
fn missing_and_wrong_passphrase_are_different_errors() {
    for form_name in ["pkcs1_encrypted", "pkcs8_encrypted"] {
        let pem = form("master", form_name);
        assert_eq!(kind(PrivateKey::from_pem(&pem, None)), "passphrase needed");
        assert_eq!(
            kind(PrivateKey::from_pem(&pem, Some(""))),
            "passphrase needed"
        );
        assert_eq!(
            kind(PrivateKey::from_pem(&pem, Some("wrong"))),
            "wrong passphrase"
        );
        let endless = "x".repeat(1 << 16);
        assert_eq!(
            kind(PrivateKey::from_pem(&pem, Some(&endless))),
            "wrong passphrase"
        );
    }
}

#[test]
fn empty_passphrase_is_none_when_a_key_is_written() {
    let pem = private("master").to_pem(Some("")).unwrap();
    assert_eq!(pem.expose(), form("master", "pkcs1"));
}

#[test]
fn old_ciphers_around_a_key_are_read() {
    let rsa = Rsa::private_key_from_pem(form("master", "pkcs1").as_bytes()).unwrap();
    for cipher in [
        Cipher::aes_128_cbc(),
        Cipher::aes_192_cbc(),
        Cipher::des_ede3_cbc(),
    ] {
        let pem = rsa.private_key_to_pem_passphrase(cipher, b"old").unwrap();
        let key = PrivateKey::from_pem(&pem, Some("old")).unwrap();
        assert_eq!(key.public().pem(), private("master").public().pem());
    }
}

#[test]
fn a_new_key_is_written_and_read_with_and_without_passphrase() {
    let key = PrivateKey::generate(2048).unwrap();
    assert_eq!(key.public().bits(), 2048);
    for passphrase in [None, Some("open sesame")] {
        let pem = key.to_pem(passphrase).unwrap();
        assert!(
            pem.expose()
                .starts_with("-----BEGIN RSA PRIVATE KEY-----\n")
        );
        assert_eq!(
            pem.expose().contains("\nDEK-Info: AES-256-CBC,"),
            passphrase.is_some()
        );
        let again = PrivateKey::from_pem(pem.expose(), passphrase).unwrap();
        assert_eq!(again.public().pem(), key.public().pem());
    }
    assert!(matches!(
        PrivateKey::generate(512),
        Err(KeyError::Size(512))
    ));
    assert!(matches!(
        PrivateKey::generate(1 << 20),
        Err(KeyError::Size(_))
    ));
}

#[test]
fn all_public_forms_are_the_same_key() {
    for name in KEYS {
        let signature = private(name).sign(SigAlgo::Pkcs1v15Sha1, b"salt").unwrap();
        for form_name in ["public", "public_pkcs1", "public_mislabelled"] {
            let text = form(name, form_name);
            for pem in [
                text.replace('\n', "\r\n"),
                format!("# m1\n{text}\n\n"),
                text,
            ] {
                let key = PublicKey::from_pem(&pem).unwrap();
                assert!(
                    key.verify(SigAlgo::Pkcs1v15Sha1, b"salt", &signature),
                    "{name} {pem}"
                );
                assert_eq!(key.pem(), clean_key(&pem), "{name} {form_name}");
            }
        }
    }
    assert_eq!(public("large").bits(), 3072);
}

#[test]
fn key_that_is_not_rsa_is_refused() {
    let bare_under_the_other_label =
        form("master", "public_pkcs1").replace("RSA PUBLIC KEY", "PUBLIC KEY");
    let cut: String = form("master", "public").chars().take(200).collect();
    let unreadable = [
        String::new(),
        "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----".into(),
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----".into(),
        "-----BEGIN RSA PUBLIC KEY-----\nMAA=\n-----END RSA PUBLIC KEY-----".into(),
        form("master", "pkcs1"),
        bare_under_the_other_label,
        cut,
    ];
    for text in unreadable {
        let result = PublicKey::from_pem(&text);
        let refused = matches!(
            result,
            Err(KeyError::NoPem(_) | KeyError::Unreadable { .. })
        );
        assert!(refused, "{text}");
    }
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let elliptic = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let pem = elliptic.public_key_to_pem().unwrap();
    assert!(matches!(PublicKey::from_pem(pem), Err(KeyError::NotRsa)));
    let pem = elliptic.private_key_to_pem_pkcs8().unwrap();
    assert_eq!(kind(PrivateKey::from_pem(pem, None)), "not rsa");

    for text in ["", "no key", "a text that is longer than the armour"] {
        assert_eq!(kind(PrivateKey::from_pem(text, None)), "no pem", "{text}");
    }
    assert_eq!(
        kind(PrivateKey::from_pem(form("master", "public"), None)),
        "unreadable"
    );
    let cut: String = form("master", "pkcs1").chars().take(900).collect();
    assert_eq!(kind(PrivateKey::from_pem(cut, None)), "unreadable");
}

#[test]
fn keys_outside_the_limits_are_refused() {
    let numbers = |modulus: &str, exponent: &str| {
        let number = |hex: &str| openssl::bn::BigNum::from_hex_str(hex).unwrap();
        let rsa = Rsa::from_public_components(number(modulus), number(exponent)).unwrap();
        PublicKey::from_pem(rsa.public_key_to_pem().unwrap())
    };
    let modulus = |bytes: usize| format!("C{}1", "5".repeat(bytes * 2 - 2));
    assert!(numbers(&modulus(256), "10001").is_ok());
    assert!(numbers(&modulus(256), "3").is_ok());
    assert!(matches!(
        numbers(&modulus(64), "10001"),
        Err(KeyError::Size(512))
    ));
    assert!(matches!(
        numbers(&modulus(4096), "10001"),
        Err(KeyError::Size(32768))
    ));
    let even = format!("{}0", "C".repeat(511));
    assert!(matches!(
        numbers(&even, "10001"),
        Err(KeyError::Unreadable { .. })
    ));
    let vast = format!("{}1", "5".repeat(80));
    for exponent in ["1", "2", "10000", vast.as_str()] {
        assert!(
            matches!(numbers(&modulus(256), exponent), Err(KeyError::Exponent)),
            "{exponent}"
        );
    }
}

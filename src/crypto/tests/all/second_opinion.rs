//! The `rsa` crate, which shares no code with OpenSSL, on the other side of every operation;
//! and X9.31 once more, computed from its definition.

use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::rand_core::OsRng;
use rsa::sha2::Sha224;
use rsa::traits::{PrivateKeyParts, PublicKeyParts};
use rsa::{BigUint, Oaep, Pkcs1v15Sign, RsaPrivateKey};
use saltern_crypto::{EncAlgo, RsaError, SigAlgo};
use sha1_for_rsa::Sha1;

use crate::keys::{form, private, public};

fn other(name: &str) -> RsaPrivateKey {
    RsaPrivateKey::from_pkcs1_pem(&form(name, "pkcs1")).unwrap()
}

fn oaep(algo: EncAlgo) -> Oaep {
    match algo {
        EncAlgo::OaepSha1 => Oaep::new::<Sha1>(),
        EncAlgo::OaepSha224 => Oaep::new::<Sha224>(),
    }
}

#[test]
fn encryption_interoperates_with_an_independent_implementation() {
    for name in ["master", "large"] {
        let (ours, theirs) = (private(name), other(name));
        for algo in [EncAlgo::OaepSha1, EncAlgo::OaepSha224] {
            for secret in [vec![], b"salt".to_vec(), vec![7; 76]] {
                let ciphertext = public(name).encrypt(algo, &secret).unwrap();
                assert_eq!(theirs.decrypt(oaep(algo), &ciphertext).unwrap(), secret);
                let ciphertext = theirs
                    .to_public_key()
                    .encrypt(&mut OsRng, oaep(algo), &secret)
                    .unwrap();
                assert_eq!(ours.decrypt(algo, &ciphertext).unwrap().expose(), secret);
            }
        }
    }
}

#[test]
fn signatures_equal_those_of_an_independent_implementation() {
    use rsa::sha2::Digest;
    for name in ["master", "large"] {
        for message in [b"".as_slice(), b"salt"] {
            let cases = [
                (
                    SigAlgo::Pkcs1v15Sha1,
                    Pkcs1v15Sign::new::<Sha1>(),
                    Sha1::digest(message).to_vec(),
                ),
                (
                    SigAlgo::Pkcs1v15Sha224,
                    Pkcs1v15Sign::new::<Sha224>(),
                    Sha224::digest(message).to_vec(),
                ),
            ];
            for (algo, padding, digest) in cases {
                let signature = private(name).sign(algo, message).unwrap();
                assert_eq!(signature, other(name).sign(padding, &digest).unwrap());
                assert!(public(name).verify(algo, message, &signature));
            }
        }
    }
}

/// X9.31 as the standard has it: `6b bb .. ba`, message, `cc`; the smaller of two roots.
fn x931_by_definition(key: &RsaPrivateKey, message: &[u8]) -> Vec<u8> {
    let size = key.size();
    let mut block = match size - message.len() - 2 {
        0 => vec![0x6a],
        filler => [&[0x6b], vec![0xbb; filler - 1].as_slice(), &[0xba]].concat(),
    };
    block.extend_from_slice(message);
    block.push(0xcc);
    let root = BigUint::from_bytes_be(&block).modpow(key.d(), key.n());
    let root = std::cmp::min(key.n() - &root, root).to_bytes_be();
    [vec![0; size - root.len()], root].concat()
}

#[test]
fn x931_is_what_its_definition_says() {
    for name in ["master", "minion", "large"] {
        let (ours, theirs) = (private(name), other(name));
        let size = theirs.size();
        for len in [1, 4, 64, 100, size - 4, size - 2] {
            let message = vec![0xbb; len];
            let signature = ours.x931_sign(&message).unwrap();
            assert_eq!(
                signature,
                x931_by_definition(&theirs, &message),
                "{name}, {len} bytes"
            );
            assert_eq!(public(name).x931_recover(&signature).unwrap(), message);
        }
        for len in [0, size - 3, size - 1, size, size + 1] {
            let refused = ours.x931_sign(&vec![0xbb; len]);
            assert!(
                matches!(refused, Err(RsaError::Unfit { .. })),
                "{name}, {len} bytes"
            );
        }
    }
}

/// The number of these operations bounds what a request costs (`cve_2017_14696_…` of the gate).
#[test]
fn each_private_operation_is_counted_once() {
    let key = private("master");
    assert_eq!(key.operations(), 0);
    let sealed = public("master")
        .encrypt(EncAlgo::OaepSha1, b"salt")
        .unwrap();
    key.decrypt(EncAlgo::OaepSha1, &sealed).unwrap();
    assert_eq!(key.operations(), 1);
    key.sign(SigAlgo::Pkcs1v15Sha1, b"salt").unwrap();
    assert_eq!(key.operations(), 2);
    key.x931_sign(b"salt").unwrap();
    assert_eq!(key.operations(), 3);
    // Refused before it costs anything.
    assert!(key.x931_sign(b"").is_err());
    assert_eq!(key.operations(), 3);
}

#[test]
fn message_too_long_for_the_key_is_refused() {
    let key = public("master");
    for (algo, capacity) in [(EncAlgo::OaepSha1, 214), (EncAlgo::OaepSha224, 198)] {
        assert!(key.encrypt(algo, &vec![0; capacity]).is_ok());
        let refused = key.encrypt(algo, &vec![0; capacity + 1]);
        assert!(
            matches!(refused, Err(RsaError::Unfit { .. })),
            "{}",
            algo.wire_name()
        );
    }
}

/// Keys were made with an exponent of 1, which encrypts nothing.
#[test]
fn cve_2013_2228_generated_keys_have_a_usable_exponent() {
    let key = saltern_crypto::PrivateKey::generate(2048).unwrap();
    let pem = key.to_pem(None).unwrap();
    let read = RsaPrivateKey::from_pkcs1_pem(pem.expose());
    let read = read.or_else(|_| {
        use rsa::pkcs8::DecodePrivateKey as _;
        RsaPrivateKey::from_pkcs8_pem(pem.expose())
    });
    let read = read.unwrap();
    assert_eq!(read.e(), &BigUint::from(65_537_u32));
    assert_eq!(read.size(), 256);
}

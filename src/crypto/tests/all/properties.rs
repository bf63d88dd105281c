//! Properties of every message: it is recovered, and a changed one is not.

use proptest::collection::vec;
use proptest::prelude::*;
use saltern_crypto::{
    Crypticle, EncAlgo, KeyString, OpenError, PrivateKey, PublicKey, SigAlgo, clean_key, pem_finger,
};

use crate::keys::{private, public};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc=";

fn crypticle() -> Crypticle {
    Crypticle::new(&KeyString::parse(KEY).unwrap())
}

proptest! {
    #[test]
    fn crypticle_round_trips(plain in vec(any::<u8>(), 0..600)) {
        let crypticle = crypticle();
        prop_assert_eq!(crypticle.decrypt(&crypticle.encrypt(&plain)).unwrap(), plain.clone());
        prop_assert_eq!(crypticle.loads(&crypticle.dumps(&plain, None)).unwrap(), plain);
    }

    #[test]
    fn a_reply_opens_with_its_own_nonce_only(
        plain in vec(any::<u8>(), 0..100),
        nonce in "[0-9a-f]{32}",
        other in "[0-9a-f]{0,40}",
    ) {
        prop_assume!(nonce != other);
        let crypticle = crypticle();
        let message = crypticle.dumps(&plain, Some(nonce.as_bytes()));
        let opened = crypticle.loads_with_nonce(&message, nonce.as_bytes());
        prop_assert_eq!(opened.unwrap(), plain);
        let refused = crypticle.loads_with_nonce(&message, other.as_bytes());
        prop_assert_eq!(refused, Err(OpenError::Nonce));
    }

    #[test]
    fn a_message_with_one_bit_changed_is_refused(
        plain in vec(any::<u8>(), 0..100),
        place in any::<prop::sample::Index>(),
    ) {
        let crypticle = crypticle();
        let mut message = crypticle.dumps(&plain, None);
        let bit = place.index(message.len() * 8);
        message[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(crypticle.decrypt(&message), Err(OpenError::NotAuthentic));
    }

    #[test]
    fn a_message_cut_or_extended_is_refused(
        plain in vec(any::<u8>(), 0..100),
        place in any::<prop::sample::Index>(),
        more in vec(any::<u8>(), 1..50),
    ) {
        let crypticle = crypticle();
        let message = crypticle.dumps(&plain, None);
        let cut = &message[..place.index(message.len())];
        prop_assert!(crypticle.decrypt(cut).is_err());
        prop_assert!(crypticle.decrypt(&[message.as_slice(), &more].concat()).is_err());
    }

    #[test]
    fn random_bytes_are_no_crypticle(bytes in vec(any::<u8>(), 0..300)) {
        let crypticle = crypticle();
        prop_assert!(crypticle.decrypt(&bytes).is_err());
        prop_assert!(crypticle.loads(&bytes).is_err());
        prop_assert!(crypticle.loads_with_nonce(&bytes, b"").is_err());
        prop_assert!(PublicKey::from_pem(&bytes).is_err());
        prop_assert!(PrivateKey::from_pem(&bytes, None).is_err());
        prop_assert!(pem_finger(&bytes, Default::default()).is_ok());
    }

    #[test]
    fn text_in_armour_never_panics(
        label in "(RSA )?(PUBLIC|PRIVATE) KEY",
        body in "[A-Za-z0-9+/=\n]{0,400}",
    ) {
        let pem = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----");
        prop_assert!(PublicKey::from_pem(&pem).is_err());
        prop_assert!(PrivateKey::from_pem(&pem, Some("x")).is_err());
    }

    #[test]
    fn a_clean_key_is_clean(text in any::<String>()) {
        let clean = clean_key(&text);
        prop_assert_eq!(clean_key(&clean), clean.clone());
        prop_assert!(!clean.contains('\r'));
    }

    #[test]
    fn any_text_is_a_key_string_or_an_error(text in any::<String>()) {
        prop_assert!(KeyString::parse(&text).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rsa_encryption_round_trips(message in vec(any::<u8>(), 1..190)) {
        let (private, public) = (private("minion"), public("minion"));
        for algo in [EncAlgo::OaepSha1, EncAlgo::OaepSha224] {
            let ciphertext = public.encrypt(algo, &message).unwrap();
            let plain = private.decrypt(algo, &ciphertext).unwrap();
            prop_assert_eq!(plain.expose(), message.as_slice());
        }
        let signature = private.x931_sign(&message).unwrap();
        prop_assert_eq!(public.x931_recover(&signature).unwrap(), message);
    }

    #[test]
    fn a_changed_signature_or_ciphertext_is_refused(
        message in vec(any::<u8>(), 1..100),
        place in any::<prop::sample::Index>(),
    ) {
        let (private, public) = (private("minion"), public("minion"));
        let changed = |mut bytes: Vec<u8>| {
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        for algo in [SigAlgo::Pkcs1v15Sha1, SigAlgo::Pkcs1v15Sha224] {
            let signature = private.sign(algo, &message).unwrap();
            prop_assert!(public.verify(algo, &message, &signature));
            prop_assert!(!public.verify(algo, &message, &changed(signature.clone())));
            prop_assert!(!public.verify(algo, &message, &signature[1..]));
        }
        let signature = changed(private.x931_sign(&message).unwrap());
        prop_assert_ne!(public.x931_recover(&signature).ok(), Some(message.clone()));
        let ciphertext = changed(public.encrypt(EncAlgo::OaepSha1, &message).unwrap());
        prop_assert!(private.decrypt(EncAlgo::OaepSha1, &ciphertext).is_err());
    }

    #[test]
    fn random_bytes_are_no_signature(bytes in vec(any::<u8>(), 0..400)) {
        let (private, public) = (private("minion"), public("minion"));
        for algo in [SigAlgo::Pkcs1v15Sha1, SigAlgo::Pkcs1v15Sha224] {
            prop_assert!(!public.verify(algo, b"salt", &bytes));
        }
        prop_assert!(public.x931_recover(&bytes).is_err());
        prop_assert!(private.decrypt(EncAlgo::OaepSha224, &bytes).is_err());
    }
}

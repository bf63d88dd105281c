//! Salt's filters for digests, encodings of bytes, and random values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use minijinja::value::Value;
use sha2::{Digest as _, Sha256, Sha512};

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::ops;
use super::super::value::{Kind, list, type_name};
use super::Row;
use crate::render::twister::Twister;

/// The name space of Salt's UUIDs.
const KEY: &str = "91633EBF1C865E33935A28061F4B480E";

pub(super) const FILTERS: &[Row] = &[
    ("uuid", &["val"], |_, args| {
        let key = u128::from_str_radix(KEY, 16).unwrap_or(0);
        let mut hash = sha1::Sha1::new();
        hash.update(key.to_be_bytes());
        hash.update(bytes_of(args, 0)?);
        let digest = hash.finalize();
        let mut number = digest
            .iter()
            .take(16)
            .fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
        number = (number & !(0xf << 76)) | (5 << 76);
        number = (number & !(3 << 62)) | (2 << 62);
        let hex = format!("{number:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Ok(Value::from(format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )))
    }),
    ("base64_encode", &["instr"], |_, args| {
        Ok(Value::from(STANDARD.encode(bytes_of(args, 0)?)))
    }),
    ("base64_decode", &["instr"], |_, args| {
        let text: Vec<u8> = bytes_of(args, 0)?
            .into_iter()
            .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
            .collect();
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| Fault::other("Incorrect padding"))?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(error) => Value::from_bytes(error.into_bytes()),
        })
    }),
    ("md5", &["instr"], |_, args| {
        Ok(hex(&md5::Md5::digest(bytes_of(args, 0)?)))
    }),
    ("sha1", &["instr"], |_, args| {
        Ok(hex(&sha1::Sha1::digest(bytes_of(args, 0)?)))
    }),
    ("sha256", &["instr"], |_, args| {
        Ok(hex(&Sha256::digest(bytes_of(args, 0)?)))
    }),
    ("sha512", &["instr"], |_, args| {
        Ok(hex(&Sha512::digest(bytes_of(args, 0)?)))
    }),
    ("hmac_compute", &["string", "shared_secret"], |_, args| {
        Ok(hex(&keyed(&bytes_of(args, 0)?, &bytes_of(args, 1)?)?))
    }),
    (
        "hmac",
        &["string", "shared_secret", "challenge_hmac"],
        |_, args| {
            let digest = keyed(&bytes_of(args, 0)?, &bytes_of(args, 1)?)?;
            Ok(Value::from(
                STANDARD.encode(digest).into_bytes() == bytes_of(args, 2)?,
            ))
        },
    ),
    ("rand_str", &["size", "hash_type"], |_, args| {
        random_hash(args)
    }),
    ("random_hash", &["size", "hash_type"], |_, args| {
        random_hash(args)
    }),
    ("random_str", &["size"], |_, args| {
        let size = usize::try_from(args.int(0, 32)?).unwrap_or(0).min(1 << 20);
        let mut text = STANDARD.encode(random_bytes(size)?);
        text.truncate(size);
        Ok(Value::from(text))
    }),
    ("random_sample", &["value", "size", "seed"], |_, args| {
        let size = usize::try_from(args.int(1, 0)?).unwrap_or(usize::MAX);
        sample(&ops::items(args.need(0)?)?, size, args.get(2))
    }),
    ("random_shuffle", &["value", "seed"], |_, args| {
        let items = ops::items(args.need(0)?)?;
        sample(&items, items.len(), args.get(1))
    }),
    ("to_bytes", &["s", "encoding", "errors"], |_, args| {
        Ok(Value::from_bytes(bytes_of(args, 0)?))
    }),
];

/// An argument that must be text.
pub(super) fn text_of(args: &Bound, index: usize) -> Outcome<String> {
    let value = args.need(index)?;
    ops::defined(value)?;
    value.as_str().map(str::to_owned).ok_or_else(|| {
        Fault::other(format!(
            "expected string or bytes-like object, got '{}'",
            type_name(value)
        ))
    })
}

fn bytes_of(args: &Bound, index: usize) -> Outcome<Vec<u8>> {
    let value = args.need(index)?;
    ops::defined(value)?;
    match Kind::of(value) {
        Kind::Str(text) => Ok(text.as_bytes().to_vec()),
        Kind::Bytes(bytes) => Ok(bytes.to_vec()),
        _ => Err(Fault::other(format!(
            "expected str, bytes, or bytearray not <class '{}'>",
            type_name(value)
        ))),
    }
}

fn hex(bytes: &[u8]) -> Value {
    Value::from(saltern_base::hex(bytes))
}

fn keyed(message: &[u8], key: &[u8]) -> Outcome<Vec<u8>> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).map_err(|_| Fault::other("the key cannot be used"))?;
    mac.update(message);
    Ok(mac.finalize().into_bytes().to_vec())
}

pub(super) fn random_bytes(count: usize) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| Fault::other(error.to_string()))?;
    Ok(bytes)
}

/// A random number below a bound; the bias is far below anything that matters here.
pub(super) fn random_below(bound: usize) -> Outcome<usize> {
    let bytes = random_bytes(16)?;
    let number = bytes
        .iter()
        .fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    Ok(usize::try_from(number % (bound.max(1) as u128)).unwrap_or(0))
}

/// With a seed what Python's generator gives, so that a list comes out the same each time.
fn sample(items: &[Value], size: usize, seed: Option<&Value>) -> Outcome<Value> {
    if size > items.len() {
        return Err(Fault::other("Sample larger than population or is negative"));
    }
    let mut twister = match seed.map(Kind::of) {
        None | Some(Kind::None) => {
            Twister::unseen().map_err(|error| Fault::other(error.to_string()))?
        }
        Some(Kind::Str(seed)) => Twister::of_digest(seed),
        Some(_) => return Err(Fault::other("object supporting the buffer API required")),
    };
    Ok(list(twister.sample(items, size)))
}

fn random_hash(args: &Bound) -> Outcome<Value> {
    let bytes = random_bytes(32)?;
    Ok(match args.text(1, "md5")?.as_str() {
        "md5" => hex(&md5::Md5::digest(bytes)),
        "sha1" => hex(&sha1::Sha1::digest(bytes)),
        "sha256" => hex(&Sha256::digest(bytes)),
        "sha512" => hex(&Sha512::digest(bytes)),
        other => {
            return Err(Fault::other(format!(
                "module 'hashlib' has no attribute '{other}'"
            )));
        }
    })
}

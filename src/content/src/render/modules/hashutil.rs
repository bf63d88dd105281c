//! `hashutil.*`, and the digests that other functions need.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use saltern_wire::msgpack::Value;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::render::functions::{CallArgs, CallError, Registry};
use saltern_base::hex;

type Called = Result<Value, CallError>;

/// A digest that is being computed.
pub(super) enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    /// The digest of this name; `None` if it is unknown.
    pub(super) fn new(name: &str) -> Option<Hasher> {
        Some(match name {
            "md5" => Hasher::Md5(Md5::new()),
            "sha1" => Hasher::Sha1(Sha1::new()),
            "sha224" => Hasher::Sha224(Sha224::new()),
            "sha256" => Hasher::Sha256(Sha256::new()),
            "sha384" => Hasher::Sha384(Sha384::new()),
            "sha512" => Hasher::Sha512(Sha512::new()),
            _ => return None,
        })
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Md5(hasher) => hasher.update(bytes),
            Hasher::Sha1(hasher) => hasher.update(bytes),
            Hasher::Sha224(hasher) => hasher.update(bytes),
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha384(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest in hexadecimal digits.
    pub(super) fn finish(self) -> String {
        match self {
            Hasher::Md5(hasher) => hex(&hasher.finalize()),
            Hasher::Sha1(hasher) => hex(&hasher.finalize()),
            Hasher::Sha224(hasher) => hex(&hasher.finalize()),
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::Sha384(hasher) => hex(&hasher.finalize()),
            Hasher::Sha512(hasher) => hex(&hasher.finalize()),
        }
    }
}

/// The digest of bytes; `None` if its name is unknown.
pub(super) fn digest(bytes: &[u8], name: &str) -> Option<String> {
    let mut hasher = Hasher::new(name)?;
    hasher.update(bytes);
    Some(hasher.finish())
}

/// Adds the functions.
pub(super) fn hashutil(registry: &mut Registry) {
    registry.add("hashutil.digest", |args| {
        let name = args.text(1, "checksum").unwrap_or_else(|| "md5".to_owned());
        of_three(&bytes(&args, 0, "instr")?, &name)
    });
    registry.add("hashutil.digest_file", |args| {
        let path = args.need_text(0, "infile")?;
        let name = args.text(1, "checksum").unwrap_or_else(|| "md5".to_owned());
        if !std::path::Path::new(&path).is_file() {
            return Err(CallError::Refused(format!("File path '{path}' not found.")));
        }
        of_three(&super::file::bytes_of(path.as_ref())?, &name)
    });
    for name in ["md5", "sha256", "sha512"] {
        registry.add(&format!("hashutil.{name}_digest"), move |args| {
            of_three(&bytes(&args, 0, "instr")?, name)
        });
    }
    registry.add("hashutil.base64_b64encode", |args| {
        Ok(Value::from(STANDARD.encode(bytes(&args, 0, "instr")?)))
    });
    registry.add("hashutil.base64_encodestring", |args| {
        Ok(Value::from(in_lines(
            &STANDARD.encode(bytes(&args, 0, "instr")?),
        )))
    });
    registry.add("hashutil.base64_encodefile", |args| {
        let path = args.need_text(0, "fname")?;
        let bytes = super::file::bytes_of(path.as_ref())?;
        Ok(Value::from(in_lines(&STANDARD.encode(bytes))))
    });
    for name in ["hashutil.base64_b64decode", "hashutil.base64_decodestring"] {
        registry.add(name, |args| decoded(&bytes(&args, 0, "instr")?));
    }
    registry.add("hashutil.hmac_compute", |args| {
        let (text, secret) = (
            bytes(&args, 0, "string")?,
            bytes(&args, 1, "shared_secret")?,
        );
        Ok(Value::from(hex(&keyed(&text, &secret)?)))
    });
    registry.add("hashutil.hmac_signature", |args| {
        let (text, secret) = (
            bytes(&args, 0, "string")?,
            bytes(&args, 1, "shared_secret")?,
        );
        let challenge = args.need_text(2, "challenge_hmac")?;
        let computed = STANDARD.encode(keyed(&text, &secret)?);
        Ok(Value::Bool(computed == challenge))
    });
}

fn bytes(args: &CallArgs, index: usize, name: &str) -> Result<Vec<u8>, CallError> {
    match args.get(index, name) {
        Some(Value::Bin(bytes)) => Ok(bytes.to_vec()),
        _ => args.need_text(index, name).map(String::into_bytes),
    }
}

/// `hashutil` knows three digests only.
fn of_three(bytes: &[u8], name: &str) -> Called {
    match name {
        "md5" | "sha256" | "sha512" => digest(bytes, name).map(Value::from),
        _ => None,
    }
    .ok_or_else(|| CallError::Refused(format!("Hash func '{name}' is not supported.")))
}

/// Seventy-six letters a line, each line ended.
fn in_lines(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(76)
        .map(|line| line.iter().collect::<String>() + "\n")
        .collect()
}

/// Letters that are not of the alphabet are passed over, as Python does.
fn decoded(text: &[u8]) -> Called {
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let text: Vec<u8> = text.iter().filter(is_letter).copied().collect();
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| CallError::Failed("Incorrect padding".to_owned()))?;
    Ok(String::from_utf8(bytes).map_or_else(|e| Value::Bin(e.into_bytes().into()), Value::from))
}

fn keyed(text: &[u8], secret: &[u8]) -> Result<Vec<u8>, CallError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)
        .map_err(|error| CallError::Failed(error.to_string()))?;
    mac.update(text);
    Ok(mac.finalize().into_bytes().to_vec())
}

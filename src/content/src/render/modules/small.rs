//! Functions that need nothing at all: `environ.get`, `random.*`, `hashutil.*`, `test.*`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use saltern_wire::msgpack::Value;
use sha1::Sha1;
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

use crate::render::functions::{CallArgs, CallError, Registry};

/// The longest random text.
const LONGEST: usize = 1 << 20;

/// Adds the functions.
pub fn small(registry: &mut Registry) {
    registry.add("environ.get", |args| {
        let key = args.need_text(0, "key")?;
        let default = args
            .get(1, "default")
            .cloned()
            .unwrap_or_else(|| Value::from(""));
        Ok(std::env::var(key).map_or(default, Value::from))
    });
    registry.add("environ.has_value", |args| {
        let key = args.need_text(0, "key")?;
        Ok(Value::Bool(
            std::env::var(key).is_ok_and(|value| !value.is_empty()),
        ))
    });
    registry.add("random.get_str", |args| random_text(&args).map(Value::from));
    registry.add("random.rand_int", |args| {
        let bound = |index, name, default| {
            args.get(index, name)
                .and_then(Value::as_i64)
                .unwrap_or(default)
        };
        let (start, end) = (bound(0, "start", 1), bound(1, "end", 10));
        let span = i128::from(end) - i128::from(start) + 1;
        if span < 1 {
            return Err(CallError::Failed("empty range for randrange()".to_owned()));
        }
        let number = i128::from(random_u64()?) % span + i128::from(start);
        Ok(Value::from(i64::try_from(number).unwrap_or(start)))
    });
    registry.add("random.hash", hash);
    registry.add("hashutil.digest", |args| {
        // Its second argument has another name than that of `random.hash`.
        let checksum = args.text(1, "checksum").unwrap_or_else(|| "md5".to_owned());
        digest(&args.need_text(0, "instr")?, &checksum)
    });
    for (name, algorithm) in [("md5", "md5"), ("sha256", "sha256"), ("sha512", "sha512")] {
        registry.add(&format!("hashutil.{name}_digest"), move |args| {
            digest(&args.need_text(0, "instr")?, algorithm)
        });
    }
    for name in ["hashutil.base64_b64encode", "hashutil.base64_encodestring"] {
        let lines = name.ends_with("string");
        registry.add(name, move |args| {
            let encoded = STANDARD.encode(args.need_text(0, "instr")?);
            Ok(Value::from(if lines {
                in_lines(&encoded)
            } else {
                encoded
            }))
        });
    }
    registry.add("hashutil.base64_b64decode", |args| {
        let text = args.need_text(0, "instr")?;
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|_| CallError::Failed("Incorrect padding".to_owned()))?;
        Ok(
            String::from_utf8(bytes)
                .map_or_else(|e| Value::Bin(e.into_bytes().into()), Value::from),
        )
    });
    registry.add("test.ping", |_| Ok(Value::Bool(true)));
    registry.add("test.echo", |args| args.need(0, "text").cloned());
}

/// Seventy-six letters a line, each line ended.
fn in_lines(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(76)
        .map(|line| line.iter().collect::<String>() + "\n")
        .collect()
}

fn random_u64() -> Result<u64, CallError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| CallError::Failed(error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// `random.get_str`: letters and digits, and what else the arguments allow.
fn random_text(args: &CallArgs) -> Result<String, CallError> {
    let length = args.get(0, "length").and_then(Value::as_i64).unwrap_or(20);
    let length = usize::try_from(length).unwrap_or(0).min(LONGEST);
    let flag = |name: &str| args.flag(usize::MAX, name, true);
    let mut letters = String::new();
    if let Some(chars) = args.text(1, "chars") {
        letters = chars;
    } else {
        for (name, group) in [
            ("lowercase", "abcdefghijklmnopqrstuvwxyz"),
            ("uppercase", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
            ("digits", "0123456789"),
            ("punctuation", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ] {
            if flag(name) {
                letters.push_str(group);
            }
        }
    }
    let letters: Vec<char> = letters.chars().collect();
    if letters.is_empty() {
        return Err(CallError::Refused(
            "No valid characters are left".to_owned(),
        ));
    }
    let mut out = String::new();
    for _ in 0..length {
        let index = usize::try_from(random_u64()? % letters.len() as u64).unwrap_or(0);
        out.extend(letters.get(index));
    }
    Ok(out)
}

fn hash(args: CallArgs) -> Result<Value, CallError> {
    let algorithm = args
        .text(1, "algorithm")
        .unwrap_or_else(|| "sha512".to_owned());
    digest(&args.need_text(0, "value")?, &algorithm)
}

fn digest(text: &str, algorithm: &str) -> Result<Value, CallError> {
    let hex = |bytes: &[u8]| {
        Value::from(
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
        )
    };
    Ok(match algorithm {
        "md5" => hex(&Md5::digest(text)),
        "sha1" => hex(&Sha1::digest(text)),
        "sha224" => hex(&Sha224::digest(text)),
        "sha256" => hex(&Sha256::digest(text)),
        "sha384" => hex(&Sha384::digest(text)),
        "sha512" => hex(&Sha512::digest(text)),
        _ => {
            return Err(CallError::Refused(
                "You must specify a valid algorithm.".to_owned(),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::Value;

    use super::small;
    use crate::render::functions::{CallArgs, Functions as _, Registry};

    #[test]
    fn small_functions_answer_as_stock() {
        let mut registry = Registry::new();
        small(&mut registry);
        let call = |name: &str, positional: Vec<Value>| {
            registry.call(
                name,
                CallArgs {
                    positional,
                    named: Vec::new(),
                },
            )
        };
        let text = |text: &str| Value::from(text);
        let hashed = call("hashutil.digest", vec![text("a"), text("md5")]);
        assert_eq!(hashed, Ok(text("0cc175b9c0f1b6a831c399e269772661")));
        assert_eq!(
            call("hashutil.base64_b64encode", vec![text("a")]),
            Ok(text("YQ=="))
        );
        assert_eq!(
            call("environ.get", vec![text("SALTERN_NO"), text("d")]),
            Ok(text("d"))
        );
        let random = call("random.get_str", vec![Value::Int(12)]).expect("a text");
        assert_eq!(random.as_str().map(|text| text.chars().count()), Some(12));
        let number = call("random.rand_int", vec![Value::Int(3), Value::Int(3)]);
        assert_eq!(number, Ok(Value::Int(3)));
        assert!(call("random.hash", vec![text("a"), text("crc")]).is_err());
    }
}

//! `random.*`: with a seed from Python's generator, without one from the system's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saltern_wire::msgpack::Value;

use super::lookup::Facts;
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::twister::Twister;

/// The longest random text.
const MAX_RANDOM_BYTES: usize = 1 << 20;

type Called = Result<Value, CallError>;

/// Adds the functions.
pub(super) fn random(registry: &mut Registry, facts: &Facts) {
    registry.add("random.get_str", |args| text(&args).map(Value::from));
    registry.add("random.rand_int", |args| {
        let bound = |index, name, default| {
            let given = args.get(index, name).and_then(Value::as_i64);
            given.unwrap_or(default)
        };
        let (start, end) = (bound(0, "start", 1), bound(1, "end", 10));
        let span = u64::try_from(i128::from(end) - i128::from(start) + 1).unwrap_or(0);
        if span == 0 {
            return Err(CallError::Failed("empty range for randrange()".to_owned()));
        }
        let number = match args.get(2, "seed") {
            None | Some(Value::Nil) => below(span)?,
            Some(seed) => seeded(seed)?.below(span),
        };
        let number = i128::from(start) + i128::from(number);
        Ok(Value::from(i64::try_from(number).unwrap_or(start)))
    });
    let id = facts.grains.get("id").cloned().unwrap_or(Value::Nil);
    registry.add("random.seed", move |args| {
        let range = args.get(0, "range").and_then(Value::as_i64).unwrap_or(10);
        let range = u64::try_from(range).unwrap_or(0);
        if range == 0 {
            return Err(CallError::Failed("empty range for randrange()".to_owned()));
        }
        let seed = args.get(1, "hash").filter(|seed| !seed.is_nil());
        let number = seeded(seed.unwrap_or(&id))?.below(range);
        Ok(Value::from(i64::try_from(number).unwrap_or(0)))
    });
    registry.add("random.hash", |args| {
        let name = args
            .text(1, "algorithm")
            .unwrap_or_else(|| "sha512".to_owned());
        let digest = super::hashutil::digest(args.need_text(0, "value")?.as_bytes(), &name);
        digest
            .map(Value::from)
            .ok_or_else(|| CallError::Failed("You must specify a valid algorithm.".to_owned()))
    });
    registry.add("random.str_encode", |args| {
        let value = args.need_text(0, "value")?;
        match args.text(1, "encoder").as_deref() {
            None | Some("base64") => Ok(Value::from(STANDARD.encode(value))),
            Some(_) => Err(CallError::Refused(
                "Value must be an encode-able string".to_owned(),
            )),
        }
    });
    registry.add("random.sample", |args| {
        let size = args.need(1, "size")?.as_i64();
        sample(&args, size.and_then(|size| usize::try_from(size).ok()), 2)
    });
    registry.add("random.shuffle", |args| {
        let all = args.need(0, "value")?.as_array().map(<[Value]>::len);
        sample(&args, all, 1)
    });
}

fn sample(args: &CallArgs, size: Option<usize>, seed_at: usize) -> Called {
    let items = args
        .need(0, "value")?
        .as_array()
        .ok_or_else(|| CallError::Failed("Population must be a sequence.".to_owned()))?;
    let size = size.filter(|size| *size <= items.len()).ok_or_else(|| {
        CallError::Failed("Sample larger than population or is negative".to_owned())
    })?;
    let mut twister = match args.get(seed_at, "seed") {
        None | Some(Value::Nil) => unseen()?,
        Some(Value::Str(seed)) => Twister::of_digest(seed),
        Some(_) => {
            let message = "object supporting the buffer API required";
            return Err(CallError::Failed(message.to_owned()));
        }
    };
    Ok(Value::Array(twister.sample(items, size)))
}

fn unseen() -> Result<Twister, CallError> {
    Twister::unseen().map_err(|error| CallError::Failed(error.to_string()))
}

fn seeded(seed: &Value) -> Result<Twister, CallError> {
    match seed {
        Value::Str(text) => Ok(Twister::of_text(text)),
        Value::Int(number) => Ok(Twister::of_int(*number)),
        Value::Bool(flag) => Ok(Twister::of_int(i64::from(*flag))),
        Value::Nil => unseen(),
        _ => Err(CallError::Failed(
            "The only supported seed types are: None, int, float, str, bytes, and bytearray."
                .to_owned(),
        )),
    }
}

fn number() -> Result<u64, CallError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| CallError::Failed(error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A number below a bound, each equally likely.
fn below(bound: u64) -> Result<u64, CallError> {
    let fair = u64::MAX - u64::MAX % bound;
    loop {
        let number = number()?;
        if number < fair {
            return Ok(number % bound);
        }
    }
}

/// `random.get_str`: letters and digits, and what else the arguments allow.
fn text(args: &CallArgs) -> Result<String, CallError> {
    let length = args.get(0, "length").and_then(Value::as_i64).unwrap_or(20);
    let length = usize::try_from(length).unwrap_or(0).min(MAX_RANDOM_BYTES);
    let groups = [
        ("lowercase", true, "abcdefghijklmnopqrstuvwxyz"),
        ("uppercase", true, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("digits", true, "0123456789"),
        ("punctuation", true, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("whitespace", false, " \t\n\r\u{b}\u{c}"),
    ];
    let is_printable = args.flag(usize::MAX, "printable", false);
    let given = args.text(1, "chars").filter(|chars| !chars.is_empty());
    let letters: Vec<char> = match given {
        Some(chars) if !is_printable => chars.chars().collect(),
        _ => groups
            .iter()
            .zip(2..)
            .filter(|((name, default, _), at)| is_printable || args.flag(*at, name, *default))
            .flat_map(|((.., letters), _)| letters.chars())
            .collect(),
    };
    if letters.is_empty() && length > 0 {
        return Err(CallError::Refused(
            "there are no letters to choose from".to_owned(),
        ));
    }
    let mut out = String::new();
    for _ in 0..length {
        let index = usize::try_from(below(letters.len() as u64)?).unwrap_or(0);
        out.extend(letters.get(index));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::Value;

    use super::super::lookup::Facts;
    use super::random;
    use crate::render::functions::{CallArgs, Functions as _, Registry};

    #[test]
    fn unseeded_random_values_are_in_range() {
        let mut registry = Registry::new();
        random(&mut registry, &Facts::default());
        let call = |name: &str, positional: Vec<Value>, named: &[(&str, Value)]| {
            let named = named
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()));
            let named = named.collect();
            registry.call(name, CallArgs { positional, named })
        };
        let text = call("random.get_str", vec![Value::Int(12)], &[]).expect("a text");
        assert_eq!(text.as_str().map(|text| text.chars().count()), Some(12));
        let letters = [("chars", Value::from("a"))];
        let text = call("random.get_str", vec![Value::Int(3)], &letters);
        assert_eq!(text, Ok(Value::from("aaa")));
        let number = call("random.rand_int", vec![Value::Int(3), Value::Int(3)], &[]);
        assert_eq!(number, Ok(Value::Int(3)));
        let list = Value::Array(vec![Value::Int(1), Value::Int(2)]);
        let shuffled = call("random.shuffle", vec![list.clone()], &[]).expect("a list");
        assert_eq!(shuffled.as_array().map(<[Value]>::len), Some(2));
        assert!(call("random.sample", vec![list, Value::Int(3)], &[]).is_err());
        assert!(
            call(
                "random.hash",
                vec![Value::from("a"), Value::from("crc")],
                &[]
            )
            .is_err()
        );
    }
}

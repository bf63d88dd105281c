//! Bounds of the grains that are cached of one minion. A minion chooses its grains, and they are
//! indexed for targets: without a bound one minion could slow down the targets of all users.

use std::borrow::Cow;

use saltern_wire::msgpack::Value;

/// Bytes of the grains of one minion that are kept, about as they are packed.
const GRAINS_BYTES: usize = 1 << 20;

/// Values in the grains of one minion that are kept: scalars, lists, maps, and the names in maps.
const GRAINS_VALUES: usize = 20_000;

/// Bytes that the head of a packed value has at most; of a small one they are fewer.
const HEAD: usize = 5;

/// Size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    bytes: usize,
    values: usize,
}

impl Weight {
    fn of(value: &Value) -> Self {
        let (content, inner) = match value {
            Value::Nil | Value::Bool(_) => (0, Self::default()),
            Value::Int(_) | Value::Uint(_) | Value::Float(_) => (HEAD, Self::default()),
            Value::Str(text) => (text.len(), Self::default()),
            Value::Bin(bytes) | Value::Ext(_, bytes) => (bytes.len(), Self::default()),
            Value::Array(items) => (
                0,
                items.iter().map(Self::of).fold(Self::default(), Self::and),
            ),
            Value::Map(entries) => {
                let entries = entries.iter().map(Self::of_entry);
                (0, entries.fold(Self::default(), Self::and))
            }
        };
        Self {
            bytes: HEAD + content,
            values: 1,
        }
        .and(inner)
    }

    fn of_entry((name, value): &(Value, Value)) -> Self {
        Self::of(name).and(Self::of(value))
    }

    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            values: self.values + other.values,
        }
    }

    fn is_kept(self) -> bool {
        self.bytes <= GRAINS_BYTES && self.values <= GRAINS_VALUES
    }
}

/// Result of bounding the grains of a minion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptGrains {
    /// Entries of the first level that were left out.
    pub left_out: usize,
    /// The values that are kept are many, so that it takes time to index them.
    pub is_large: bool,
}

/// More values than this are many.
const MANY_VALUES: usize = 2_000;

impl KeptGrains {
    /// The grains that are kept.
    pub(super) fn of(grains: &Value) -> (Cow<'_, Value>, Self) {
        let is_large = Weight::of(grains).values > MANY_VALUES;
        let count = |grains: &Value| grains.as_map().map_or(0, <[_]>::len);
        let kept = cut(grains).map_or(Cow::Borrowed(grains), Cow::Owned);
        let left_out = count(grains) - count(&kept);
        (kept, Self { left_out, is_large })
    }
}

/// Truncates grains that are larger than `GRAINS_BYTES` or `GRAINS_VALUES`: keeps the smallest
/// entries of the first level, as many as the bounds allow, in their order. `None` when all are
/// kept.
pub(super) fn cut(grains: &Value) -> Option<Value> {
    if Weight::of(grains).is_kept() {
        return None;
    }
    let entries = grains.as_map().unwrap_or_default();
    let mut by_weight: Vec<(Weight, usize)> =
        entries.iter().map(Weight::of_entry).zip(0..).collect();
    by_weight.sort_unstable();
    let mut sum = Weight::default();
    let mut kept: Vec<usize> = by_weight
        .into_iter()
        .map_while(|(weight, at)| {
            sum = sum.and(weight);
            sum.is_kept().then_some(at)
        })
        .collect();
    kept.sort_unstable();
    let kept = kept.into_iter().filter_map(|at| entries.get(at).cloned());
    Some(Value::Map(kept.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: usize) -> Value {
        let entries = (0..count).map(|n| (Value::from(format!("g{n}")), Value::from("x")));
        Value::Map(entries.collect())
    }

    #[test]
    fn ordinary_grains_are_kept_whole() {
        let os = Value::map([("os", Value::from("Debian")), ("id", Value::from("m1"))]);
        assert_eq!(cut(&os), None);
        assert_eq!(cut(&many(GRAINS_VALUES / 2 - 1)), None);
        assert_eq!(cut(&Value::Map(Vec::new())), None);
    }

    #[test]
    fn oversized_grains_lose_their_largest_entries() {
        let long = "x".repeat(GRAINS_BYTES);
        let nested = many(GRAINS_VALUES);
        for large in [Value::from(long), nested] {
            let grains = [
                ("id", "m1".into()),
                ("large", large),
                ("os", "Debian".into()),
            ];
            let kept = cut(&Value::map(grains)).unwrap();
            let small = Value::map([("id", Value::from("m1")), ("os", "Debian".into())]);
            assert_eq!(kept, small);
        }
        let kept = cut(&many(900_000)).unwrap();
        let count = kept.as_map().unwrap().len();
        assert!(
            (GRAINS_VALUES / 2 - 1..=GRAINS_VALUES / 2).contains(&count),
            "{count}"
        );
        assert!(Weight::of(&kept).values <= GRAINS_VALUES + 1);
        assert_eq!(
            cut(&Value::from("x".repeat(GRAINS_BYTES))),
            Some(Value::Map(Vec::new()))
        );
    }
}

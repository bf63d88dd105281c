//! Asking CPython, and what to ask it.

use serde_json::Value as Json;

/// CPython's answer to each job; `oracle.py` names the functions.
pub(crate) fn asked_of_python(jobs: &Json) -> Vec<Json> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential/oracle.py");
    let answer = saltern_stock::answer(saltern_stock::NEWEST, script, &jobs.to_string());
    serde_json::from_slice(&answer).expect("the oracle answers in JSON")
}

/// A small generator of numbers; the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        // Knuth's MMIX multiplier; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.bits() >> 33) as usize) % bound
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Up to `most` of these in a row.
    pub(crate) fn row(&mut self, of: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| self.one(of)).collect()
    }
}

/// A number of the environment, for longer runs.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().expect("a number"))
}

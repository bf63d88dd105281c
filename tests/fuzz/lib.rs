//! Fuzzing on stable Rust: inputs are mutated from a kept corpus by a seeded generator, and handed to
//! a target, which is a plain function over bytes that panics where something is wrong.
//!
//! A run is bounded by a count, so that it is the same each time: each input follows from the seed and
//! its number alone. `SALTERN_FUZZ_SECONDS` bounds it by time instead, with a new seed, which is
//! printed; `SALTERN_FUZZ_SEED` and `SALTERN_FUZZ_NUMBER` give one input again. An input that fails is
//! printed and written into the corpus, where every later run tries it first.
//!
//! Feedback by coverage is `coverage.rs`, in a build of its own; what it found is in the corpus, too.

#![allow(
    unexpected_cfgs,
    reason = "`fuzzing`, which coverage.py sets, as `cargo fuzz` does"
)]
#![allow(clippy::print_stdout, reason = "figures for people")]

#[cfg(fuzzing)]
mod coverage;
mod mutate;

use std::cell::RefCell;
use std::fmt::Display;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

pub use mutate::Random;

/// Bytes of a failed input that are printed.
const SHOWN: usize = 4096;

/// The file of a corpus with what coverage found: an input a line, in hexadecimal.
const FOUND: &str = "found";

/// Maximum length of a mutated input.
const MAX_INPUT: usize = 16 << 10;

thread_local! {
    /// The last panic of this thread. One that a target catches is none of its faults.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A target with its corpus.
pub struct Fuzz<'a> {
    /// The name, and that of its directory in `corpus`.
    pub name: &'a str,
    /// Inputs to begin with, beside the files of the corpus.
    pub seeds: Vec<Vec<u8>>,
    /// Parts that a mutation inserts.
    pub words: &'a [&'a [u8]],
    /// Number of mutated inputs of a run that is bounded by count.
    pub count: u64,
}

/// Bounds and seed of a run, as the environment has them.
struct Run {
    seed: u64,
    time: Option<Duration>,
    /// The one input that is wanted.
    only: Option<u64>,
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Run {
    fn of_environment() -> Self {
        let time = variable("SALTERN_FUZZ_SECONDS").map(Duration::from_secs);
        let own = match time {
            Some(_) => u64::from(std::process::id()) << 20,
            None => 1,
        };
        Self {
            seed: variable("SALTERN_FUZZ_SEED").unwrap_or(own),
            time,
            only: variable("SALTERN_FUZZ_NUMBER"),
        }
    }
}

impl Fuzz<'_> {
    /// Runs a target over the corpus and over inputs that are made of it.
    ///
    /// # Panics
    /// When the target does, after the input was printed and kept.
    pub fn run(self, target: impl Fn(&[u8])) {
        #[cfg(fuzzing)]
        if let Some(arguments) = coverage::arguments() {
            return coverage::run(&self, arguments, target);
        }
        let run = Run::of_environment();
        let corpus = self.corpus();
        std::panic::set_hook(Box::new(|info| {
            let trace = std::backtrace::Backtrace::capture();
            let text = format!("{info}\n{trace}");
            LAST_PANIC.with(|last| last.replace(text));
        }));
        for entry in &corpus {
            self.attempt(&target, entry, "an entry of the corpus");
        }
        let numbers = match run.only {
            Some(only) => only..only.saturating_add(1),
            None if run.time.is_some() => 0..u64::MAX,
            None => 0..self.count,
        };
        let began = Instant::now();
        let (mut inputs, mut slowest) = (0_u64, (Duration::ZERO, 0));
        for number in numbers {
            if run.time.is_some_and(|time| began.elapsed() >= time) {
                break;
            }
            let mut random = Random::new(run.seed, number);
            let input = random.mutated(&corpus, self.words, MAX_INPUT);
            let at = Instant::now();
            let what = format_args!(
                "SALTERN_FUZZ_SEED={} SALTERN_FUZZ_NUMBER={number}",
                run.seed
            );
            self.attempt(&target, &input, what);
            slowest = slowest.max((at.elapsed(), number));
            inputs += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "fuzz: {}: {} entries, {inputs} inputs in {seconds:.1} s, the slowest {} µs (number {}), seed {}",
            self.name,
            corpus.len(),
            slowest.0.as_micros(),
            slowest.1,
            run.seed
        );
    }

    /// The seeds and the files of the corpus, in order of their names.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<PathBuf> = fs::read_dir(directory(self.name))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        files.sort();
        let kept = files
            .iter()
            .filter_map(|path| Some((path, fs::read(path).ok()?)))
            .flat_map(|(path, bytes)| match path.file_name() {
                Some(name) if name == FOUND => found(&bytes),
                _ => vec![bytes],
            });
        let mut corpus: Vec<Vec<u8>> = self.seeds.iter().cloned().chain(kept).collect();
        if corpus.is_empty() {
            corpus.push(Vec::new());
        }
        corpus
    }

    fn attempt(&self, target: &impl Fn(&[u8]), input: &[u8], what: impl Display) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else {
            return;
        };
        let shown = input.get(..SHOWN).unwrap_or(input);
        println!(
            "fuzz: {} failed with {what}, {} bytes: {}\n{:?}\n{}",
            self.name,
            input.len(),
            hex(shown),
            String::from_utf8_lossy(shown),
            LAST_PANIC.with(RefCell::take)
        );
        self.keep(input);
        std::panic::resume_unwind(panic);
    }

    /// Makes a failed input an entry of the corpus.
    fn keep(&self, input: &[u8]) {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let path = directory(self.name).join(format!("crash-{:016x}", hasher.finish()));
        let kept = fs::create_dir_all(directory(self.name)).and_then(|()| fs::write(&path, input));
        match kept {
            Ok(()) => println!("fuzz: kept as {}", path.display()),
            Err(error) => println!("fuzz: not kept as {}: {error}", path.display()),
        }
    }
}

/// The inputs of a file that has one a line, in hexadecimal.
///
/// # Panics
/// When a line is something else.
fn found(file: &[u8]) -> Vec<Vec<u8>> {
    let digit = |byte: &u8| {
        char::from(*byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    file.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| line.chunks(2).map(byte).collect::<Option<Vec<u8>>>())
        .map(|input| input.expect("a line of a corpus is hexadecimal"))
        .collect()
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

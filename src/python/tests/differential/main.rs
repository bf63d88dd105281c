//! This crate against CPython, which is the interpreter of the newest stock release: thousands of
//! generated questions in one process, and the answers compared byte for byte.
//!
//! `SALTERN_PYTHON_CASES` sets how many questions of a kind there are, `SALTERN_PYTHON_SEED` which.

mod layouts;
mod oracle;
mod patterns;
mod texts;
mod values;

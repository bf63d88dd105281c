//! Cryptography compared with stock Salt, with a second RSA implementation and with itself. One
//! binary, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod keys;
mod known_answers;
mod pem_forms;
mod properties;
mod second_opinion;
mod stock_reads;

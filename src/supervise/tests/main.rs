//! Trees of scripted actors that fail, stop and come back.
//! One binary a crate, so that it is linked once.

mod common;
mod observed;
mod policies;
mod reserved;
mod restart;
mod stopping;
mod threads;

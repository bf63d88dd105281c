//! Tests of the listeners over real sockets.
//! One binary a crate, so that it is linked once.

mod port;
mod zmtp_descriptors;

//! Tests of server and client over real sockets.
//! One binary a crate, so that it is linked once.

mod server;

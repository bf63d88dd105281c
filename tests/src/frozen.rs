//! Frozen peers: complete the handshake and never read a byte again.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

/// First bytes of a ZMTP 3.0 subscriber: the greeting (RFC 23: signature, version, mechanism
/// `NULL`), READY with its socket type, and a subscription to everything.
const SUBSCRIBER: &[u8] = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB\
    \0\x01\x01";

/// So many subscribers of a publish port. Their windows and segments are as small as the system
/// makes them, so that little waits in the kernel and the rest with the master.
///
/// # Errors
/// When one cannot connect.
pub fn subscribers(port: u16, count: usize) -> Result<Vec<TcpStream>> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let one = |number: usize| {
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_recv_buffer_size(1)?;
            socket.set_tcp_mss(536)?;
            socket.connect(&address.into())?;
            let mut stream = TcpStream::from(socket);
            stream.set_write_timeout(Some(Duration::from_secs(60)))?;
            stream.write_all(SUBSCRIBER)?;
            Ok::<_, std::io::Error>(stream)
        };
        connect().with_context(|| format!("frozen subscriber {number}"))
    };
    (0..count).map(one).collect()
}

/// So many listeners on an event socket.
///
/// # Errors
/// When one cannot connect.
pub fn listeners(socket: &Path, count: usize) -> Result<Vec<UnixStream>> {
    let one = |number: usize| {
        UnixStream::connect(socket).with_context(|| format!("frozen listener {number}"))
    };
    (0..count).map(one).collect()
}

/// Lets this process open so many files, or as many as the system lets it; gives what it may now.
///
/// # Errors
/// When the system refuses even that.
pub fn may_open(wanted: u64) -> Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(wanted);
    }
    let current = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let limit = Rlimit {
        current: Some(current),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")?;
    Ok(current)
}

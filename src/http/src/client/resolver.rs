//! Names of servers, resolved within a deadline by a bounded number of threads.
//!
//! The system's resolver has no timeout, so it runs on a thread that is abandoned at the deadline.
//! `ureq`'s own resolver does the same, but without a bound.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::url;

/// Maximum number of names that are being resolved at once, abandoned ones included.
const MAX_RESOLVING: usize = 32;
/// Maximum number of addresses that are tried.
const MAX_ADDRESSES: usize = 16;

static RESOLVING: AtomicUsize = AtomicUsize::new(0);

/// Resolves by the system, on at most `MAX_RESOLVING` threads.
#[derive(Debug)]
pub(super) struct BoundedResolver;

/// One of the names that are being resolved.
struct Resolving;

impl Resolving {
    fn begin() -> io::Result<Self> {
        let before = RESOLVING.fetch_add(1, Ordering::Relaxed);
        let counted = Self;
        if before >= MAX_RESOLVING {
            return Err(io::Error::other("too many names are being resolved"));
        }
        Ok(counted)
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        RESOLVING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Resolver for BoundedResolver {
    fn resolve(
        &self,
        url: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let (_, host, port) = url::server(url);
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => resolved(host.to_owned(), port, timeout)?,
        };
        let mut addresses = self.empty();
        for address in found.into_iter().take(MAX_ADDRESSES) {
            addresses.push(address);
        }
        match addresses.is_empty() {
            true => Err(Error::HostNotFound),
            false => Ok(addresses),
        }
    }
}

fn resolved(host: String, port: u16, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
    let resolving = Resolving::begin()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("saltern-resolve".to_owned())
        .spawn(move || {
            let _resolving = resolving;
            let found = (host.as_str(), port).to_socket_addrs();
            // The caller may have given up.
            let _ = sender.send(found.map(Iterator::collect));
        })?;
    match receiver.recv_timeout(*timeout.after) {
        Ok(found) => Ok(found?),
        Err(_) => Err(Error::Timeout(timeout.reason)),
    }
}

//! Socket activation: listening sockets that a service manager holds and passes on, so that during
//! a restart no client is refused. New connections wait in the socket's own backlog.
//!
//! A socket is matched by its address, not by its name or its position, so the service manager
//! needs to know nothing of our options. How the sockets come into the process (`LISTEN_FDS`) is
//! up to the binary.

use std::io;
use std::net::{SocketAddr, TcpListener};

use super::listen::{ListenOptions, adopt, bind};

/// Inherited sockets that are not in use yet.
#[derive(Default)]
pub struct Inherited {
    listeners: Vec<(SocketAddr, TcpListener)>,
}

impl Inherited {
    /// Takes the sockets.
    ///
    /// # Errors
    /// An inherited descriptor has no address, so it is no TCP socket.
    pub fn new(listeners: impl IntoIterator<Item = TcpListener>) -> io::Result<Self> {
        let with_address = |listener: TcpListener| Ok((listener.local_addr()?, listener));
        let listeners = listeners.into_iter().map(with_address);
        Ok(Self {
            listeners: listeners.collect::<io::Result<_>>()?,
        })
    }

    /// The inherited socket for exactly this address, or a new one.
    ///
    /// # Errors
    /// As [`bind`]; and when an inherited socket has this port with another address: serving it
    /// could serve more than the configuration asks for.
    pub fn open(
        &mut self,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<TcpListener> {
        let place = self.listeners.iter().position(|(of, _)| *of == address);
        if let Some(place) = place {
            let (_, listener) = self.listeners.swap_remove(place);
            adopt(&listener, options)?;
            return Ok(listener);
        }
        bind(address, options).map_err(|error| {
            let mut held = self.unclaimed();
            match held.find(|held| held.port() == address.port() && held.port() != 0) {
                Some(held) if error.kind() == io::ErrorKind::AddrInUse => io::Error::new(
                    error.kind(),
                    format!("the socket that the service manager holds is \"{held}\""),
                ),
                _ => error,
            }
        })
    }

    /// The addresses of the unused inherited sockets.
    pub fn unclaimed(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn held(ip: Ipv4Addr) -> (SocketAddr, TcpListener) {
        let listener = TcpListener::bind((ip, 0)).expect("bind");
        (listener.local_addr().expect("address"), listener)
    }

    #[test]
    fn connection_from_before_the_start_is_served_by_the_inherited_socket() {
        let (address, listener) = held(Ipv4Addr::LOCALHOST);
        let early = std::net::TcpStream::connect(address).expect("connect");
        let mut inherited = Inherited::new([listener]).expect("a TCP socket");
        let opened = inherited.open(address, &ListenOptions::default());
        let opened = opened.expect("open");
        assert_eq!(inherited.unclaimed().count(), 0);

        opened.set_nonblocking(false).expect("blocking");
        let (_accepted, from) = opened.accept().expect("accept");
        assert_eq!(from, early.local_addr().expect("address"));
        // It was established before our options were set; later ones get them.
        let _late = std::net::TcpStream::connect(address).expect("connect");
        let (accepted, _) = opened.accept().expect("accept");
        assert!(accepted.nodelay().expect("our options"), "not adopted");
    }

    #[test]
    fn inherited_socket_of_another_address_is_refused_and_named() {
        let (wide, listener) = held(Ipv4Addr::UNSPECIFIED);
        let mut inherited = Inherited::new([listener]).expect("a TCP socket");
        let narrow = SocketAddr::from((Ipv4Addr::LOCALHOST, wide.port()));
        let refused = inherited.open(narrow, &ListenOptions::default());
        let refused = refused.expect_err("the port is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains(&wide.to_string()), "{refused}");

        let other = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        inherited
            .open(other, &ListenOptions::default())
            .expect("a socket of our own");
        assert_eq!(inherited.unclaimed().collect::<Vec<_>>(), [wide]);
    }
}

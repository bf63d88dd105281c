//! A proxy in front of a database that cuts connections, or freezes one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// A proxy that cuts connections which commit: in turns after the server has committed and before its
/// answer, and before the server learns of it.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Cuts that are still to be made.
    pub(crate) left: Arc<AtomicU32>,
    /// The next connection that locks a row sends nothing more; it is reset by then.
    #[allow(dead_code, reason = "followers are only cut")]
    pub(crate) freezes: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn new(server: u16, cuts: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let left = Arc::new(AtomicU32::new(cuts));
        let freezes = Arc::<AtomicBool>::default();
        let (counted, frozen) = (left.clone(), freezes.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                Self::join(&client, &server, &counted, &frozen);
            }
        });
        Self {
            port,
            left,
            freezes,
        }
    }

    fn join(
        client: &TcpStream,
        server: &TcpStream,
        left: &Arc<AtomicU32>,
        freezes: &Arc<AtomicBool>,
    ) {
        let swallows = Arc::new(AtomicBool::new(false));
        let ends = || {
            let one = client.try_clone().expect("a socket");
            (one, server.try_clone().expect("a socket"))
        };
        let ((mut from, mut to), left, cut) = (ends(), left.clone(), swallows.clone());
        let freezes = freezes.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let part = &buffer[..count];
                if part.windows(6).any(|word| word == b"COMMIT") && left.load(Ordering::Acquire) > 0
                {
                    let number = left.fetch_sub(1, Ordering::AcqRel);
                    if number % 2 == 0 {
                        break;
                    }
                    cut.store(true, Ordering::Release);
                }
                if to.write_all(part).is_err() {
                    break;
                }
                let locks = part.windows(10).any(|word| word == b"FOR UPDATE");
                if locks && freezes.swap(false, Ordering::AcqRel) {
                    // Both ends stay open.
                    loop {
                        thread::park();
                    }
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
        let (mut to, mut from) = ends();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let is_cut = swallows.load(Ordering::Acquire);
                if is_cut || to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

//! Free ports on 127.0.0.1 for programs that must be told a number.
//!
//! Stock Salt cannot listen on port 0 and say what it got. The numbers come from below the range
//! from which the kernel takes ports of outgoing connections, so none is taken in between by one
//! of the many clients; each is handed out once per process.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that nothing listened on a moment ago.
///
/// # Panics
/// When all of them are taken.
pub fn free_port() -> u16 {
    // Two test processes at once begin far apart.
    let start = std::process::id().wrapping_mul(101) % COUNT;
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + offset) % COUNT;
        let port = u16::try_from(port).expect("the range lies below 65536");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

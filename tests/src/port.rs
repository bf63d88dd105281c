//! Allocates free ports on 127.0.0.1 for programs that cannot bind port 0.
//!
//! Stock Salt cannot listen on port 0 and say what it got. The numbers come from below the range
//! from which the kernel takes ports of outgoing connections, so none is taken in between by one
//! of the many clients. A port belongs to the test process that took it until that process ends: it
//! holds a lock on a file of that name, because each test may run in a process of its own.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::fs::FlockOperation;

const FIRST: u32 = 12_000;
/// From 24505 on the demo takes its ports (packaging/demo.sh), without a lock.
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The locks of the ports that this process took; they go with the process.
static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port that nothing listens on and that no other test takes while this process lives.
///
/// # Panics
/// When all of them are taken, or no lock can be made in the temporary directory.
pub fn free_port() -> u16 {
    // Two test processes at once begin far apart.
    let start = std::process::id().wrapping_mul(7919) % COUNT;
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + offset) % COUNT;
        let port = u16::try_from(port).expect("the range lies below 65536");
        if let Some(lock) = lock(port)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            TAKEN.lock().push(lock);
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

/// The lock of a port, unless another process has it.
fn lock(port: u16) -> Option<File> {
    let directory = directory();
    std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
    let path = directory.join(port.to_string());
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(path);
    let file = file.expect("the temporary directory can be written");
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

fn directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("saltern-test-ports-{user}"))
}

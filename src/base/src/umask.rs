//! The umask of programs that this process runs for others.
//!
//! The master keeps other users out of its own files by an umask of its own. What the modules and
//! programs of a site write is the site's: they get the umask that they have under a stock master.

use std::sync::OnceLock;

/// Bits that stock's master sets when it becomes a daemon (`daemonize` in `salt/utils/process.py`).
const STOCK: u32 = 0o022;

static INHERITED: OnceLock<u32> = OnceLock::new();

/// Remembers the umask with which this process was started, before it takes another one. The first
/// call counts.
pub fn remember_inherited(bits: u32) {
    let _ = INHERITED.set(bits);
}

/// The umask for programs that are run for others: that of whoever started this process, and at
/// least stock's. `None` where this process has not changed its own.
pub fn of_children() -> Option<u32> {
    INHERITED.get().map(|inherited| inherited | STOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_get_stocks_umask_or_a_stricter_one_of_who_started_the_master() {
        assert_eq!(of_children(), None);
        remember_inherited(0o077);
        remember_inherited(0);
        assert_eq!(of_children(), Some(0o077));
    }
}

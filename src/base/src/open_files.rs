//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// Raises the soft limit of open files to `wanted`, as far as the system lets it: root raises the
/// hard limit too. Never lowers a limit.
pub fn raise(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    // "None" is unlimited.
    let Some(soft) = limit.current.filter(|soft| *soft < wanted) else {
        return;
    };
    let set = |current: u64, maximum: Option<u64>| {
        let current = Some(current);
        setrlimit(Resource::Nofile, Rlimit { current, maximum })
    };
    let Some(hard) = limit.maximum else {
        let _ = set(wanted, None);
        return;
    };
    if geteuid().is_root() && set(wanted, Some(hard.max(wanted))).is_ok() {
        return;
    }
    let _ = set(wanted.min(hard).max(soft), Some(hard));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_raised_within_hard_limit_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.maximum.unwrap_or(4096).min(1024) / 2;
        let current = Some(lower);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        raise(lower + 7);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(lower + 7));
        raise(lower);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, Some(lower + 7));
        assert_eq!(after.maximum, before.maximum);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}

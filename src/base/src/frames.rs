//! The frames of a stack: as addresses where a panic is logged, as names on request, in a
//! process of its own (`saltern debug frames`).
//!
//! Names come from the debug information of the program's file, which is read whole and never given
//! back: more than a hundred mebibytes for a release build. A master that lives for months must not
//! pay that for its first panic. Addresses count from where the program was loaded, so they mean the
//! same in every process of one build, and to `addr2line -e`.

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::ops::Range;

/// The most frames that are taken.
pub(crate) const MAX_FRAMES: usize = 64;

/// Addresses of a stack, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames {
    addresses: Vec<usize>,
    program: Range<usize>,
}

impl Frames {
    /// The innermost `most` frames of the calling thread.
    #[must_use]
    #[inline(never)]
    pub fn of_this_thread(most: usize) -> Self {
        let mut addresses = Vec::with_capacity(most);
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as usize);
            addresses.len() < most
        });
        Self {
            addresses,
            program: program(),
        }
    }
}

impl fmt::Display for Frames {
    /// `+0x1a2b` for an address in the program, `0x7f…` for one in a library.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            match self.program.contains(address) {
                true => write!(f, "{space}+{:#x}", address - self.program.start)?,
                false => write!(f, "{space}{address:#x}")?,
            }
        }
        Ok(())
    }
}

/// The names and places of the functions at an address of this program, `+0x1a2b` as [`Frames`]
/// prints it; the inlined ones first. Empty without debug information.
///
/// Reads the program's debug information: only for processes that end soon.
///
/// # Errors
/// When the text is no such address.
pub fn names(address: &str) -> Result<Vec<String>, BadAddress> {
    let program = program();
    let bad = || BadAddress(address.to_owned());
    let digits = address.strip_prefix("+0x").ok_or_else(bad)?;
    let offset = usize::from_str_radix(digits, 16).map_err(|_| bad())?;
    let at = program.start.checked_add(offset);
    let at = at.filter(|at| program.contains(at)).ok_or_else(bad)?;
    let mut names = Vec::new();
    backtrace::resolve(at as *mut c_void, |symbol| {
        let name = symbol.name();
        let name = name.map_or_else(|| "?".to_owned(), |name| format!("{name:#}"));
        names.push(match (symbol.filename(), symbol.lineno()) {
            (Some(file), Some(line)) => format!("{name} at {}:{line}", file.display()),
            _ => name,
        });
    });
    Ok(names)
}

/// Error: the text is not an address of this program.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is no address in this program; one looks like +0x1a2b")]
pub struct BadAddress(String);

/// The address range of this program in memory; empty where the system does not report it.
fn program() -> Range<usize> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let path = fs::read_link("/proc/self/exe").unwrap_or_default();
    mapped(&maps, &path.to_string_lossy())
}

/// From the first to the last address that `maps` (proc_pid_maps(5)) has for a file.
fn mapped(maps: &str, path: &str) -> Range<usize> {
    let parts = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        // Mode, offset, device and inode, then spaces and the path.
        let name = rest.splitn(5, ' ').nth(4)?.trim_start();
        let (from, to) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (name == path).then_some((number(from)?, number(to)?))
    });
    let whole = parts.reduce(|(from, to), (lower, upper)| (from.min(lower), to.max(upper)));
    whole.map_or(0..0, |(from, to)| from..to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_the_mappings() {
        let maps = "\
            55d0c0de0000-55d0c0df0000 r--p 00000000 fd:01 42                         /opt/a b/saltern\n\
            55d0c0df0000-55d0c0e00000 r-xp 00010000 fd:01 42                         /opt/a b/saltern\n\
            55d0c0e10000-55d0c0e20000 rw-p 00000000 00:00 0                          [heap]\n\
            7f0000000000-7f0000001000 r-xp 00000000 fd:01 43                         /lib/libc.so.6\n\
            nonsense\n";
        assert_eq!(
            mapped(maps, "/opt/a b/saltern"),
            0x55d0_c0de_0000..0x55d0_c0e0_0000
        );
        assert_eq!(mapped(maps, "/opt/other"), 0..0);
    }

    #[test]
    fn frames_are_addresses_that_another_process_can_name() {
        let frames = Frames::of_this_thread(MAX_FRAMES);
        let text = frames.to_string();
        let own: Vec<_> = text
            .split(' ')
            .filter(|word| word.starts_with('+'))
            .collect();
        assert!(!own.is_empty(), "{text}");
        let names: Vec<String> = own.iter().flat_map(|word| names(word).unwrap()).collect();
        let is_here = names
            .iter()
            .any(|name| name.contains("frames_are_addresses"));
        assert!(is_here, "{names:?}");
    }

    #[test]
    fn no_more_frames_than_asked_for_are_taken() {
        assert_eq!(Frames::of_this_thread(2).to_string().split(' ').count(), 2);
    }

    #[test]
    fn address_outside_the_program_is_an_error() {
        for text in [
            "",
            "0x10",
            "+0x",
            "+0xffffffffffffffff",
            "+0x7fffffffffff",
            "+10",
        ] {
            assert!(names(text).is_err(), "{text:?}");
        }
    }
}

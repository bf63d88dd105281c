//! Exit codes of the process: one for each kind of failure, so that a unit file or a script can
//! distinguish them. The numbers are those of BSD's `sysexits.h` where one fits.

use std::process::{ExitCode, Termination};

/// The exit codes of the `saltern` binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Asked to stop, or the command succeeded.
    Ok = 0,
    /// The command ran, and what it found or did was a failure; `saltern check-config`: there are
    /// warnings and no error.
    Failure = 1,
    /// As stock `salt`: no return, no match, or not authorised.
    NoReturn = 2,
    /// The command line or the configuration is wrong (`EX_USAGE`).
    Usage = 64,
    /// A file's content is damaged or not what it should be (`EX_DATAERR`).
    Data = 65,
    /// A file that must be there cannot be read (`EX_NOINPUT`).
    NoInput = 66,
    /// A port or socket is taken, or the master does not answer (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// A supervised part failed more often than its budget allows (`EX_SOFTWARE`).
    GaveUp = 70,
    /// A file or directory cannot be created (`EX_CANTCREAT`).
    CannotCreate = 73,
    /// Reading or writing failed, a full disk included (`EX_IOERR`).
    Io = 74,
    /// Not permitted: wrong owner, mode or user (`EX_NOPERM`).
    NoPermission = 77,
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

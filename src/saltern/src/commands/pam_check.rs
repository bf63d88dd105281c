//! `saltern pam-check`: makes one log-in by PAM. The master starts it for each log-in by `pam`, so
//! that no module of PAM runs in the master itself.

use saltern_base::exit::Exit;

/// Reads the request from standard input and writes the answer to standard output.
pub(crate) fn run() -> Exit {
    match saltern_policy::eauth::answer_check() {
        Ok(()) => Exit::Ok,
        Err(_) => Exit::Failure,
    }
}

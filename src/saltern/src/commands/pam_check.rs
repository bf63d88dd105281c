//! `saltern pam-check`: asks PAM one question. The master starts it for each log-in by `pam`, so that
//! no module of PAM runs in the master itself.

use saltern_base::exit::Exit;

/// Reads the question from standard input and says the answer.
pub(crate) fn run() -> Exit {
    match saltern_policy::eauth::answer_check() {
        Ok(()) => Exit::Ok,
        Err(_) => Exit::Failure,
    }
}

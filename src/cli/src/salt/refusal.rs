//! Stock's texts on standard output for a job that is not published, by cause.

use saltern_client::{ClientError, WRONG_KEY};

/// Stock's sentence.
pub(super) fn sentence(error: &ClientError) -> String {
    match error {
        ClientError::NotRunning(_) | ClientError::NoTransport => {
            "The salt master could not be contacted. Is master running?".to_owned()
        }
        // What a master that was killed leaves behind looks like one that does not answer.
        ClientError::EventSocket { .. }
        | ClientError::Connect { .. }
        | ClientError::AnswerLost { .. }
        | ClientError::Timeout(_) => {
            "Salt request timed out. The master is not responding. You may need to run your command \
             with `--async` in order to bypass the congested event bus. With `--async`, the CLI tool \
             will print the job id (jid) and exit immediately without listening for responses. You \
             can then use `salt-run jobs.lookup_jid` to look up the results of the job in the job \
             cache later."
                .to_owned()
        }
        ClientError::Authentication { message, .. } if message == WRONG_KEY => {
            "Failed to authenticate! This is most likely because this user is not permitted to \
             execute commands, but there is a small possibility that a disk error occurred (check \
             disk/inode usage)."
                .to_owned()
        }
        ClientError::Authentication { message, .. }
        | ClientError::Authorization { message, .. }
        | ClientError::Publish(message) => message.clone(),
        other => saltern_base::chain(other),
    }
}

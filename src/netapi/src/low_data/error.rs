//! Why a command has no answer, and what errors of the master's replies mean.

use saltern_client::ClientError;
use saltern_requests::LOGINS_FULL;
use saltern_wire::msgpack::Value;

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The sender is not proved, or may not do this.
    #[error("{0}")]
    Refused(String),
    /// The user of a token may not do this.
    #[error("{0}")]
    TokenRefused(String),
    /// The command is malformed.
    #[error("{0}")]
    Malformed(String),
    /// No room for it now.
    #[error("{0}")]
    Busy(String),
    /// No answer in time; the job goes on.
    #[error("the call takes longer than its timeout")]
    Timeout,
    /// This master does not do that.
    #[error("{0}")]
    Unsupported(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// Stock's error for a command that names no function.
pub(super) fn without_function(client: &str) -> CallError {
    CallError::Malformed(format!("{client} takes at least 1 argument (0 given)"))
}

pub(super) fn malformed(text: &str) -> CallError {
    CallError::Malformed(text.to_owned())
}

/// The master's named error.
pub(super) fn named(error: &Value) -> CallError {
    let part = |name| error.get(name).and_then(Value::as_str);
    let message = part("message").or(error.as_str()).unwrap_or_default();
    by_name(part("name").unwrap_or_default(), message)
}

fn by_name(name: &str, message: &str) -> CallError {
    let message = message.to_owned();
    match name {
        _ if message == LOGINS_FULL => CallError::Busy(message),
        "AuthenticationError"
        | "AuthorizationError"
        | "EauthAuthenticationError"
        | "UserAuthenticationError" => CallError::Refused(message),
        "TokenAuthenticationError" => CallError::TokenRefused(message),
        "SaltInvocationError" => CallError::Malformed(message),
        _ => CallError::Failed(message),
    }
}

pub(super) fn refusal(error: ClientError) -> CallError {
    match error {
        ClientError::Authentication { message, .. } => by_name("AuthenticationError", &message),
        ClientError::Authorization { message, .. } => by_name("AuthorizationError", &message),
        ClientError::Refused { name, message } => by_name(&name, &message),
        ClientError::Timeout(_) => CallError::Timeout,
        ClientError::Overloaded => CallError::Busy(error.to_string()),
        other => CallError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_kind() {
        let cases = [
            (
                "TokenAuthenticationError",
                "no",
                CallError::TokenRefused("no".to_owned()),
            ),
            (
                "EauthAuthenticationError",
                LOGINS_FULL,
                CallError::Busy(LOGINS_FULL.to_owned()),
            ),
            (
                "SaltInvocationError",
                "no",
                CallError::Malformed("no".to_owned()),
            ),
            ("SaltClientError", "no", CallError::Failed("no".to_owned())),
        ];
        for (name, message, expected) in cases {
            assert_eq!(by_name(name, message), expected);
        }
    }
}

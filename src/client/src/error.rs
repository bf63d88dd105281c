//! Errors of a client. The texts are for a person at a terminal.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Reason in [`ClientError::Authentication`] for a key that the master refuses without a text.
pub const WRONG_KEY: &str = "the key is not the one this master gave to this user";

/// A failure of the local client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The master's sockets are not there.
    #[error("the master is not running: \"{0}\" does not exist")]
    NotRunning(PathBuf),
    /// The event socket exists but nothing listens on it, or this user may not open it.
    #[error("the master's event socket \"{path}\" cannot be opened{}", advice(.source))]
    EventSocket {
        /// The socket.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The master closed the event socket while a job was followed.
    #[error("the master closed the event socket: it was stopped or killed")]
    EventsEnded,
    /// The master closed the event socket while one of its functions was awaited.
    #[error(
        "the master closed the event socket: it was stopped or killed; if the function was done, its \
         return is there when the master is back: saltern run jobs.lookup_jid {0}"
    )]
    CallLost(String),
    /// A frame on the event socket is no event.
    #[error("the event socket sent something that is no event: {0}")]
    BadEvent(String),
    /// No port has a transport of this client.
    #[error(
        "the master listens with TLS only, which this command line does not speak; \
         use stock's, or let it also listen by zeromq (saltern_also_listen)"
    )]
    NoTransport,
    /// The request port does not answer.
    #[error("the master does not accept connections on {address}")]
    Connect {
        /// The request port.
        address: std::net::SocketAddr,
        /// The error of the transport.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The request was sent, and its connection ended without a reply.
    #[error(
        "the master closed the connection to {address} before it answered: it was stopped or killed, \
         and what was asked may be done or under way"
    )]
    AnswerLost {
        /// The request port.
        address: std::net::SocketAddr,
        /// The error of the transport.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No reply in time.
    #[error("the master did not answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The reply could not be read.
    #[error("the master's reply cannot be read: {0}")]
    BadReply(String),
    /// No key for this user.
    #[error("no key of this user can be read at \"{path}\"; run as the master's user or root")]
    NoKey {
        /// The key file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The master did not accept the key.
    #[error("the master refused the key of user \"{user}\": {message}")]
    Authentication {
        /// The user that asked.
        user: String,
        /// The master's words.
        message: String,
    },
    /// The user may not do this.
    #[error("user \"{user}\" is not permitted to do this: {message}")]
    Authorization {
        /// The user that asked.
        user: String,
        /// The master's words.
        message: String,
    },
    /// No minion matches the target; nothing was sent.
    #[error("No minions matched the target. No command was sent, no jid was assigned.")]
    NoMinions,
    /// The master does not run a function.
    #[error("the master did not run the function: {0}")]
    Run(String),
    /// The master refuses to run a function, with a named error.
    #[error("the master did not run the function: {message}")]
    Refused {
        /// The error's name, one of stock's exceptions.
        name: String,
        /// The master's words.
        message: String,
    },
    /// The master has no room for the request, or lost it; it may be sent again.
    #[error("the master is too busy to handle the request; try again later")]
    Overloaded,
    /// The master refused the job for another reason.
    #[error("the master did not publish the job: {0}")]
    Publish(String),
}

/// Advice on a socket that cannot be opened.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as the master's user or root)",
        _ => "",
    }
}

impl ClientError {
    /// The exit code of stock `salt` for this failure: 2, for nothing was returned.
    #[must_use]
    pub const fn exit(&self) -> saltern_base::exit::Exit {
        saltern_base::exit::Exit::NoReturn
    }
}

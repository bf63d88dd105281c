//! Link of a client to its master: the master's port and sockets, or, in the master's own process,
//! no socket at all.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::blocking;
use saltern_model::Jid;
use saltern_model::control::{Account, SOCKET};
use saltern_wire::client::{ClientError as Broken, ReqClient};

use crate::control::{self, ControlError};
use crate::{ClientConfig, ClientError, EventListener};

/// The socket by whose existence stock's clients recognize a running master.
const PUBLISH_SOCKET: &str = "publish_pull.ipc";

/// Connection of a client to a master.
pub trait MasterLink: Send + Sync + 'static {
    /// Whether a master is there at all.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`].
    fn check(&self) -> Result<(), ClientError>;

    /// Sends one packed request; gives the packed reply.
    fn request(&self, payload: Bytes) -> BoxFuture<'_, Result<Bytes, ClientError>>;

    /// Subscribes to events.
    fn listen(&self) -> BoxFuture<'_, Result<EventListener, ClientError>>;

    /// Whether the master is one of ours, whose tracker reports what becomes of jobs.
    fn has_tracker(&self) -> bool;

    /// Account of an open job; `None` when it is not open.
    fn account(&self, jid: Jid) -> BoxFuture<'_, Result<Option<Account>, ControlError>>;
}

/// The link over the request port and the sockets in `sock_dir`.
pub(crate) struct SocketLink {
    config: ClientConfig,
}

impl SocketLink {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self { config }
    }
}

impl MasterLink for SocketLink {
    fn check(&self) -> Result<(), ClientError> {
        let probe = self.config.sock_dir.join(PUBLISH_SOCKET);
        match probe.exists() {
            true => Ok(()),
            false => Err(ClientError::NotRunning(probe)),
        }
    }

    fn request(&self, payload: Bytes) -> BoxFuture<'_, Result<Bytes, ClientError>> {
        Box::pin(async move {
            let route = self.config.master().ok_or(ClientError::NoTransport)?;
            let address = route.to;
            let connected = ReqClient::connect(route).await;
            let mut client = connected.map_err(|error| ClientError::Connect {
                address,
                source: error.into(),
            })?;
            client.request(payload).await.map_err(|error| match error {
                Broken::Io { .. } | Broken::Closed(_) => ClientError::AnswerLost {
                    address,
                    source: error.into(),
                },
                // Not a master, or one that does not take the request.
                other => ClientError::Connect {
                    address,
                    source: other.into(),
                },
            })
        })
    }

    fn listen(&self) -> BoxFuture<'_, Result<EventListener, ClientError>> {
        Box::pin(EventListener::connect(&self.config.sock_dir))
    }

    fn has_tracker(&self) -> bool {
        match UnixStream::connect(self.config.sock_dir.join(SOCKET)) {
            Ok(_) => true,
            // It is there, for other users.
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        }
    }

    fn account(&self, jid: Jid) -> BoxFuture<'_, Result<Option<Account>, ControlError>> {
        let sock_dir = self.config.sock_dir.clone();
        Box::pin(async move {
            let asked = blocking::run(move || control::account(&sock_dir, &jid));
            asked.await.unwrap_or(Err(ControlError::Busy))
        })
    }
}

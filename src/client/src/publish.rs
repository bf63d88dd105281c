//! Sends a job to the master, as `salt.client.LocalClient.pub` does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saltern_wire::msgpack::{self, Dialect, Limits, Value, as_map, pack};
use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use crate::job::Job;
use crate::link::SocketLink;
use crate::{BatchWishes, ClientConfig, ClientError, MasterLink, RunnerRequest, WRONG_KEY, user};

/// How long the master may take to say who is connected.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Function, arguments and target of a job.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// The target: a text, or an array of ids for the type `list`.
    pub tgt: Value,
    /// The target's type, by its name on the wire.
    pub tgt_type: String,
    /// The function, or an array of functions.
    pub fun: Value,
    /// The arguments; those with a name stand last, as a map with `__kwarg__: true`.
    pub arg: Vec<Value>,
    /// Returners, separated by commas; normally empty.
    pub ret: String,
    /// Further settings that the master and the minions read, as `metadata`.
    pub kwargs: Vec<(String, Value)>,
    /// The wait before asking which minions still run the job; the configured one when absent.
    pub timeout: Option<Duration>,
    /// Options of a batch that the master drives.
    pub batch: Option<BatchWishes>,
    /// The job's id; the master chooses when it is empty.
    pub jid: String,
}

impl PublishRequest {
    /// A job for a target of the given type.
    #[must_use]
    pub fn new(tgt: Value, tgt_type: &str, fun: &str, arg: Vec<Value>) -> Self {
        Self {
            tgt,
            tgt_type: tgt_type.to_owned(),
            fun: Value::from(fun),
            arg,
            ret: String::new(),
            kwargs: Vec::new(),
            timeout: None,
            batch: None,
            jid: String::new(),
        }
    }
}

/// The master's answer to an accepted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The job's id.
    pub jid: String,
    /// The minions that the target matched.
    pub minions: Vec<String>,
    /// Ids that were named but that the master does not know.
    pub missing: Vec<String>,
    /// Of a batch: minions that are not connected, and so are left out.
    pub down: Vec<String>,
    /// These are all that can return, as a master of ours knows whose syndics have sent it their
    /// inventories; `false` where masters below may name others.
    pub expects_all: bool,
}

/// A client on the master's machine.
pub struct LocalClient {
    config: ClientConfig,
    link: Arc<dyn MasterLink>,
    user: String,
    /// Of external authentication; else the key of the user counts.
    credentials: Option<Credentials>,
}

/// Credentials in a load. Has no `Debug`: it holds a password or a token.
#[derive(Clone, Serialize)]
#[serde(untagged)]
pub enum Credentials {
    /// Name and password, for a backend of `external_auth`.
    Password {
        /// The backend.
        eauth: String,
        /// The name.
        username: String,
        /// The password.
        #[serde(serialize_with = "revealed")]
        password: Zeroizing<String>,
    },
    /// The entries that a client of ours gave, whatever its backend takes.
    Given(#[serde(serialize_with = "as_map::serialize")] Vec<(Value, Value)>),
    /// A token that the master made.
    Token {
        /// The token.
        #[serde(serialize_with = "revealed")]
        token: Zeroizing<String>,
    },
}

fn revealed<S: Serializer>(secret: &Zeroizing<String>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(secret)
}

/// A cleartext request: a load in its envelope.
#[derive(Serialize)]
struct Envelope<'a, T> {
    enc: &'static str,
    load: &'a T,
    version: u8,
}

/// The load of a job, or of a batch.
#[derive(Serialize)]
struct PublishLoad<'a> {
    cmd: &'static str,
    tgt: &'a Value,
    fun: &'a Value,
    arg: &'a [Value],
    key: &'a str,
    tgt_type: &'a str,
    ret: &'a str,
    /// The jid; chosen by the master if empty.
    jid: &'a str,
    #[serde(skip_serializing_if = "Kwargs::is_empty")]
    kwargs: Kwargs<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<&'a BatchWishes>,
    user: &'a str,
    /// How long a master above others waits for them, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
}

/// Further settings of a job, with the credentials of a log-in.
#[derive(Serialize)]
struct Kwargs<'a> {
    #[serde(flatten, serialize_with = "as_map::serialize")]
    settings: &'a [(String, Value)],
    #[serde(flatten)]
    credentials: Option<&'a Credentials>,
}

impl Kwargs<'_> {
    const fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.credentials.is_none()
    }
}

/// A load with what proves its sender.
#[derive(Serialize)]
struct SignedLoad<'a, T> {
    #[serde(flatten)]
    load: &'a T,
    #[serde(flatten)]
    sender: Sender<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Sender<'a> {
    LoggedIn(&'a Credentials),
    Key { user: &'a str, key: &'a str },
}

impl LocalClient {
    /// A client for the calling user. Nothing is opened yet.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            link: Arc::new(SocketLink::new(config.clone())),
            config,
            user: user::publishing_user(),
            credentials: None,
        }
    }

    /// A client of a master that is reached by `link`, for somebody who logs in.
    #[must_use]
    pub fn linked(
        config: ClientConfig,
        link: Arc<dyn MasterLink>,
        credentials: Credentials,
    ) -> Self {
        Self {
            user: config.user.clone(),
            config,
            link,
            credentials: Some(credentials),
        }
    }

    /// A client in the process of the master itself, reached by `link`, as the user that the master
    /// runs as.
    #[must_use]
    pub fn inside(config: ClientConfig, link: Arc<dyn MasterLink>) -> Self {
        Self {
            user: config.user.clone(),
            config,
            link,
            credentials: None,
        }
    }

    pub(crate) fn link(&self) -> &dyn MasterLink {
        &*self.link
    }

    /// The same for somebody who logs in: these entries count in place of the user and its key.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self {
            credentials: Some(credentials),
            ..self
        }
    }

    /// The configuration of this client.
    #[must_use]
    pub const fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Publishes and follows: the subscription stands before the job leaves, so that no return
    /// is missed.
    pub async fn run(&self, request: &PublishRequest) -> Result<Job<'_>, ClientError> {
        let mut events = self.link.listen().await?;
        let published = self.publish(request).await?;
        events.only(&published.jid);
        Ok(Job::new(
            self,
            events,
            published,
            request.timeout.unwrap_or(self.config.timeout),
        ))
    }

    /// Whether this user has a key of the master.
    #[must_use]
    pub fn has_key(&self) -> bool {
        user::read_key(&self.config, &self.user).is_ok()
    }

    /// Whether the master is one of ours, whose tracker says on the event socket what becomes of jobs.
    #[must_use]
    pub fn has_tracker(&self) -> bool {
        self.link.has_tracker()
    }

    /// The accepted minions without a connection, as the master sees it (`manage.not_present`).
    ///
    /// # Errors
    /// When the master does not answer in time, or the user may not ask.
    pub async fn not_present(&self) -> Result<HashSet<String>, ClientError> {
        let request = RunnerRequest {
            fun: "manage.not_present".to_owned(),
            arg: Vec::new(),
            kwarg: Vec::new(),
            timeout: Some(PRESENCE_TIMEOUT),
        };
        let returned = self.call(&request).await?;
        Ok(strings(Some(&returned.value)).into_iter().collect())
    }

    /// Publishes without waiting for anything but the master's answer (`salt --async`).
    pub async fn publish(&self, request: &PublishRequest) -> Result<Published, ClientError> {
        self.link.check()?;
        if self.credentials.is_some() {
            let reply = self.send(request, &Zeroizing::default()).await?;
            return self.understand(&reply);
        }
        let mut key = user::read_key(&self.config, &self.user)?;
        let mut reply = self.send(request, &key).await?;
        if is_empty(&reply) {
            // A restarted master of the 3006 line has a new key; try once more with it.
            let again = user::read_key(&self.config, &self.user)?;
            if *again != *key {
                key = again;
                reply = self.send(request, &key).await?;
            }
        }
        self.understand(&reply)
    }

    async fn send(
        &self,
        request: &PublishRequest,
        key: &Zeroizing<String>,
    ) -> Result<Value, ClientError> {
        self.clear_request(&self.load(request, key)).await
    }

    /// Sends a cleartext request, with the user and its key, or the credentials of a log-in.
    pub(crate) async fn ask(&self, load: &impl Serialize) -> Result<Value, ClientError> {
        self.link.check()?;
        let key;
        let sender = match &self.credentials {
            Some(credentials) => Sender::LoggedIn(credentials),
            None => {
                key = user::read_key(&self.config, &self.user)?;
                Sender::Key {
                    user: &self.user,
                    key: &key,
                }
            }
        };
        self.clear_request(&SignedLoad { load, sender }).await
    }

    /// Sends a cleartext request as it is: the load has its command and credentials.
    ///
    /// # Errors
    /// The master is not reached, or its reply cannot be read.
    pub async fn clear_request(&self, load: &impl Serialize) -> Result<Value, ClientError> {
        let envelope = Envelope {
            enc: "clear",
            load,
            version: 3,
        };
        self.exchange(pack(&envelope, Dialect::Raw).into()).await
    }

    async fn exchange(&self, payload: Bytes) -> Result<Value, ClientError> {
        let limit = self.config.publish_timeout;
        let reply = tokio::time::timeout(limit, self.link.request(payload))
            .await
            .map_err(|_| ClientError::Timeout(limit))??;
        msgpack::decode_wire(&reply, &Limits::WIRE)
            .map_err(|error| ClientError::BadReply(error.to_string()))
    }

    fn load<'a>(&'a self, request: &'a PublishRequest, key: &'a str) -> PublishLoad<'a> {
        // Of its own, because another master would publish to everybody at once.
        let command = match request.batch {
            Some(_) => "saltern_batch",
            None => "publish",
        };
        let wait = request.timeout.unwrap_or(self.config.timeout).as_secs();
        PublishLoad {
            cmd: command,
            tgt: &request.tgt,
            fun: &request.fun,
            arg: &request.arg,
            key,
            tgt_type: &request.tgt_type,
            ret: &request.ret,
            jid: &request.jid,
            kwargs: Kwargs {
                settings: &request.kwargs,
                credentials: self.credentials.as_ref(),
            },
            batch: request.batch.as_ref(),
            user: &self.user,
            to: self.config.order_masters.then_some(wait),
        }
    }

    /// Reads the reply in the forms that protocol.md, section 8, lists.
    fn understand(&self, reply: &Value) -> Result<Published, ClientError> {
        if let Some(text) = reply.as_str() {
            return Err(if text.is_empty() {
                self.unauthenticated(WRONG_KEY)
            } else {
                ClientError::Publish(text.to_owned())
            });
        }
        if is_empty(reply) {
            return Err(ClientError::Publish("its reply is empty".to_owned()));
        }
        if let Some(error) = reply.get("error") {
            return Err(self.refusal(error));
        }
        let load = reply.get("load").filter(|load| load.as_map().is_some());
        let load = load.ok_or_else(|| ClientError::BadReply("it has no load".to_owned()))?;
        let jid = load.get("jid").and_then(Value::as_str);
        let minions = strings(load.get("minions"));
        if minions.is_empty() && !self.config.order_masters {
            return Err(ClientError::NoMinions);
        }
        let jid = jid.ok_or_else(|| ClientError::BadReply("it has no jid".to_owned()))?;
        Ok(Published {
            jid: jid.to_owned(),
            minions,
            missing: strings(load.get("missing")),
            down: strings(load.get("down")),
            expects_all: load.get("saltern_expects_all").and_then(Value::as_bool) == Some(true),
        })
    }

    fn refusal(&self, error: &Value) -> ClientError {
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        match (error.as_str(), text("name")) {
            (Some(message), _) => ClientError::Publish(message.to_owned()),
            (None, "AuthenticationError") => self.unauthenticated(text("message")),
            (None, "AuthorizationError") => ClientError::Authorization {
                user: self.user.clone(),
                message: text("message").to_owned(),
            },
            (None, _) => ClientError::Publish(text("message").to_owned()),
        }
    }

    pub(crate) fn unauthenticated(&self, message: &str) -> ClientError {
        ClientError::Authentication {
            user: self.user.clone(),
            message: message.to_owned(),
        }
    }
}

/// Values that Python takes as false: `""`, `{}`, `[]`, `None`.
fn is_empty(reply: &Value) -> bool {
    reply.is_nil()
        || reply.as_bool() == Some(false)
        || reply.as_str().is_some_and(str::is_empty)
        || reply.as_map().is_some_and(|map| map.is_empty())
        || reply.as_array().is_some_and(|items| items.is_empty())
}

/// The texts of an array.
pub(crate) fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::PathBuf;

    use saltern_wire::port::Transport;

    use super::*;

    fn client() -> LocalClient {
        LocalClient::new(ClientConfig {
            sock_dir: PathBuf::from("/nowhere"),
            cachedir: PathBuf::from("/nowhere"),
            interface: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            request_port: Some((Transport::ZeroMq, 4506)),
            user: "root".to_owned(),
            timeout: Duration::from_secs(5),
            gather_job_timeout: Duration::from_secs(10),
            publish_timeout: Duration::from_secs(30),
            order_masters: false,
            syndic_wait: Duration::from_secs(5),
        })
    }

    #[test]
    fn refusals_of_a_publish_are_different_errors() {
        let named = |name: &str| {
            let error = [("name", Value::from(name)), ("message", Value::from("no"))];
            Value::map([("error", Value::map(error))])
        };
        let nobody = [("jid", Value::Nil), ("minions", Value::from(Vec::new()))];
        let nobody = Value::map([("enc", Value::from("clear")), ("load", Value::map(nobody))]);
        let cases = [
            (Value::from(""), "the master refused the key"),
            (
                Value::from("bad load"),
                "the master did not publish the job: bad load",
            ),
            (Value::Map(Vec::new()), "its reply is empty"),
            (
                Value::map([("error", Value::from("full"))]),
                "did not publish the job: full",
            ),
            (named("AuthenticationError"), "the master refused the key"),
            (
                named("AuthorizationError"),
                "is not permitted to do this: no",
            ),
            (named("Other"), "the master did not publish the job: no"),
            (nobody, "No minions matched the target."),
            (Value::from(vec![Value::Nil]), "it has no load"),
        ];
        for (reply, expected) in cases {
            let error = client().understand(&reply).expect_err(expected).to_string();
            assert!(error.contains(expected), "{reply:?} gave {error:?}");
        }
    }

    #[test]
    fn accepted_job_has_its_minions() {
        let load = Value::map([
            ("jid", Value::from("20261121070622637714")),
            ("minions", Value::from(vec![Value::from("m1")])),
            ("missing", Value::from(vec![Value::from("ghost")])),
        ]);
        let reply = Value::map([("enc", Value::from("clear")), ("load", load)]);
        let published = client().understand(&reply).expect("it is accepted");
        assert_eq!(published.jid, "20261121070622637714");
        assert_eq!(
            (published.minions, published.missing),
            (vec!["m1".into()], vec!["ghost".into()])
        );
    }

    #[test]
    fn masters_below_are_waited_for_unless_all_minions_are_known() {
        let mut config = client().config().clone();
        let wait = |config: &ClientConfig, said: Option<bool>| {
            let load = Value::map([
                ("jid", Value::from("20261121070622637714")),
                ("minions", Value::from(vec![Value::from("m1")])),
                ("saltern_expects_all", said.map_or(Value::Nil, Value::from)),
            ]);
            let reply = Value::map([("load", load)]);
            let published = client().understand(&reply).expect("it is accepted");
            crate::job::wait_for_syndics(&published, config)
        };
        assert_eq!(wait(&config, None), None, "there are none");
        config.order_masters = true;
        assert_eq!(wait(&config, None), Some(config.syndic_wait));
        assert_eq!(wait(&config, Some(false)), Some(config.syndic_wait));
        assert_eq!(wait(&config, Some(true)), None);
    }

    #[test]
    fn wildcard_interface_means_this_machine() {
        let route = client().config().master().map(|route| route.to.to_string());
        assert_eq!(route.as_deref(), Some("127.0.0.1:4506"));
    }
}

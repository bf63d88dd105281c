//! One command of low data: checked, made into a load, and followed to its answer
//! (`NetapiClient.run` in `salt/netapi/__init__.py`, and the clients behind it).

mod chunk;
mod error;
mod jobs;
mod ssh;

use std::net::SocketAddr;
use std::sync::Arc;

use saltern_client::{Credentials, LocalClient, RunnerRequest};
use saltern_requests::typed_arguments;
use saltern_wire::msgpack::Value;
use saltern_wire::port::InsideListener;

pub(crate) use chunk::Chunk;
use chunk::is_named;
pub(crate) use error::CallError;
use error::{malformed, named, refusal, without_function};

use crate::api::Api;
use crate::master::{InsideLink, Sender};

/// The names of stock's clients, sorted as its welcome page has them.
pub(crate) const CLIENTS: [&str; 10] = [
    "destroy",
    "local",
    "local_async",
    "local_batch",
    "local_subset",
    "runner",
    "runner_async",
    "ssh",
    "wheel",
    "wheel_async",
];

/// The answer of a command.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// Its values: one, but of a batch one for each minion.
    pub(crate) values: Vec<Value>,
    /// The id of its job or call.
    pub(crate) jid: Option<String>,
}

impl Answered {
    fn one(value: Value) -> Self {
        Self {
            values: vec![value],
            jid: None,
        }
    }

    fn of_job(self, jid: &str) -> Self {
        Self {
            jid: Some(jid.to_owned()),
            ..self
        }
    }
}

/// The calls of one client of the API.
pub(crate) struct Calls<'a> {
    api: &'a Api,
    from: SocketAddr,
    listener: InsideListener,
    /// Whether a job's answer has the minions that did not return.
    shows_silent: bool,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(api: &'a Api, from: SocketAddr) -> Self {
        Self {
            api,
            from,
            listener: InsideListener::Api,
            shows_silent: true,
        }
    }

    /// The same for a client of the console.
    pub(crate) fn of_console(self) -> Self {
        Self {
            listener: InsideListener::Console,
            ..self
        }
    }

    /// The same whose answers leave out minions that did not return.
    pub(crate) fn without_silent(self) -> Self {
        Self {
            shows_silent: false,
            ..self
        }
    }

    /// Checks a command as stock does before it asks the master.
    ///
    /// # Errors
    /// Unknown and disabled clients, no credentials.
    fn check(&self, chunk: &Chunk) -> Result<(), CallError> {
        let shown = chunk.get("client").map(|client| match client {
            Value::Str(text) => text.clone(),
            other => saltern_python::repr(other),
        });
        let shown = shown.unwrap_or_else(|| "None".to_owned());
        let client = chunk.text("client").unwrap_or_default();
        if !CLIENTS.contains(&client) {
            return Err(CallError::Malformed(format!(
                "Invalid client specified: '{shown}'"
            )));
        }
        let enabled = &self.api.options().enabled_clients;
        if !enabled.iter().any(|enabled| enabled == client) {
            return Err(CallError::Malformed(format!(
                "Client disabled: '{client}'. Add to 'netapi_enable_clients' master config option \
                 to enable."
            )));
        }
        if chunk.get("token").is_none() && chunk.get("eauth").is_none() {
            let text = "No authentication credentials given";
            return Err(CallError::Refused(text.to_owned()));
        }
        let shell = chunk.get("raw_shell").is_some_and(Value::is_truthy);
        if shell && !self.api.options().allow_raw_shell {
            return Err(CallError::Refused(
                "Raw shell option not allowed.".to_owned(),
            ));
        }
        Ok(())
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) async fn run(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        self.check(&chunk)?;
        let client = chunk.take_text("client").unwrap_or_default();
        match client.as_str() {
            "local" => self.local(chunk).await,
            "local_async" => self.local_async(chunk).await,
            "local_subset" => self.local_subset(chunk).await,
            "local_batch" => self.local_batch(chunk).await,
            "runner" => self.runner(chunk).await,
            "runner_async" => self.runner_async(chunk).await,
            "wheel" => self.wheel(chunk).await,
            "wheel_async" => self.wheel_async(chunk),
            "ssh" => ssh::run(self, chunk).await,
            other => Err(CallError::Unsupported(format!(
                "The client '{other}' is not served by this master; stock's salt-api beside it \
                 does (saltern_api: stock)."
            ))),
        }
    }

    /// The client of a sender.
    pub(crate) fn client(&self, credentials: Credentials) -> LocalClient {
        let token = match &credentials {
            Credentials::Given(entries) => {
                let mut entries = entries.iter();
                let token = entries.find(|(name, _)| name.as_str() == Some("token"));
                token.and_then(|(_, token)| token.as_str())
            }
            _ => None,
        };
        let is_proved = self.is_proved(token);
        self.linked(credentials, is_proved)
    }

    /// The client that sends the commands of a chunk as they are.
    fn client_of(&self, chunk: &Chunk) -> LocalClient {
        let is_proved = self.is_proved(chunk.text("token"));
        self.linked(Credentials::Given(Vec::new()), is_proved)
    }

    fn is_proved(&self, token: Option<&str>) -> bool {
        token.is_some_and(|token| self.api.is_proved(token))
    }

    fn linked(&self, credentials: Credentials, is_proved: bool) -> LocalClient {
        let sender = Sender {
            from: self.from,
            listener: self.listener,
            is_proved,
        };
        let link = InsideLink::new(self.api.master().clone(), sender);
        LocalClient::linked(
            self.api.client_config().clone(),
            Arc::new(link),
            credentials,
        )
    }

    async fn runner(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let limit = chunk
            .take_seconds("timeout")
            .unwrap_or(self.api.options().rest_timeout);
        let whole = chunk.take_flag("full_return");
        let (client, mut request) = self.function("runner", chunk)?;
        request.timeout = Some(limit);
        match client.call(&request).await {
            Ok(returned) if whole => {
                let event = [("tag", returned.tag.into()), ("data", returned.data)];
                Ok(Answered::one(Value::map(event)))
            }
            Ok(returned) => Ok(Answered::one(returned.value)),
            Err(error) => Err(refusal(error)),
        }
    }

    async fn runner_async(&self, chunk: Chunk) -> Result<Answered, CallError> {
        let (client, request) = self.function("runner_async", chunk)?;
        let tag = client.call_async(&request).await.map_err(refusal)?;
        let jid = tag.rsplit('/').next().unwrap_or_default().to_owned();
        let begun = [
            ("tag", Value::from(tag.as_str())),
            ("jid", jid.as_str().into()),
        ];
        Ok(Answered::one(Value::map(begun)).of_job(&jid))
    }

    /// The call of a runner's chunk: its arguments stand in `arg` as typed, in `kwarg`, and beside
    /// them under their own names.
    fn function(
        &self,
        name: &str,
        mut chunk: Chunk,
    ) -> Result<(LocalClient, RunnerRequest), CallError> {
        let fun = chunk
            .take_text("fun")
            .ok_or_else(|| without_function(name))?;
        let client = self.client(chunk.take_credentials());
        for name in ["user", "key"] {
            let _ = chunk.take(name);
        }
        chunk.list_arguments();
        let typed = match chunk.take("arg") {
            Some(Value::Array(items)) => typed_arguments(items, &[]),
            _ => Vec::new(),
        };
        let (mut arg, mut kwarg) = (Vec::new(), Vec::new());
        for argument in typed {
            match argument {
                Value::Map(entries) if is_named(&entries) => kwarg.extend(entries),
                other => arg.push(other),
            }
        }
        kwarg.retain(|(name, _)| name.as_str() != Some("__kwarg__"));
        match chunk.take("kwarg") {
            None | Some(Value::Nil) => {}
            Some(Value::Map(entries)) => kwarg.extend(entries),
            Some(_) => return Err(malformed("'kwarg' is no mapping")),
        }
        kwarg.extend(chunk.0);
        let Value::Map(kwarg) = Value::from_iter(kwarg) else {
            return Err(malformed("'kwarg' is no mapping"));
        };
        let request = RunnerRequest {
            fun,
            arg,
            kwarg,
            timeout: None,
        };
        Ok((client, request))
    }

    async fn wheel(&self, chunk: Chunk) -> Result<Answered, CallError> {
        let client = self.client_of(&chunk);
        wheel(client, chunk).await.map(Answered::one)
    }

    /// Begins a wheel function under a jid of its own, and does not wait.
    fn wheel_async(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let jid = self.api.mint();
        let tag = format!("salt/wheel/{jid}");
        chunk.set("__jid__", jid.as_str());
        chunk.set("__tag__", tag.as_str());
        let client = self.client_of(&chunk);
        tokio::spawn(async move {
            if let Err(error) = wheel(client, chunk).await {
                tracing::warn!(%error, "a wheel function was not run");
            }
        });
        let begun = [("tag", Value::from(tag)), ("jid", jid.as_str().into())];
        Ok(Answered::one(Value::map(begun)).of_job(jid.as_str()))
    }

    /// Logs a user in: the record of the new token; `None` for a refusal.
    ///
    /// # Errors
    /// When no log-in can be tried now.
    pub(crate) async fn log_in(&self, mut load: Chunk) -> Result<Option<Value>, CallError> {
        load.set("cmd", "mk_token");
        let client = self.client_of(&load);
        let reply = client
            .clear_request(&load.into_value())
            .await
            .map_err(refusal)?;
        if let Some(error) = reply.get("error") {
            return match named(error) {
                CallError::Refused(_) | CallError::TokenRefused(_) => Ok(None),
                other => Err(other),
            };
        }
        Ok(reply.get("token").is_some().then_some(reply))
    }
}

async fn wheel(client: LocalClient, mut chunk: Chunk) -> Result<Value, CallError> {
    if chunk.text("fun").is_none() {
        return Err(without_function("wheel"));
    }
    chunk.set("cmd", "wheel");
    let reply = client
        .clear_request(&chunk.into_value())
        .await
        .map_err(refusal)?;
    match reply.get("error") {
        Some(error) => Err(named(error)),
        None => Ok(reply),
    }
}

//! One command of low data: checked, made into a load, and followed to its answer
//! (`NetapiClient.run` in `salt/netapi/__init__.py`, and the clients behind it).

mod ssh;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use saltern_client::{
    BatchNews, BatchWishes, ClientError, Credentials, LocalClient, MinionOutcome, PublishRequest,
    Published, RunnerRequest,
};
use saltern_model::Jid;
use saltern_requests::{LOGINS_FULL, typed_arguments, without_nodegroups};
use saltern_wire::msgpack::Value;
use saltern_wire::port::InsideListener;

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

/// The entries that prove a sender.
const CREDENTIALS: [&str; 4] = ["eauth", "password", "token", "username"];

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

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chunk(Vec<(Value, Value)>);

impl Chunk {
    /// A command, if the value is a map.
    pub(crate) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Map(entries) => Some(Self(entries)),
            _ => None,
        }
    }

    /// A command of these entries.
    pub(crate) fn new<const N: usize>(entries: [(&str, &str); N]) -> Self {
        let entries = entries.map(|(name, value)| (name.into(), value.into()));
        Self(entries.into())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let mut entries = self.0.iter().rev();
        entries
            .find(|(key, _)| key.as_str() == Some(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        match self
            .0
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(name))
        {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let mut taken = None;
        self.0.retain_mut(|(key, value)| {
            let is_it = key.as_str() == Some(name);
            if is_it {
                taken = Some(std::mem::take(value));
            }
            !is_it
        });
        taken
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Map(self.0)
    }

    /// Makes `arg` a list.
    pub(crate) fn list_arguments(&mut self) {
        if let Some(arg) = self.take("arg") {
            let arg = match arg {
                list @ Value::Array(_) => list,
                other => Value::Array(vec![other]),
            };
            self.set("arg", arg);
        }
    }

    /// Whether its token, if it has one, is a number of base 16, as Python's `int` reads it.
    pub(crate) fn has_usable_token(&self) -> bool {
        self.get("token").is_none_or(|token| {
            let digits = token.as_str().map(str::trim).unwrap_or_default();
            let digits = digits.strip_prefix("0x").unwrap_or(digits);
            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
    }

    /// Takes the entries that prove its sender.
    fn take_credentials(&mut self) -> Credentials {
        let entries = CREDENTIALS.iter();
        let entries = entries.filter_map(|name| Some(((*name).into(), self.take(name)?)));
        Credentials::Given(entries.collect())
    }

    fn take_text(&mut self, name: &str) -> Option<String> {
        self.take(name).and_then(|value| match value {
            Value::Str(text) => Some(text),
            _ => None,
        })
    }

    /// Takes a number of seconds, which may be a text.
    fn take_seconds(&mut self, name: &str) -> Option<Duration> {
        let value = self.take(name)?;
        let seconds = match &value {
            Value::Str(text) => text.trim().parse().ok(),
            other => other.as_f64(),
        };
        seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
    }

    fn take_flag(&mut self, name: &str) -> bool {
        self.take(name).is_some_and(|value| value.is_truthy())
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

    async fn local(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let whole = chunk.take_flag("full_return");
        let (client, request) = self.publication(chunk)?;
        self.follow(&client, &request, whole).await
    }

    async fn follow(
        &self,
        client: &LocalClient,
        request: &PublishRequest,
        whole: bool,
    ) -> Result<Answered, CallError> {
        let mut job = match client.run(request).await {
            Ok(job) => job,
            Err(ClientError::NoMinions) => return Ok(Answered::one(Value::Map(Vec::new()))),
            Err(error) => return Err(refusal(error)),
        };
        let jid = job.jid().to_owned();
        let mut returns = Vec::new();
        while let Some(outcome) = job.next().await.map_err(refusal)? {
            if !self.shows_silent && matches!(outcome, MinionOutcome::NoResponse { .. }) {
                continue;
            }
            let (id, value) = shown(outcome, &jid, whole);
            returns.push((id.into(), value));
        }
        Ok(Answered::one(Value::from_iter(returns)).of_job(&jid))
    }

    async fn local_async(&self, chunk: Chunk) -> Result<Answered, CallError> {
        let (client, request) = self.publication(chunk)?;
        match client.publish(&request).await {
            Ok(published) => Ok(begun(published)),
            Err(ClientError::NoMinions) => Ok(Answered::one(Value::Map(Vec::new()))),
            Err(error) => Err(refusal(error)),
        }
    }

    /// Asks which minions have the function, and runs it on some of these.
    async fn local_subset(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let subset = chunk.take("sub").or_else(|| chunk.take("subset"));
        let _ = chunk.take("subset");
        let subset = match &subset {
            None => Some(3),
            Some(Value::Str(text)) => text.trim().parse().ok(),
            Some(other) => other.as_u64(),
        };
        let subset = subset.and_then(|subset| usize::try_from(subset).ok());
        let subset = subset.ok_or_else(|| malformed("'subset' is no number"))?;
        let whole = chunk.take_flag("full_return");
        for name in ["cli", "progress"] {
            let _ = chunk.take(name);
        }
        let mut question = chunk.clone();
        for name in ["arg", "kwarg", "ret"] {
            let _ = question.take(name);
        }
        question.set("fun", "sys.list_functions");
        let (client, request) = self.publication(question)?;
        let known = self.follow(&client, &request, false).await?;
        let known = known.values.into_iter().next().unwrap_or_default();
        let fun = Value::from(chunk.text("fun").unwrap_or_default());
        let has_it = |functions: &Value| match functions {
            Value::Array(functions) => functions.contains(&fun),
            Value::Map(functions) => functions.iter().any(|(name, _)| *name == fun),
            _ => false,
        };
        let minions = known.as_map().unwrap_or_default().iter();
        let minions = minions.filter(|(_, functions)| has_it(functions));
        let mut minions: Vec<Value> = minions.map(|(id, _)| id.clone()).collect();
        shuffle(&mut minions);
        minions.truncate(subset);
        chunk.set("tgt", Value::Array(minions));
        chunk.set("tgt_type", "list");
        let (client, request) = self.publication(chunk)?;
        self.follow(&client, &request, whole).await
    }

    /// A batch that the master drives.
    async fn local_batch(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let size = match chunk.take("batch") {
            None => "10%".to_owned(),
            Some(Value::Str(text)) => text,
            Some(other) => saltern_python::repr(&other),
        };
        let wishes = BatchWishes {
            size: Some(size),
            failhard: chunk.take_flag("failhard"),
            wait: chunk
                .take_seconds("batch_wait")
                .map(|wait| wait.as_secs_f64()),
            ..BatchWishes::default()
        };
        let whole = chunk.take_flag("raw");
        let (client, mut request) = self.publication(chunk)?;
        request.batch = Some(wishes);
        let (published, mut batch) = match client.run_batch(&request).await {
            Ok(begun) => begun,
            Err(ClientError::NoMinions) => return Ok(Answered::default()),
            // Such as a size that is none.
            Err(ClientError::Publish(text)) => return Err(CallError::Malformed(text)),
            Err(error) => return Err(refusal(error)),
        };
        let mut answered = Answered::default().of_job(&published.jid);
        let mut returned = BTreeSet::new();
        loop {
            match batch.next().await.map_err(refusal)? {
                BatchNews::Returned(minion) if returned.insert(minion.id.clone()) => {
                    let outcome = MinionOutcome::Returned(minion);
                    let (id, value) = shown(outcome, &published.jid, whole);
                    answered.values.push(Value::map([(id, value)]));
                }
                BatchNews::Over(_) | BatchNews::Missed(_) => return Ok(answered),
                BatchNews::Part(_) | BatchNews::Returned(_) => {}
            }
        }
    }

    /// The request to publish of a chunk of the local clients, and the client that sends it.
    fn publication(&self, mut chunk: Chunk) -> Result<(LocalClient, PublishRequest), CallError> {
        let tgt = chunk
            .take("tgt")
            .ok_or_else(|| malformed("'tgt' is missing"))?;
        let fun = chunk
            .take("fun")
            .ok_or_else(|| malformed("'fun' is missing"))?;
        if !is_function(&fun) {
            return Err(malformed("'fun' is no function"));
        }
        let tgt_type = chunk
            .take_text("tgt_type")
            .unwrap_or_else(|| "glob".to_owned());
        let (tgt, tgt_type) = self.without_nodegroups(tgt, tgt_type)?;
        let mut request = PublishRequest::new(tgt, &tgt_type, "", arguments(&mut chunk)?);
        request.fun = fun;
        request.ret = chunk.take_text("ret").unwrap_or_default();
        request.jid = chunk.take_text("jid").unwrap_or_default();
        // It becomes the name of files.
        if !request.jid.is_empty() && Jid::parse(&request.jid).is_err() {
            return Err(malformed("'jid' is no id of a job"));
        }
        request.timeout = chunk.take_seconds("timeout");
        let client = self.client(chunk.take_credentials());
        let others = chunk.0.into_iter().filter_map(|(name, value)| match name {
            Value::Str(name) => Some((name, value)),
            _ => None,
        });
        request.kwargs = others.collect();
        Ok((client, request))
    }

    /// Nodegroups are the client's business: they are written out before a job is published.
    fn without_nodegroups(
        &self,
        tgt: Value,
        tgt_type: String,
    ) -> Result<(Value, String), CallError> {
        let words: Vec<String> = match (tgt_type.as_str(), &tgt) {
            ("nodegroup", Value::Str(name)) => vec![format!("N@{name}")],
            ("compound", Value::Str(text)) if text.contains("N@") => {
                text.split_whitespace().map(str::to_owned).collect()
            }
            _ => return Ok((tgt, tgt_type)),
        };
        let words = without_nodegroups(self.api.config(), &words);
        let words = words.map_err(|error| CallError::Malformed(error.to_string()))?;
        Ok((words.join(" ").into(), "compound".to_owned()))
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

/// Stock's error for a command that names no function.
fn without_function(client: &str) -> CallError {
    CallError::Malformed(format!("{client} takes at least 1 argument (0 given)"))
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

fn is_named(entries: &[(Value, Value)]) -> bool {
    let mut entries = entries.iter();
    entries.any(|(name, mark)| name.as_str() == Some("__kwarg__") && mark.as_bool() == Some(true))
}

/// The arguments of a job: `arg`, then `kwarg` as a map with a mark. Numbers that are jids are texts.
fn arguments(chunk: &mut Chunk) -> Result<Vec<Value>, CallError> {
    chunk.list_arguments();
    let mut arguments = match chunk.take("arg") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for argument in &mut arguments {
        if let Value::Int(_) | Value::Uint(_) = argument {
            let digits = saltern_python::repr(&*argument);
            if digits.len() == 20 && Jid::parse(&digits).is_ok() {
                *argument = digits.into();
            }
        }
    }
    match chunk.take("kwarg") {
        Some(Value::Map(entries)) if !entries.is_empty() => {
            let mut named = vec![(Value::from("__kwarg__"), true.into())];
            named.extend(entries);
            arguments.push(Value::Map(named));
        }
        None | Some(Value::Nil | Value::Map(_)) => {}
        Some(_) => return Err(malformed("'kwarg' is no mapping")),
    }
    Ok(arguments)
}

fn begun(published: Published) -> Answered {
    let minions = published.minions.into_iter().map(Value::from);
    let begun = [
        ("jid", Value::from(published.jid.as_str())),
        ("minions", Value::Array(minions.collect())),
    ];
    Answered::one(Value::map(begun)).of_job(&published.jid)
}

/// A minion's answer; in whole, with its return code and outputter, or the value alone.
fn shown(outcome: MinionOutcome, jid: &str, whole: bool) -> (String, Value) {
    match outcome {
        MinionOutcome::Returned(returned) if whole => {
            let mut data = vec![("ret", returned.value)];
            data.extend(returned.out.map(|out| ("out", out.into())));
            data.push(("retcode", returned.retcode.into()));
            data.push(("jid", jid.into()));
            (returned.id, Value::map(data))
        }
        MinionOutcome::Returned(returned) => (returned.id, returned.value),
        MinionOutcome::NoResponse { id, absence } => {
            let text = match absence {
                Some(absence) if !absence.is_connected => {
                    "Minion did not return. [Not connected]".to_owned()
                }
                _ => format!(
                    "Minion did not return. [No response]\nThe minions may not have all finished \
                     running and any remaining minions will return upon completion. To look up \
                     the return data for this job later, run the following command:\n\nsalt-run \
                     jobs.lookup_jid {jid}"
                ),
            };
            let value = match whole {
                false => text.into(),
                true => Value::map([
                    ("out", Value::from("no_return")),
                    ("ret", text.into()),
                    ("retcode", 1_i64.into()),
                ]),
            };
            (id, value)
        }
    }
}

/// Whether it names a function, or several.
fn is_function(fun: &Value) -> bool {
    match fun {
        Value::Str(_) => true,
        Value::Array(names) => names.iter().all(|name| name.as_str().is_some()),
        _ => false,
    }
}

fn malformed(text: &str) -> CallError {
    CallError::Malformed(text.to_owned())
}

/// The master's named error.
fn named(error: &Value) -> CallError {
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

fn refusal(error: ClientError) -> CallError {
    match error {
        ClientError::Authentication { message, .. } => by_name("AuthenticationError", &message),
        ClientError::Authorization { message, .. } => by_name("AuthorizationError", &message),
        ClientError::Refused { name, message } => by_name(&name, &message),
        ClientError::Timeout(_) => CallError::Timeout,
        ClientError::Overloaded => CallError::Busy(error.to_string()),
        other => CallError::Failed(other.to_string()),
    }
}

/// Brings them into a random order.
fn shuffle(items: &mut [Value]) {
    for last in (1..items.len()).rev() {
        let mut bytes = [0_u8; 8];
        // Without random bytes the order stays.
        if getrandom::fill(&mut bytes).is_err() {
            return;
        }
        let below = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let chosen = usize::try_from(u64::from_le_bytes(bytes) % below).unwrap_or(last);
        items.swap(last, chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbers_of_base_16() {
        for (token, is_usable) in [("0aF", true), ("0x0a", true), ("", false), ("../x", false)] {
            assert_eq!(
                Chunk::new([("token", token)]).has_usable_token(),
                is_usable,
                "{token}"
            );
        }
        assert!(Chunk::new([]).has_usable_token());
        let number = Chunk(vec![("token".into(), 1_i64.into())]);
        assert!(!number.has_usable_token());
    }

    #[test]
    fn arguments_of_a_job_keep_their_types() {
        let mut chunk = Chunk(vec![
            ("arg".into(), 2_026_112_107_062_263_771_u64.into()),
            ("kwarg".into(), Value::map([("a", 1_i64)])),
        ]);
        let arguments = arguments(&mut chunk).unwrap();
        let named = Value::map([("__kwarg__", Value::from(true)), ("a", 1_i64.into())]);
        // Larger than 64 bits of a signed number: still a jid.
        assert_eq!(arguments.last(), Some(&named));
        assert!(chunk.get("arg").is_none() && chunk.get("kwarg").is_none());
    }

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

//! Handlers of the pages.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use saltern_base::{blocking, chain};
use saltern_config::ApiServer;
use saltern_wire::msgpack::Value;
use zeroize::Zeroizing;

use super::page::Page;
use super::reply::{Answers, Done, Failure, Outcome, returned};
use super::site_file;
use crate::answer::response;
use crate::api::{Api, TOKEN_HEADER, credential};
use crate::low_data::{CLIENTS, Calls, Chunk};
use crate::master::UncheckedToken;
use crate::permissions::permissions;

/// A request as the pages see it.
pub(super) struct Asked<'a> {
    pub(super) api: &'a Arc<Api>,
    pub(super) server: &'a ApiServer,
    pub(super) calls: Calls<'a>,
    pub(super) from: SocketAddr,
    pub(super) headers: HeaderMap,
    /// The token of its session.
    pub(super) token: Option<Zeroizing<String>>,
    /// The value of its body; none of a request that reads, or of an empty body.
    pub(super) body: Option<Value>,
    /// The path behind the page's name, or the parameter of its name.
    pub(super) argument: Option<String>,
}

impl Asked<'_> {
    pub(super) async fn answer(self, page: Page, is_read: bool) -> Result<Outcome, Failure> {
        let done = match (page, is_read) {
            (Page::Index | Page::Logout | Page::Token | Page::Run, true) => welcome(),
            (Page::Index | Page::Jobs, false) => {
                let token = self.token.clone();
                Done::of_calls(self.commands(None, token.as_deref()).await?)
            }
            (Page::Login, true) => please_log_in(),
            (Page::Login, false) => self.log_in().await?,
            (Page::Logout, false) => self.log_out().await?,
            (Page::Token, false) => self.make_tokens().await?,
            (Page::Run, false) => Done::of_calls(self.commands(None, None).await?),
            (Page::Minions, true) => self.minions().await?,
            (Page::Minions, false) => self.begin_jobs().await?,
            (Page::Jobs, true) => self.jobs().await?,
            (Page::Keys, true) => self.keys().await?,
            (Page::Keys, false) => return self.make_keys().await.map(Outcome::Response),
            (Page::Stats, _) => Done::of(Value::Map(Vec::new())),
            (Page::App, _) => {
                return Ok(Outcome::Response(site_file(self.server.app.clone()).await));
            }
        };
        Ok(Outcome::Value(done))
    }

    /// The commands of the body: a list, or one.
    fn low_state(&self) -> Result<Vec<Value>, Failure> {
        match &self.body {
            Some(Value::Array(chunks)) => Ok(chunks.clone()),
            Some(one) if one.as_map().is_some_and(|entries| !entries.is_empty()) => {
                Ok(vec![one.clone()])
            }
            _ => {
                let message = "Lowstates must be a list";
                Err(Failure::new(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    async fn commands(
        &self,
        client: Option<&str>,
        token: Option<&String>,
    ) -> Result<Answers, Failure> {
        let chunks = self.low_state()?;
        let chunks = chunks.into_iter().map(Chunk::of);
        self.run(chunks, client, token).await
    }

    /// Runs commands, one after the other, until one fails.
    async fn run(
        &self,
        chunks: impl Iterator<Item = Option<Chunk>> + Send,
        client: Option<&str>,
        token: Option<&String>,
    ) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        for chunk in chunks {
            let mut chunk = chunk.ok_or_else(Failure::no_mapping)?;
            if let Some(token) = token {
                chunk.set("token", token.as_str());
            }
            if !chunk.has_usable_token() {
                return Err(Failure::new(StatusCode::UNAUTHORIZED, "Invalid token"));
            }
            if let Some(client) = client {
                chunk.set("client", client);
            }
            chunk.list_arguments();
            answers.add(self.calls.run(chunk).await?);
        }
        Ok(answers)
    }

    /// Runs one command with the token of the session.
    async fn one(&self, chunk: Chunk) -> Result<(Value, HeaderMap), Failure> {
        let token = self.token.clone();
        let answers = self
            .run([Some(chunk)].into_iter(), None, token.as_deref())
            .await?;
        Ok(answers.first())
    }

    async fn minions(&self) -> Result<Done, Failure> {
        let tgt = self.argument.as_deref().unwrap_or("*");
        let chunk = Chunk::new([("client", "local"), ("tgt", tgt), ("fun", "grains.items")]);
        let (value, headers) = self.one(chunk).await?;
        Ok(Done {
            headers,
            ..Done::of(returned(Value::Array(vec![value])))
        })
    }

    async fn begin_jobs(&self) -> Result<Done, Failure> {
        let token = self.token.clone();
        let answers = self.commands(Some("local_async"), token.as_deref()).await?;
        let jids = answers.values.iter();
        let jids = jids.filter_map(|job| job.get("jid").and_then(Value::as_str));
        let links = jids.map(|jid| Value::map([("href", format!("/jobs/{jid}"))]));
        let links = Value::map([("jobs", Value::Array(links.collect()))]);
        let value = [("return", Value::Array(answers.values)), ("_links", links)];
        Ok(Done {
            value: Value::map(value),
            status: Some(StatusCode::ACCEPTED),
            headers: answers.jids,
        })
    }

    async fn jobs(&self) -> Result<Done, Failure> {
        let Some(jid) = self.argument.as_deref() else {
            let chunk = Chunk::new([("client", "runner"), ("fun", "jobs.list_jobs")]);
            let (jobs, _) = self.one(chunk).await?;
            return Ok(Done::of(returned(Value::Array(vec![jobs]))));
        };
        let fun = "jobs.list_job";
        let chunk = Chunk::new([("client", "runner"), ("fun", fun), ("jid", jid)]);
        let (job, _) = self.one(chunk).await?;
        let results = job.get("Result").and_then(Value::as_map);
        let results = results.ok_or_else(Failure::unexpected)?.iter();
        let returns: Value = results
            .map(|(id, result)| {
                (
                    id.clone(),
                    result.get("return").cloned().unwrap_or_default(),
                )
            })
            .collect();
        let value = [
            ("info", Value::Array(vec![job])),
            ("return", Value::Array(vec![returns])),
        ];
        Ok(Done::of(Value::map(value)))
    }

    async fn keys(&self) -> Result<Done, Failure> {
        let chunk = match self.argument.as_deref() {
            None => Chunk::new([("client", "wheel"), ("fun", "key.list_all")]),
            Some(id) => Chunk::new([("client", "wheel"), ("fun", "key.finger"), ("match", id)]),
        };
        let (answer, _) = self.one(chunk).await?;
        let value = answer.get("data").and_then(|data| data.get("return"));
        Ok(Done::of(returned(
            value.cloned().unwrap_or(Value::Map(Vec::new())),
        )))
    }

    /// Makes a key pair, accepts its public half, and answers with an archive of both.
    async fn make_keys(&self) -> Result<Response, Failure> {
        let chunk = self.low_state()?.into_iter().next().and_then(Chunk::of);
        let mut chunk = chunk.ok_or_else(Failure::no_mapping)?;
        chunk.set("client", "wheel");
        chunk.set("fun", "key.gen_accept");
        if let Some(id) = chunk.take("mid") {
            chunk.set("id_", id);
        }
        let id = chunk.text("id_").map(str::to_owned);
        let id = id.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "'mid' is missing"))?;
        let answers = self.run([Some(chunk)].into_iter(), None, None).await?;
        let (answer, _) = answers.first();
        let pair = answer.get("data").and_then(|data| data.get("return"));
        let half = |name| {
            let text = pair.and_then(|pair| pair.get(name)).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let files = [("minion.pub", half("pub")), ("minion.pem", half("priv"))];
        let mut response = response(StatusCode::OK, "application/x-tar", archive(&files));
        let headers = response.headers_mut();
        let name = format!("attachment; filename=\"saltkeys-{id}.tar\"");
        if let Ok(name) = HeaderValue::from_str(&name) {
            headers.insert(header::CONTENT_DISPOSITION, name);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(response)
    }

    async fn make_tokens(&self) -> Result<Done, Failure> {
        let mut chunks = Vec::new();
        for chunk in self.low_state()? {
            let mut chunk = Chunk::of(chunk).ok_or_else(Failure::no_mapping)?;
            let names = ["username", "password", "eauth"];
            let kwarg = names.map(|name| Some((Value::from(name), chunk.get(name)?.clone())));
            let kwarg: Option<Vec<_>> = kwarg.into_iter().collect();
            let message = "Require \"username\", \"password\", and \"eauth\" params";
            let kwarg = kwarg.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, message))?;
            chunk.set("client", "runner");
            chunk.set("fun", "auth.mk_token");
            chunk.set("kwarg", Value::Map(kwarg));
            chunks.push(Some(chunk));
        }
        let answers = self.run(chunks.into_iter(), None, None).await?;
        Ok(Done::of(Value::Array(answers.values)))
    }

    async fn log_in(&self) -> Result<Done, Failure> {
        let first = match &self.body {
            Some(Value::Array(chunks)) => chunks.first().cloned(),
            other => other.clone(),
        };
        let load = first.and_then(Chunk::of).ok_or_else(|| {
            let message = "Name, password and eauth are expected";
            Failure::new(StatusCode::BAD_REQUEST, message)
        })?;
        let user = load.text("username").unwrap_or_default();
        if !may_use_api(self.server, user, self.from) {
            return Err(StatusCode::UNAUTHORIZED.into());
        }
        let token = self.calls.log_in(load).await?.ok_or_else(|| {
            let message = "Could not authenticate using provided credentials";
            Failure::new(StatusCode::UNAUTHORIZED, message)
        })?;
        let text = |name: &str| token.get(name).and_then(Value::as_str).unwrap_or_default();
        let expire = token
            .get("expire")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        let (sessions, secret) = (self.api.sessions().clone(), text("token").to_owned());
        let secret = Zeroizing::new(secret);
        let made = blocking::run(move || sessions.create(&secret, expire)).await;
        let session = made.map_err(|_| Failure::unexpected())?.map_err(|error| {
            tracing::error!(%error, "a session of the API cannot be kept");
            let message = "The session cannot be kept; try again later.";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let part = |name: &str| token.get(name).cloned().unwrap_or_default();
        let permissions = permissions(&token, self.api.config());
        let permissions = permissions.filter(|permissions| !permissions.is_empty());
        let nothing = Value::Map(Vec::new());
        let record = Value::map([
            ("token", Value::from(session.as_str())),
            ("expire", part("expire")),
            ("start", part("start")),
            ("user", part("name")),
            ("eauth", part("eauth")),
            ("perms", permissions.map_or(nothing, Value::Array)),
        ]);
        let mut done = Done::of(returned(Value::Array(vec![record])));
        done.header(TOKEN_HEADER, &session);
        let secure = if self.server.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!(
            "session_id={}; Path=/; HttpOnly; SameSite=Strict{secure}",
            session.as_str()
        );
        done.header("set-cookie", &cookie);
        Ok(done)
    }

    async fn log_out(&self) -> Result<Done, Failure> {
        let id = credential(&self.headers).unwrap_or_default();
        let api = Arc::clone(self.api);
        let ended = blocking::run(move || api.log_out(&id)).await;
        let ended = ended.map_err(UncheckedToken::from);
        let mut done = Done::of(returned("Your token has been cleared".into()));
        match ended.and_then(|ended| ended.map_err(UncheckedToken::from)) {
            Ok(()) => {}
            Err(UncheckedToken::Store(error)) if error.is_done_here() => {
                let error = chain(&error);
                tracing::warn!(error, "a token was removed on this master only");
                let message = "Your token has been cleared here; another master may still take it";
                done = Done {
                    status: Some(StatusCode::ACCEPTED),
                    ..Done::of(returned(message.into()))
                };
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "a session of the API was not ended");
                let message =
                    "Your token is still valid: it cannot be cleared now; try again later.";
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message));
            }
        }
        done.header("set-cookie", "session_id=; Path=/; Max-Age=0");
        Ok(done)
    }
}

fn welcome() -> Done {
    let clients = CLIENTS.iter().map(|client| Value::from(*client));
    let value = [
        ("return", Value::from("Welcome")),
        ("clients", Value::Array(clients.collect())),
    ];
    Done::of(Value::map(value))
}

fn please_log_in() -> Done {
    let value = [("status", Value::Nil), ("return", "Please log in".into())];
    let mut done = Done::of(Value::map(value));
    done.header("www-authenticate", "Session");
    done
}

/// Whether a user may log in from this address (`api_acl`).
pub(crate) fn may_use_api(server: &ApiServer, user: &str, from: std::net::SocketAddr) -> bool {
    let Some(users) = &server.api_acl else {
        return true;
    };
    let of = |name: &str| users.iter().find(|(user, _)| user == name);
    let address = from.ip().to_canonical().to_string();
    of(user).or_else(|| of("*")).is_some_and(|(_, addresses)| {
        addresses
            .iter()
            .any(|allowed| allowed == "*" || *allowed == address)
    })
}

/// An archive of texts, as Python's `tarfile` makes it.
pub(super) fn archive(files: &[(&str, String)]) -> Vec<u8> {
    const BLOCK: usize = 512;
    const RECORD: usize = 10_240;
    let mut archive = Vec::new();
    for (name, text) in files {
        let mut head = Vec::with_capacity(BLOCK);
        let field = |head: &mut Vec<u8>, text: &str, length: usize| {
            let end = head.len() + length;
            head.extend(text.bytes().take(length));
            head.resize(end, 0);
        };
        field(&mut head, name, 100);
        field(&mut head, "0000644", 8);
        field(&mut head, "0000000", 8);
        field(&mut head, "0000000", 8);
        field(&mut head, &format!("{:011o}", text.len()), 12);
        field(&mut head, "00000000000", 12);
        let before = head.len();
        field(&mut head, "        ", 8);
        field(&mut head, "0", 1);
        field(&mut head, "", 100);
        field(&mut head, "ustar\x0000", 8);
        field(&mut head, "", 247);
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        let sum = format!("{sum:06o}\0 ");
        for (place, byte) in head.iter_mut().skip(before).zip(sum.bytes()) {
            *place = byte;
        }
        archive.extend(head);
        archive.extend(text.bytes());
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize((archive.len() + 2 * BLOCK).next_multiple_of(RECORD), 0);
    archive
}

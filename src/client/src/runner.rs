//! Calls functions of the master, as `salt.runner.RunnerClient.cmd_sync` does: the master runs
//! one, and its return comes as an event. Where events were lost, or none came for a while, the
//! return is read from the job cache, if that keeps calls (`runner_returns`).

use std::time::Duration;

use saltern_wire::msgpack::{Value, as_map};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use crate::event::SILENCE;
use crate::{ClientError, EventListener, LocalClient};

/// The job cache answers within this, or is asked again later.
const LOOKUP: Duration = Duration::from_secs(30);

/// A function of the master to run.
#[derive(Debug, Clone)]
pub struct RunnerRequest {
    /// The function, such as `jobs.list_jobs`.
    pub fun: String,
    /// The arguments without a name.
    pub arg: Vec<Value>,
    /// Named arguments.
    pub kwarg: Vec<(Value, Value)>,
    /// How long it may take; for ever when absent.
    pub timeout: Option<Duration>,
}

/// The load of the command `runner`.
#[derive(Serialize)]
struct RunnerLoad<'a> {
    cmd: &'static str,
    fun: &'a str,
    kwarg: RunnerArguments<'a>,
}

#[derive(Serialize)]
struct RunnerArguments<'a> {
    arg: &'a [Value],
    #[serde(serialize_with = "as_map::serialize")]
    kwarg: &'a [(Value, Value)],
}

/// Receiver of the events of a call between its begin and its end, by the last part of the tag.
pub type Notify<'a> = dyn FnMut(&str, Value) + Send + 'a;

/// Return of a function of the master.
#[derive(Debug, Clone)]
pub struct RunnerReturn {
    /// The value.
    pub value: Value,
    /// The return code that stock's `salt-run` ends with.
    pub retcode: i64,
    /// Tag of the event of its end.
    pub tag: String,
    /// The data of that event.
    pub data: Value,
}

impl LocalClient {
    /// Runs a function and waits for its end.
    ///
    /// # Errors
    /// When the master cannot be asked, refuses, closes the event socket, or time is up; the
    /// function then goes on.
    pub async fn call(&self, request: &RunnerRequest) -> Result<RunnerReturn, ClientError> {
        self.call_and_notify(request, &mut |_, _| {}).await
    }

    /// The same; `notify` is given each event of the call between its begin and its end, by the last
    /// part of the tag.
    ///
    /// # Errors
    /// As [`LocalClient::call`].
    pub async fn call_and_notify(
        &self,
        request: &RunnerRequest,
        notify: &mut Notify<'_>,
    ) -> Result<RunnerReturn, ClientError> {
        let wait = async {
            let mut begun = self.begin(request).await?;
            loop {
                if let Some(returned) = begun.end(notify).await? {
                    return Ok(returned);
                }
                if let Some(returned) = self.kept(&begun.jid).await? {
                    return Ok(returned);
                }
            }
        };
        match request.timeout {
            None => wait.await,
            Some(limit) => timeout(limit, wait)
                .await
                .map_err(|_| ClientError::Timeout(limit))?,
        }
    }

    /// Return of a call in the job cache; nothing while it runs.
    async fn kept(&self, jid: &str) -> Result<Option<RunnerReturn>, ClientError> {
        let lookup = RunnerRequest {
            fun: "jobs.lookup_jid".to_owned(),
            arg: vec![jid.into()],
            kwarg: Vec::new(),
            timeout: None,
        };
        let found = async { self.begin(&lookup).await?.end(&mut |_, _| {}).await };
        match timeout(LOOKUP, found).await {
            Ok(found) => Ok(found?.and_then(|found| kept_return(&found.value))),
            Err(_) => Ok(None),
        }
    }

    /// Begins a call and does not wait for its end; gives the tag of its events.
    ///
    /// # Errors
    /// When the master cannot be asked, or refuses.
    pub async fn call_async(&self, request: &RunnerRequest) -> Result<String, ClientError> {
        let reply = self.ask_to_run(request).await?;
        let tag = reply.get("tag").and_then(Value::as_str);
        tag.map(str::to_owned).ok_or_else(|| self.not_run(&reply))
    }

    async fn begin(&self, request: &RunnerRequest) -> Result<Begun, ClientError> {
        // Before the master is asked, so that the end is not missed.
        let mut events = self.link().listen().await?;
        let reply = self.ask_to_run(request).await?;
        let text = |name| reply.get(name).and_then(Value::as_str);
        let Some(tag) = text("tag") else {
            return Err(self.not_run(&reply));
        };
        let jid = text("jid").unwrap_or_default().to_owned();
        events.only(&jid);
        Ok(Begun {
            events,
            jid,
            tag: format!("{tag}/"),
        })
    }

    async fn ask_to_run(&self, request: &RunnerRequest) -> Result<Value, ClientError> {
        let load = RunnerLoad {
            cmd: "runner",
            fun: &request.fun,
            kwarg: RunnerArguments {
                arg: &request.arg,
                kwarg: &request.kwarg,
            },
        };
        self.ask(&load).await
    }

    /// The error in a reply that should name a call.
    pub(crate) fn not_run(&self, reply: &Value) -> ClientError {
        let error = reply.get("error");
        let part = |name| error?.get(name).and_then(Value::as_str);
        match (part("name"), part("message").or(reply.as_str())) {
            (Some("UserAuthenticationError"), Some(message)) => self.unauthenticated(message),
            (Some(name), Some(message)) => ClientError::Refused {
                name: name.to_owned(),
                message: message.to_owned(),
            },
            (None, Some(message)) => ClientError::Run(message.to_owned()),
            _ => ClientError::BadReply("it has no tag".to_owned()),
        }
    }
}

/// A call that the master has taken.
struct Begun {
    events: EventListener,
    jid: String,
    /// Prefix of the tags of its events.
    tag: String,
}

impl Begun {
    /// Waits for the end; nothing when it may have been missed.
    async fn end(&mut self, notify: &mut Notify<'_>) -> Result<Option<RunnerReturn>, ClientError> {
        let silence = Instant::now() + SILENCE;
        while let Ok(event) = timeout_at(silence, self.events.next()).await {
            let event = event?.ok_or_else(|| ClientError::CallLost(self.jid.clone()))?;
            if event.is_gap() {
                break;
            }
            match event.tag.strip_prefix(&self.tag) {
                Some("ret") => {
                    let mut returned = returned(&event.value()?)?;
                    returned.tag = event.tag;
                    return Ok(Some(returned));
                }
                None => {}
                Some(suffix) => notify(suffix, event.value()?),
            }
        }
        Ok(None)
    }
}

/// The return in what `jobs.lookup_jid` gives for a call: that of the one minion, the master.
fn kept_return(found: &Value) -> Option<RunnerReturn> {
    let (_, data) = found.as_map()?.first()?;
    returned(data).ok()
}

fn returned(data: &Value) -> Result<RunnerReturn, ClientError> {
    let value = data.get("return").cloned();
    let value = value.ok_or_else(|| ClientError::BadEvent("it has no return".to_owned()))?;
    // As `salt-run` finds its exit code: the call's own, that of the value, that of its data.
    let inner = [Some(data), Some(&value), value.get("data")];
    let codes = inner.into_iter().flatten();
    let retcode = codes
        .filter_map(|place| place.get("retcode"))
        .find_map(Value::as_i64);
    Ok(RunnerReturn {
        retcode: retcode.unwrap_or(0),
        value,
        tag: String::new(),
        data: data.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::testing::Bus;

    #[tokio::test(start_paused = true)]
    async fn missed_runner_return_is_not_awaited() {
        let (mut bus, events) = Bus::with_listener();
        let mut begun = Begun {
            events,
            jid: "1".to_owned(),
            tag: "salt/run/1/".to_owned(),
        };
        let data = Value::map([("return", true)]);
        bus.fire("saltern/bus/gap", &data).await;
        let mut reported = Vec::new();
        let mut report = |suffix: &str, _: Value| reported.push(suffix.to_owned());
        assert!(begun.end(&mut report).await.expect("it goes on").is_none());
        // Time passes by itself while nobody has anything to do.
        assert!(begun.end(&mut report).await.expect("it goes on").is_none());
        bus.fire("salt/run/2/ret", &data).await;
        bus.fire("salt/run/1/new", &data).await;
        bus.fire("salt/run/1/progress", &data).await;
        bus.fire("salt/run/1/ret", &data).await;
        let end = begun.end(&mut report).await;
        let end = end.expect("it goes on").expect("the end");
        assert_eq!(reported, ["new", "progress"]);
        assert_eq!(end.value, true.into());
    }

    #[test]
    fn stored_runner_return_is_read_like_its_event() {
        let data = Value::map([("return", Value::from("x")), ("retcode", 3_i64.into())]);
        let kept = kept_return(&Value::map([("master", data)])).expect("it is over");
        assert_eq!((kept.value.as_str(), kept.retcode), (Some("x"), 3));
        assert!(kept_return(&Value::Map(Vec::new())).is_none());
        assert!(kept_return(&"no such job".into()).is_none());
    }

    #[test]
    fn runner_return_code_is_where_stock_expects_it() {
        let of = |value: Value, code: Option<i64>| {
            let mut data = vec![(Value::from("return"), value)];
            data.extend(code.map(|code| ("retcode".into(), code.into())));
            returned(&Value::Map(data)).expect("a return").retcode
        };
        let inner = Value::map([("retcode", 3_i64)]);
        assert_eq!(of(Value::Nil, None), 0);
        assert_eq!(of(Value::Nil, Some(1)), 1);
        assert_eq!(of(inner.clone(), None), 3);
        assert_eq!(of(inner.clone(), Some(2)), 2);
        assert_eq!(of(Value::map([("data", inner)]), None), 3);
        assert!(returned(&Value::Map(Vec::new())).is_err());
    }
}

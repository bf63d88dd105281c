//! Calls functions of the master, as `salt.runner.RunnerClient.cmd_sync` does: the master is asked
//! to run one, and the event bus says when it is done and what it returned.

use std::time::Duration;

use saltern_wire::msgpack::Value;

use crate::{ClientError, EventListener, LocalClient};

/// A function of the master to run.
#[derive(Debug, Clone)]
pub struct RunnerRequest {
    /// The function, such as `jobs.list_jobs`.
    pub fun: String,
    /// The arguments without a name.
    pub arg: Vec<Value>,
    /// Those with one.
    pub kwarg: Vec<(Value, Value)>,
    /// How long it may take; for ever when absent.
    pub timeout: Option<Duration>,
}

/// What a function of the master returned.
#[derive(Debug, Clone)]
pub struct RunnerReturn {
    /// The value.
    pub value: Value,
    /// The return code that stock's `salt-run` ends with.
    pub retcode: i64,
}

impl LocalClient {
    /// Runs a function and waits for its end.
    ///
    /// # Errors
    /// When the master cannot be asked, refuses, closes the event socket, or time is up; the
    /// function then goes on.
    pub async fn call(&self, request: &RunnerRequest) -> Result<RunnerReturn, ClientError> {
        // Before the master is asked, so that the end is not missed.
        let mut events = EventListener::connect(&self.config().sock_dir).await?;
        let load = [
            ("cmd", Value::from("runner")),
            ("fun", request.fun.as_str().into()),
            (
                "kwarg",
                Value::map([
                    ("arg", Value::Array(request.arg.clone())),
                    ("kwarg", Value::Map(request.kwarg.clone())),
                ]),
            ),
        ];
        let reply = self.ask(&load).await?;
        let Some(tag) = reply.get("tag").and_then(Value::as_str) else {
            return Err(self.not_run(&reply));
        };
        let end = format!("{tag}/ret");
        let wait = async {
            while let Some(event) = events.next().await? {
                if event.tag == end {
                    return returned(&event.value()?);
                }
            }
            Err(ClientError::EventsEnded)
        };
        match request.timeout {
            None => wait.await,
            Some(limit) => tokio::time::timeout(limit, wait)
                .await
                .map_err(|_| ClientError::Timeout(limit))?,
        }
    }

    fn not_run(&self, reply: &Value) -> ClientError {
        let error = reply.get("error");
        let part = |name| error?.get(name).and_then(Value::as_str);
        match (part("name"), part("message").or(reply.as_str())) {
            (Some("UserAuthenticationError"), Some(message)) => self.unauthenticated(message),
            (_, Some(message)) => ClientError::Run(message.to_owned()),
            _ => ClientError::BadReply("it has no tag".to_owned()),
        }
    }
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_code_is_where_stock_looks_for_it() {
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

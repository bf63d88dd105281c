//! The client `ssh`: functions on machines without a minion, by the salt-ssh of the site's own Salt.
//!
//! A command becomes a call of stock's runner `ssh.cmd`, which the Python bridge runs. So the rules
//! for runners hold for it, and the roster is the master's.

use saltern_config::PythonBridge;
use saltern_wire::msgpack::Value;

use super::chunk::{CREDENTIALS, Chunk};
use super::error::{CallError, malformed, refusal};
use super::{Answered, Calls};

/// Runs a function by the salt-ssh of the site's own Salt: by stock's runner for it, under the
/// rules for runners.
pub(super) async fn run(calls: &Calls<'_>, chunk: Chunk) -> Result<Answered, CallError> {
    let call = of_ssh(chunk)?;
    if calls.api.config().python_bridge.python == PythonBridge::Off {
        let text = "The client 'ssh' needs the Python of a Salt installation (python_bridge).";
        return Err(CallError::Unsupported(text.to_owned()));
    }
    let (client, mut request) = calls.function("runner", call)?;
    request.timeout = Some(calls.api.options().rest_timeout);
    let returned = client.call(&request).await.map_err(refusal)?;
    match returned.data.get("success").and_then(Value::as_bool) {
        Some(false) => Err(CallError::Failed(saltern_python::repr(&returned.value))),
        _ => Ok(Answered::one(returned.value)),
    }
}

/// The runner's call that a command of the client `ssh` becomes.
fn of_ssh(mut chunk: Chunk) -> Result<Chunk, CallError> {
    let mut call = Chunk::new([("fun", "ssh.cmd")]);
    for name in CREDENTIALS {
        if let Some(value) = chunk.take(name) {
            call.set(name, value);
        }
    }
    let mut named = Vec::new();
    for name in ["tgt", "fun"] {
        let value = chunk.take(name);
        let value = value.ok_or_else(|| malformed(&format!("'{name}' is missing")))?;
        named.push((Value::from(name), value));
    }
    chunk.list_arguments();
    for name in ["arg", "timeout", "tgt_type", "kwarg"] {
        named.extend(chunk.take(name).map(|value| (name.into(), value)));
    }
    // Others choose a key file or another roster of the master's machine.
    if let Some((name, _)) = chunk.0.first() {
        let name = name.as_str().unwrap_or_default();
        return Err(malformed(&format!(
            "'{name}' is not taken by the client 'ssh'"
        )));
    }
    call.set("kwarg", Value::Map(named));
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(entries: &[(&str, &str)]) -> Chunk {
        let entries = entries.iter();
        Chunk(
            entries
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        )
    }

    #[test]
    fn command_of_ssh_becomes_a_call_of_its_runner() {
        let low = [
            ("token", "ab"),
            ("tgt", "web*"),
            ("fun", "test.ping"),
            ("arg", "x"),
            ("tgt_type", "glob"),
        ];
        let call = of_ssh(chunk(&low)).unwrap();
        assert_eq!(
            (call.text("fun"), call.text("token")),
            (Some("ssh.cmd"), Some("ab"))
        );
        let named = Value::map([
            ("tgt", Value::from("web*")),
            ("fun", "test.ping".into()),
            ("arg", Value::Array(vec!["x".into()])),
            ("tgt_type", "glob".into()),
        ]);
        assert_eq!(call.get("kwarg"), Some(&named));
        for (entries, expected) in [
            (&[("fun", "test.ping")][..], "'tgt' is missing"),
            (&[("tgt", "*")], "'fun' is missing"),
            (
                &[("tgt", "*"), ("fun", "f"), ("roster_file", "/etc/x")],
                "'roster_file' is not taken by the client 'ssh'",
            ),
        ] {
            assert_eq!(
                of_ssh(chunk(entries)),
                Err(malformed(expected)),
                "{entries:?}"
            );
        }
    }
}

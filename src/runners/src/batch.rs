//! `batch.*`: the state of batches that are not over, and how to stop one (`salt/runners/batch.py`
//! of 3008); `pause` and `resume` are our own.
//!
//! For batches that the master drives, the database answers ([`stored`]); for those that a command
//! line drives, the state files that stock's own runner reads, too. This module does not change a
//! batch itself: it asks the batch's driver, which answers when the change is durable.

mod stored;

use saltern_model::Jid;
use saltern_store::BatchFiles;
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "list_active",
        parameters: &[],
        run: list_active,
    },
    Function {
        name: "pause",
        parameters: &[Needed("jid")],
        run: pause,
    },
    Function {
        name: "resume",
        parameters: &[Needed("jid")],
        run: resume,
    },
    Function {
        name: "status",
        parameters: &[Needed("jid")],
        run: status,
    },
    Function {
        name: "stop",
        parameters: &[Needed("jid"), Optional("kill")],
        run: stop,
    },
];

/// What the driver of a batch is asked to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCommand {
    /// Send no further minion its part, until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// End it; with `kill`, also the minions' processes that run it.
    Stop {
        /// Whether those are ended.
        kill: bool,
    },
}

/// Asks the driver of a batch; see [`Batches::new`].
type Drive = Box<dyn Fn(&Jid, BatchCommand) -> Option<bool> + Send + Sync>;

/// The batches of a master.
pub struct Batches {
    files: BatchFiles,
    drive: Drive,
}

impl Batches {
    /// Batches of the database, and those whose states lie in `files`. `drive` asks the driver of a
    /// batch for something. It returns whether that was done, when it is durable; `None` when no
    /// driver was reached in time.
    pub fn new(
        files: BatchFiles,
        drive: impl Fn(&Jid, BatchCommand) -> Option<bool> + Send + Sync + 'static,
    ) -> Self {
        Self {
            files,
            drive: Box::new(drive),
        }
    }

    /// State of a batch; `None` when there is none.
    fn state(
        &self,
        bound: &Bound<'_>,
        context: &RunnerContext,
    ) -> Result<Option<(Jid, Value)>, RunnerError> {
        let text = bound.text("jid")?.unwrap_or_default();
        let Ok(jid) = Jid::parse(&text) else {
            return Ok(None);
        };
        let state = match context.jobs.batch(&jid)? {
            Some(batch) => Some(stored::state(&batch)),
            None => self.files.read(&jid)?,
        };
        Ok(state.map(|state| (jid, state)))
    }
}

fn batches(context: &RunnerContext) -> Result<&Batches, RunnerError> {
    let batches = context.batches.as_ref();
    batches.ok_or_else(|| RunnerError::Refused("batches are not known in this process".to_owned()))
}

fn status(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let state = batches(context)?.state(bound, context)?;
    Ok(state.map_or(Value::Nil, |(_, state)| summary(&state, context)))
}

fn list_active(context: &RunnerContext, _: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let files = &batches(context)?.files;
    let open = context.jobs.open_batches()?;
    let state = open.iter().map(stored::state);
    let mut found: Vec<Value> = state.map(|state| summary(&state, context)).collect();
    for jid in files.active()? {
        if context.jobs.batch(&jid)?.is_some() {
            continue;
        }
        // One that ends at this moment, or is damaged, is left out, as in stock.
        if let Ok(Some(state)) = files.read(&jid) {
            found.push(summary(&state, context));
        }
    }
    Ok(Value::Array(found))
}

fn stop(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let kill = bound.flag("kill", false);
    drive(context, bound, BatchCommand::Stop { kill })
}

fn pause(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    drive(context, bound, BatchCommand::Pause)
}

fn resume(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    drive(context, bound, BatchCommand::Resume)
}

/// Asks the driver of a batch that is not over; whether it did what was asked.
fn drive(context: &RunnerContext, bound: &Bound<'_>, command: BatchCommand) -> CallResult {
    let batches = batches(context)?;
    let Some((jid, state)) = batches.state(bound, context)? else {
        return Ok(false.into());
    };
    let is_over =
        flag(&state, "halted") || (count(&state, "pending") + count(&state, "active") == 0);
    if is_over {
        return Ok(false.into());
    }
    let is_stop = matches!(command, BatchCommand::Stop { .. });
    if !is_stop && state.get("driver").and_then(Value::as_str) == Some("cli") {
        let text = "a command line drives this batch: it can be stopped, but does not pause";
        return Err(RunnerError::Refused(text.to_owned()));
    }
    let done = (batches.drive)(&jid, command);
    done.map(Value::from).ok_or_else(|| {
        let word = match command {
            BatchCommand::Pause => "paused",
            BatchCommand::Resume => "resumed",
            BatchCommand::Stop { .. } => "stopped",
        };
        RunnerError::Refused(format!(
            "the master is too busy, or cannot store that the batch is {word}; see batch.status"
        ))
    })
}

/// Status of a batch, with stock's fields.
fn summary(state: &Value, context: &RunnerContext) -> Value {
    let part = |name: &str| state.get(name).cloned().unwrap_or(Value::Nil);
    let last = state.get("last_progress").and_then(Value::as_f64);
    let last = last.filter(|last| *last > 0.0);
    let now = context.clock.unix_micros() as f64 / 1e6;
    let mut fields = vec![
        ("jid", part("jid")),
        ("fun", part("fun")),
        ("tgt", part("tgt")),
        ("tgt_type", part("tgt_type")),
        ("total", count(state, "all_minions").into()),
        ("completed", count(state, "done").into()),
        ("active", count(state, "active").into()),
        ("pending", count(state, "pending").into()),
        ("failed", count(state, "failed").into()),
        ("batch_size", part("batch_size")),
        ("halted", flag(state, "halted").into()),
        ("halted_reason", part("halted_reason")),
        ("driver", part("driver")),
        ("user", part("user")),
        ("created", part("created")),
        ("last_progress", part("last_progress")),
        (
            "age_seconds",
            last.map_or(Value::Nil, |last| Value::Float(now - last)),
        ),
    ];
    // Our own, and there only while it pauses: whoever reads stock's fields finds no other.
    if let Some(since) = state.get(stored::PAUSED_SINCE) {
        fields.push((stored::PAUSED_SINCE, since.clone()));
    }
    Value::map(fields)
}

fn flag(state: &Value, name: &str) -> bool {
    state.get(name).and_then(Value::as_bool) == Some(true)
}

/// The number of entries in a list or a map of the state.
fn count(state: &Value, name: &str) -> usize {
    match state.get(name) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Map(entries)) => entries.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

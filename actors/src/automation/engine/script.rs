//! `script`: runs a program repeatedly and fires the events on its lines
//! (`salt/engines/script.py`).
//!
//! A line that is no event ends the run, as in stock, where it ends the whole engine for a while.
//! So does a line above the size limit of an event.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::StreamExt;
use saltern_automation::engines::{LastData, LineError, script_event};
use saltern_base::log_throttle::LogThrottle;
use saltern_config::ScriptEngine;
use saltern_python::shlex;
use tokio_util::codec::FramedRead;

use super::group::Group;
use super::line_reader::LineReader;
use super::pace::Pace;
use super::{Ended, Seed};

/// Failed runs are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// State of one engine that outlives a run.
struct Script<'a> {
    seed: &'a Seed,
    options: &'a ScriptEngine,
    program: String,
    arguments: Vec<String>,
    last: Option<LastData>,
    pace: Pace,
    failures: LogThrottle,
}

/// Runs until the master stops.
pub(super) async fn run(seed: &Seed, options: &ScriptEngine) -> Result<(), Ended> {
    let mut words = shlex::split(&options.cmd)
        .map_err(|_| Ended::Words)?
        .into_iter();
    let mut script = Script {
        seed,
        options,
        program: words.next().ok_or(Ended::Words)?,
        arguments: words.collect(),
        last: options.onchange.then(LastData::default),
        pace: Pace::new(),
        failures: LogThrottle::new(LOG_INTERVAL),
    };
    while script.run_once().await?.is_continue() {
        tokio::select! {
            () = tokio::time::sleep(options.interval) => {}
            () = seed.stop.cancelled() => break,
        }
    }
    Ok(())
}

impl Script<'_> {
    /// One run of the program. `Break`: the master stops.
    async fn run_once(&mut self) -> Result<ControlFlow<()>, Ended> {
        let (mut group, output) = self.not_run(Group::spawn(&self.program, &self.arguments))?;
        let longest = self.seed.services.config.max_event_size;
        let mut lines = FramedRead::new(output, LineReader::new(longest));
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = self.seed.stop.cancelled() => return Ok(self.stopped(group).await),
            };
            let Some(line) = line else { break };
            let problem = match line {
                Ok(line) => self.take(&line).await.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                self.complain(&format!("a line of its output is no event: {problem}"));
                return Ok(ControlFlow::Continue(()));
            }
        }
        let status = tokio::select! {
            status = group.ended() => status,
            () = self.seed.stop.cancelled() => return Ok(self.stopped(group).await),
        };
        let status = self.not_run(status)?;
        if !status.success() {
            self.complain(&format!("it ended with {status}"));
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn take(&mut self, line: &bytes::Bytes) -> Result<(), LineError> {
        self.pace.wait().await;
        let services = &self.seed.services;
        let event = script_event(services, line, self.options.output, self.last.as_mut());
        if let Some(event) = event? {
            self.seed.fire(event).await;
        }
        Ok(())
    }

    /// Ends the program within half of the master's stop timeout.
    async fn stopped(&self, mut group: Group) -> ControlFlow<()> {
        group
            .end(self.seed.services.config.saltern_stop_timeout / 2)
            .await;
        ControlFlow::Break(())
    }

    fn complain(&self, problem: &str) {
        if let Some(times) = self.failures.record() {
            let engine = self.seed.engine.name.as_str();
            tracing::warn!(engine, problem, times, "a run of a script failed");
        }
    }

    fn not_run<T>(&self, result: io::Result<T>) -> Result<T, Ended> {
        result.map_err(|source| Ended::Program {
            program: self.program.clone(),
            source,
        })
    }
}

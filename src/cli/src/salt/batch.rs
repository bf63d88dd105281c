//! `-b`: a few minions at a time. Our master drives the batch, and goes on when this command is
//! interrupted; under a stock master the command drives it, as stock's own does.

use std::collections::BTreeSet;
use std::time::Duration;

use saltern_client::{
    BatchEnd, BatchFollower, BatchNews, BatchStep, BatchWishes, ClientError, MinionReturn,
    PublishRequest, Published,
};
use saltern_model::{BatchSize, Compat};
use saltern_output::{JsonDocument, NO_MINIONS_MATCHED, batch_part};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::follow::unwritten;
use super::{FAILED, NO_RETURN, SaltTool};
use crate::console::{Shown, complain, say};
use crate::options::Ending;
use crate::terminal::{JobProgress, ProgressLine};

/// Beginning of our master's refusal of a target without a connected minion.
const NOT_THERE: &str = "not connected: ";

/// State of the returns so far.
#[derive(Default)]
struct Seen {
    /// The highest return code.
    retcode: i64,
    /// Whether the batch was stopped, or minions did not return in time.
    is_incomplete: bool,
    /// With `--one-document`: what is printed.
    document: Option<JsonDocument>,
    /// With `-s`: the returns, which are printed together.
    all: Vec<(Value, Value)>,
    /// Progress of the batch.
    standing: JobProgress,
    /// Minions that have the job and have not returned.
    active: BTreeSet<String>,
}

impl Seen {
    fn begin(&mut self, minions: usize) {
        self.standing.expected = minions;
    }

    fn part(&mut self, minions: &[String]) {
        self.active.extend(minions.iter().cloned());
    }

    fn returned(&mut self, minion: &MinionReturn) {
        self.active.remove(&minion.id);
        self.standing.returned += 1;
        self.standing.failed += usize::from(minion.retcode != 0);
        self.retcode = self.retcode.max(minion.retcode);
    }

    fn progress(&self, begun: Instant) -> JobProgress {
        JobProgress {
            elapsed: begun.elapsed(),
            slowest: self.active.first().cloned(),
            ..self.standing.clone()
        }
    }
}

/// Why a batch is not followed to its end: its jid, and what happened.
enum Left {
    Interrupted,
    Failed(ClientError),
    Unwritten(u8),
}

impl From<ClientError> for Left {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

impl SaltTool<'_> {
    /// Runs a batch that the master drives, for `saltern cmd`.
    pub(super) async fn own_batch(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        if self.command.options.is_async == Some(true) {
            return self.begin_only(request).await;
        }
        let mut seen = self.nothing_seen();
        let run = self.by_master(request, &mut seen).await;
        let run = self.end_document(&mut seen, run);
        match run {
            Ok(true) => Ok(match seen.is_incomplete || seen.standing.failed > 0 {
                true => FAILED,
                false => 0,
            }),
            Ok(false) => Ok(NO_RETURN),
            Err(Left::Interrupted) => Ok(FAILED),
            Err(Left::Unwritten(code)) => Ok(code),
            Err(Left::Failed(error)) => self.failed(&error),
        }
    }

    /// Runs a batch of this size.
    pub(super) async fn batch(
        &mut self,
        mut request: PublishRequest,
        size: &str,
    ) -> Result<u8, Ending> {
        let Ok(parsed) = BatchSize::parse(size) else {
            say(&format!(
                "Invalid batch data sent: {size}\nData must be in the form of %10, 10% or 3\n"
            ));
            return Ok(FAILED);
        };
        let mut seen = self.nothing_seen();
        let run = match self.client.has_tracker() {
            true => {
                request.batch = Some(self.wishes(size));
                if self.is_async() {
                    return self.begin_only(&request).await;
                }
                self.by_master(&request, &mut seen).await
            }
            false => self.by_client(request, parsed, &mut seen).await,
        };
        let run = self.end_document(&mut seen, run);
        match run {
            Ok(true) if self.is_static() => self.collected(seen.all),
            // Of a return code stock's process keeps eight bits, too.
            Ok(true) => Ok((seen.retcode & 0xff) as u8),
            Ok(false) => Ok(NO_RETURN),
            Err(Left::Interrupted) => Ok(FAILED),
            Err(Left::Unwritten(code)) => Ok(code),
            Err(Left::Failed(ClientError::Publish(text))) if text.starts_with(NOT_THERE) => {
                complain(&format!("{text}\nERROR: No return received"));
                Ok(NO_RETURN)
            }
            Err(Left::Failed(error)) => self.failed(&error),
        }
    }

    fn nothing_seen(&self) -> Seen {
        Seen {
            document: self.is_one_document().then(JsonDocument::new),
            ..Seen::default()
        }
    }

    /// Ends the document, unless nobody reads it.
    fn end_document(&self, seen: &mut Seen, run: Result<bool, Left>) -> Result<bool, Left> {
        let is_read = !matches!(run, Err(Left::Unwritten(_) | Left::Failed(_)));
        if let Some(document) = seen.document.take().filter(|_| is_read) {
            let written = self.console.write_part(document.end());
            written.map_err(|error| Left::Unwritten(unwritten(&error)))?;
        }
        run
    }

    fn is_static(&self) -> bool {
        self.command.options.is_static == Some(true) && !self.is_one_document()
    }

    /// Whether standard output holds the returns alone.
    fn is_bare(&self) -> bool {
        let is_formatted = self.manner.is_own() && self.console.has_outputter();
        self.is_static() || self.is_one_document() || is_formatted
    }

    /// Only 3008 leaves a batch to the master.
    fn is_async(&self) -> bool {
        self.command.options.is_async == Some(true) && self.config.salt_compat == Compat::V3008
    }

    fn wishes(&self, size: &str) -> BatchWishes {
        let options = &self.command.options;
        let timeout = super::request::seconds(options.timeout);
        BatchWishes {
            size: Some(size.to_owned()),
            wait: options.batch_wait.filter(|wait| *wait > 0.0),
            failhard: options.failhard == Some(true),
            timeout: timeout.map(|timeout| timeout.as_secs()),
            ..BatchWishes::default()
        }
    }

    /// `--async`: the master drives it, and nobody waits.
    async fn begin_only(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        let client = self.client;
        match self.interrupts.answered(client.publish(request)).await {
            (Some(Ok(begun)), _) => {
                self.name_absent(&begun);
                say(&format!(
                    "Executed batch command with job ID: {}\n",
                    begun.jid
                ));
                self.report_page(&begun.jid);
                Ok(0)
            }
            (Some(Err(ClientError::NoMinions)), _) if self.manner.is_own() => self.nobody(),
            (Some(Err(ClientError::NoMinions)), _) => {
                say(&format!(
                    "{NO_MINIONS_MATCHED}\nNo minions matched the target.\n"
                ));
                Ok(0)
            }
            (Some(Err(error)), _) => self.failed(&error),
            (None, _) => Ok(FAILED),
        }
    }

    /// Minions that have no part in the batch.
    fn name_absent(&self, begun: &Published) {
        if self.is_bare() {
            return;
        }
        let missing = begun.missing.iter().filter(|_| self.manner.is_own());
        for id in begun.down.iter().chain(missing) {
            say(&format!(
                "Minion {id} did not respond. No job will be sent.\n"
            ));
        }
    }

    /// Prints stock's texts for a target without minions.
    fn nobody_for_batch(&self) -> Result<bool, Left> {
        match self.is_one_document() {
            true => complain(NO_MINIONS_MATCHED),
            false => say(&format!("{NO_MINIONS_MATCHED}\n")),
        }
        if !self.is_bare() {
            say("No minions matched the target.\n");
        }
        complain("ERROR: No return received");
        Ok(false)
    }

    /// Follows a batch that the master drives; false where there is nobody to run it.
    async fn by_master(&mut self, request: &PublishRequest, seen: &mut Seen) -> Result<bool, Left> {
        let client = self.client;
        let (begun, is_interrupted) = self.interrupts.answered(client.run_batch(request)).await;
        let (begun, mut follower) = match begun {
            None => return Err(Left::Interrupted),
            Some(Err(ClientError::NoMinions)) => return self.nobody_for_batch(),
            Some(begun) => begun?,
        };
        let followed = match is_interrupted {
            true => Err(Left::Interrupted),
            false => {
                self.name_absent(&begun);
                self.report_page(&begun.jid);
                seen.begin(begun.minions.len());
                self.follow_batch(&begun.jid, &mut follower, seen).await
            }
        };
        match followed {
            Ok(end) => {
                report_end(&end);
                seen.is_incomplete = end.halted.is_some() || end.failed > 0;
                let is_silent = seen.standing.returned == 0 && end.failed > 0;
                if is_silent && end.halted.is_none() {
                    complain("ERROR: No return received");
                    return Ok(false);
                }
                Ok(true)
            }
            Err(left) => {
                let jid = &begun.jid;
                complain(&format!(
                    "\nThe master goes on with the batch {jid}. To follow it: saltern batch watch {jid}; \
                     its returns: salt-run jobs.lookup_jid {jid}"
                ));
                Err(left)
            }
        }
    }

    async fn follow_batch(
        &mut self,
        jid: &str,
        follower: &mut BatchFollower<'_>,
        seen: &mut Seen,
    ) -> Result<BatchEnd, Left> {
        let begun = Instant::now();
        let mut line = ProgressLine::on_stderr();
        loop {
            let next = async {
                tokio::select! {
                    news = follower.next() => Some(news),
                    () = self.interrupts.next() => None,
                }
            };
            let Some(news) = line.beside(next, || seen.progress(begun)).await else {
                return Err(Left::Interrupted);
            };
            match news? {
                BatchNews::Part(minions) => {
                    seen.part(&minions);
                    self.name_part(minions);
                }
                BatchNews::Returned(minion) => self.show(jid, minion, seen)?,
                BatchNews::Over(end) => return Ok(end),
                BatchNews::Missed(end) => {
                    complain(&format!(
                        "The batch is over, but events of it were missed; see: salt-run \
                         jobs.lookup_jid {jid}"
                    ));
                    return Ok(end);
                }
            }
        }
    }

    fn name_part(&self, minions: Vec<String>) {
        if !self.is_bare() {
            say(&format!("{}\n", batch_part(minions)));
        }
    }

    /// Prints a return; with its code and jid, as stock's batches do, unless the command is our own.
    fn show(&self, jid: &str, minion: MinionReturn, seen: &mut Seen) -> Result<(), Left> {
        seen.returned(&minion);
        if let Some(document) = &mut seen.document {
            let entry = document.entry(&minion.id, &minion.value);
            let written = self.console.write_part(&entry);
            return written.map_err(|error| Left::Unwritten(unwritten(&error)));
        }
        if self.is_static() {
            seen.all.push((minion.id.into(), minion.value));
            return Ok(());
        }
        let shown = match self.manner.is_own() {
            true => Shown {
                id: Some(minion.id),
                value: minion.value,
                out: minion.out,
                retcode: minion.retcode,
                elapsed: None,
            },
            false => Shown {
                id: None,
                value: Value::Map(vec![
                    ("retcode".into(), minion.retcode.into()),
                    ("jid".into(), jid.into()),
                    (minion.id.into(), minion.value),
                ]),
                out: minion.out,
                retcode: 0,
                elapsed: None,
            },
        };
        let printed = self.console.display_return(shown);
        printed.map_err(|error| Left::Unwritten(unwritten(&error)))
    }

    /// Drives a batch; false where there is nobody to run it.
    async fn by_client(
        &mut self,
        request: PublishRequest,
        size: BatchSize,
        seen: &mut Seen,
    ) -> Result<bool, Left> {
        let options = &self.command.options;
        let wait = options.batch_wait.filter(|wait| (0.0..1e9).contains(wait));
        let wait = Duration::from_secs_f64(wait.unwrap_or(0.0));
        let is_failhard = options.failhard == Some(true);
        let made = self.client.client_batch(request, size, wait);
        let (made, is_interrupted) = self.interrupts.answered(made).await;
        let mut batch = match made {
            Some(Err(ClientError::NoMinions)) => return self.nobody_for_batch(),
            Some(Ok(None)) => {
                complain("ERROR: No return received");
                return Ok(false);
            }
            Some(Ok(Some(batch))) if !is_interrupted => batch,
            Some(Err(error)) => return Err(error.into()),
            _ => return Err(Left::Interrupted),
        };
        for id in batch.down.iter().filter(|_| !self.is_bare()) {
            say(&format!(
                "Minion {id} did not respond. No job will be sent.\n"
            ));
        }
        seen.begin(batch.minions());
        let begun = Instant::now();
        let mut line = ProgressLine::on_stderr();
        loop {
            let next = async {
                tokio::select! {
                    step = batch.next() => Some(step),
                    () = self.interrupts.next() => None,
                }
            };
            let Some(step) = line.beside(next, || seen.progress(begun)).await else {
                complain("\nExiting gracefully on Ctrl-c; minions that had no turn get no job.");
                return Err(Left::Interrupted);
            };
            match step? {
                None => return Ok(true),
                Some(BatchStep::Part(minions)) => {
                    seen.part(&minions);
                    self.name_part(minions);
                }
                Some(BatchStep::Returned(jid, minion)) => {
                    let is_bad = minion.retcode != 0;
                    self.show(&jid, minion, seen)?;
                    if is_failhard && is_bad {
                        complain("[ERROR   ] Batch run stopped due to failhard");
                        return Ok(true);
                    }
                }
                Some(BatchStep::GivenUp(id)) => {
                    seen.active.remove(&id);
                    complain(&format!("Minion '{id}' failed to respond to job sent"));
                }
            }
        }
    }
}

/// Prints on standard error how a batch ended, if it was stopped or returns are missing.
fn report_end(end: &BatchEnd) {
    if let Some(reason) = &end.halted {
        complain(&format!(
            "[ERROR   ] Batch run stopped due to {reason}; {} minions had no turn",
            end.abandoned
        ));
    }
    if end.failed > 0 {
        complain(&format!("{} minions did not return in time", end.failed));
    }
}

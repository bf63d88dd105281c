//! Follows one job: hands each minion's answer on as it comes, keeps the progress line, and ends at Ctrl-C.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::pin::pin;
use std::time::Duration;

use saltern_client::{ClientError, Job, MinionOutcome, PublishRequest};
use saltern_model::Compat;
use saltern_output::{NOT_CONNECTED, no_response, verbose_heading};
use saltern_wire::msgpack::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{FAILED, SaltTool};
use crate::console::{complain, say};
use crate::terminal::JobProgress;

/// Between two drawings of the progress line while nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Exit code of a command whose reader has gone away: that of a shell for SIGPIPE.
const READER_GONE: u8 = 141;

/// The return of one minion, or the text shown in its place.
pub(super) struct Answer {
    /// The minion.
    pub(super) id: String,
    /// Its return.
    pub(super) value: Value,
    /// The outputter that it asks for.
    pub(super) out: Option<String>,
    /// The return code.
    pub(super) retcode: i64,
    /// Whether it did not return.
    pub(super) is_silent: bool,
    /// Since the job was published.
    pub(super) elapsed: Duration,
}

/// How following ended.
pub(super) enum End {
    /// Every minion of the job with this jid is accounted for.
    Over(String),
    /// The target means nobody.
    NoMinions,
    /// The command ends with this exit code; the job goes on.
    Left(u8),
}

/// Heading in front of the returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heading {
    /// Nothing.
    None,
    /// The jid (`--show-jid`).
    Jid,
    /// The jid with a rule below it (`-v`).
    Verbose,
}

impl Heading {
    fn text(self, jid: &str) -> String {
        match self {
            Self::None => String::new(),
            Self::Jid => format!("jid: {jid}\n"),
            Self::Verbose => format!("{}\n", verbose_heading(jid)),
        }
    }
}

/// Ctrl-C, which ends the command and never the job.
pub(super) struct Interrupts(Signal);

impl Interrupts {
    /// From here on Ctrl-C does not end the process by itself.
    pub(super) fn catch() -> io::Result<Self> {
        signal(SignalKind::interrupt()).map(Self)
    }

    /// The next Ctrl-C.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// Awaits `work`; `None` after two Ctrl-C. After the first the answer is still awaited, because
    /// it names the job.
    pub(super) async fn answered<T>(&mut self, work: impl Future<Output = T>) -> (Option<T>, bool) {
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return (Some(done), false),
            () = self.next() => {}
        }
        complain(
            "\nThe master's answer, which names the job, is awaited; Ctrl-C again ends at once.",
        );
        tokio::select! {
            done = &mut work => (Some(done), true),
            () = self.next() => (None, true),
        }
    }
}

/// Text of an interrupted command: stock's, and how to follow the job with this master.
pub(super) fn come_back(jid: &str) -> String {
    format!(
        "\nThis job's jid is: {jid}\nExiting gracefully on Ctrl-c\nThe minions may not have all finished \
         running and any remaining minions will return upon completion. To look up the return data for \
         this job later, run the following command:\n\nsalt-run jobs.lookup_jid {jid}\n\nThe job goes on. \
         To follow it: saltern follow {jid}; what is missing, and why: saltern explain {jid}"
    )
}

/// Progress of a job, kept beside the client's own account, which is in use while it waits.
struct Standing {
    jid: String,
    begun: Instant,
    expected: usize,
    returned: usize,
    failed: usize,
    awaited: BTreeSet<String>,
}

impl Standing {
    fn new(job: &Job<'_>) -> Self {
        Self {
            jid: job.jid().to_owned(),
            begun: Instant::now(),
            expected: job.expected().len(),
            returned: 0,
            failed: 0,
            awaited: job.awaited().clone(),
        }
    }

    fn take(&mut self, job: &Job<'_>, outcome: &MinionOutcome) {
        if self.expected != job.expected().len() {
            self.expected = job.expected().len();
            self.awaited.clone_from(job.awaited());
        }
        match outcome {
            MinionOutcome::Returned(minion) => {
                self.awaited.remove(&minion.id);
                self.returned += 1;
                self.failed += usize::from(minion.retcode != 0);
            }
            MinionOutcome::NoResponse { id, .. } => {
                self.awaited.remove(id);
            }
        }
    }

    fn progress(&self) -> JobProgress {
        JobProgress {
            expected: self.expected,
            returned: self.returned,
            failed: self.failed,
            elapsed: self.begun.elapsed(),
            slowest: self.awaited.first().cloned(),
        }
    }
}

impl SaltTool<'_> {
    /// Publishes a job and follows it to its end.
    ///
    /// # Errors
    /// The job is not published.
    pub(super) async fn follow(
        &mut self,
        request: &PublishRequest,
        heading: Heading,
        take: &mut dyn FnMut(Answer) -> io::Result<()>,
    ) -> Result<End, ClientError> {
        let client = self.client;
        let (job, is_interrupted) = self.interrupts.answered(client.run(request)).await;
        let mut job = match job {
            None => return Ok(End::Left(FAILED)),
            Some(Err(ClientError::NoMinions)) => return Ok(End::NoMinions),
            Some(job) => job?,
        };
        if is_interrupted {
            complain(&come_back(job.jid()));
            return Ok(End::Left(FAILED));
        }
        say(&heading.text(job.jid()));
        self.report_page(job.jid());
        let mut standing = Standing::new(&job);
        let mut absent = None;
        self.progress.draw(&standing.progress());
        loop {
            let outcome = match self.next(&mut job, &standing).await {
                Ok(Some(outcome)) => outcome,
                Ok(None) => break,
                Err(code) => return Ok(End::Left(code)),
            };
            standing.take(&job, &outcome);
            let elapsed = standing.begun.elapsed();
            if let Some(answer) = self.answer(&job, outcome, elapsed, &mut absent).await {
                self.progress.erase();
                if let Err(error) = take(answer) {
                    return Ok(End::Left(unwritten(&error)));
                }
            }
            self.progress.draw(&standing.progress());
        }
        self.progress.erase();
        Ok(End::Over(standing.jid))
    }

    /// The next outcome of the job; the exit code where the command ends before.
    async fn next(
        &mut self,
        job: &mut Job<'_>,
        standing: &Standing,
    ) -> Result<Option<MinionOutcome>, u8> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        // Not dropped at each tick: it may be in the middle of a question.
        let mut next = pin!(job.next());
        let failed = loop {
            tokio::select! {
                outcome = &mut next => match outcome {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) => break Some(error),
                },
                _ = tick.tick() => self.progress.draw(&standing.progress()),
                () = self.interrupts.next() => break None,
            }
        };
        self.progress.erase();
        match failed {
            None => complain(&come_back(&standing.jid)),
            Some(error) => {
                let (error, jid) = (saltern_base::chain(&error), &standing.jid);
                complain(&format!(
                    "{error}\nThe job's jid is {jid}. What is missing when the master is back, and why: \
                     saltern explain {jid}; its returns: salt-run jobs.lookup_jid {jid}"
                ));
            }
        }
        Err(FAILED)
    }

    /// The text shown for an outcome; `None` for a minion that is not shown.
    async fn answer(
        &self,
        job: &Job<'_>,
        outcome: MinionOutcome,
        elapsed: Duration,
        absent: &mut Option<HashSet<String>>,
    ) -> Option<Answer> {
        let (id, absence) = match outcome {
            MinionOutcome::Returned(minion) => {
                return Some(Answer {
                    id: minion.id,
                    value: minion.value,
                    out: minion.out,
                    retcode: minion.retcode,
                    is_silent: false,
                    elapsed,
                });
            }
            MinionOutcome::NoResponse { id, absence } => (id, absence),
        };
        if self.hides_timeouts() && job.expected().contains(&id) {
            return None;
        }
        let is_connected = match absence {
            Some(absence) => absence.is_connected,
            // Ids that nobody has are not asked about.
            None if !job.expected().contains(&id) => true,
            None => {
                if absent.is_none() {
                    *absent = Some(self.client.not_present().await.unwrap_or_default());
                }
                !absent.as_ref().is_some_and(|absent| absent.contains(&id))
            }
        };
        let is_absent = !is_connected && (self.manner.is_own() || self.knows_grains(&id));
        let text = match is_absent {
            true => NOT_CONNECTED.to_owned(),
            false if self.is_syndic(&id) => return None,
            false => no_response(job.jid()),
        };
        Some(Answer {
            id,
            value: text.into(),
            out: Some("no_return".to_owned()),
            retcode: i64::from(FAILED),
            is_silent: true,
            elapsed,
        })
    }

    /// `--hide-timeout`, which has no effect in 3008.
    fn hides_timeouts(&self) -> bool {
        let options = &self.command.options;
        self.config.salt_compat != Compat::V3008
            && options.show_timeout == Some(false)
            && options.verbose != Some(true)
    }

    /// Whether the minion's grains are cached: of others stock does not say that they are not connected.
    fn knows_grains(&self, id: &str) -> bool {
        let cachedir = &self.config.cachedir;
        let older = cachedir.join("minions").join(id).join("data.p");
        let newer = cachedir.join("grains").join(format!("{id}.p"));
        !id.contains('/') && (older.exists() || newer.exists())
    }

    fn is_syndic(&self, id: &str) -> bool {
        !id.contains('/') && self.config.cachedir.join("syndics").join(id).exists()
    }
}

/// The exit code of a command that cannot print any more.
pub(super) fn unwritten(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return READER_GONE;
    }
    complain(&format!("The returns cannot be written: {error}"));
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_stocks() {
        assert_eq!(Heading::None.text("1"), "");
        assert_eq!(Heading::Jid.text("1"), "jid: 1\n");
        let rule = "-".repeat("Executing job with jid 1".len());
        assert_eq!(
            Heading::Verbose.text("1"),
            format!("Executing job with jid 1\n{rule}\n\n")
        );
    }
}

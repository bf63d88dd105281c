//! The jobs that run now, by jid. Stock keeps a file for each in `cachedir/proc`; here they are
//! in memory only, since no other process needs to see them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use saltern_wire::msgpack::Value;
use tokio_util::sync::CancellationToken;

/// One job while it runs.
pub(crate) struct RunningJob {
    pub(crate) jid: String,
    /// The publication, as `find_job` shows it.
    pub(crate) load: Value,
    /// Cancelled when the job is killed.
    pub(crate) stop: CancellationToken,
    command: Mutex<Option<Pid>>,
}

impl RunningJob {
    /// The process that does the work: the command's if there is one, else this one.
    pub(crate) fn pid(&self) -> i32 {
        self.command
            .lock()
            .unwrap_or_else(rustix::process::getpid)
            .as_raw_nonzero()
            .get()
    }

    /// Records the process group of a command, while it runs.
    pub(crate) fn set_command(&self, group: Option<Pid>) {
        *self.command.lock() = group;
    }

    /// Ends the job with a signal to its command.
    pub(crate) fn end(&self, signal: i32) {
        if let Some(group) = *self.command.lock() {
            let signal = if signal == 15 {
                Signal::TERM
            } else {
                Signal::KILL
            };
            // It may have ended by itself meanwhile.
            let _ = kill_process_group(group, signal);
        }
        self.stop.cancel();
    }

    /// The publication with the process id, as in stock's proc files.
    pub(crate) fn describe(&self) -> Value {
        let mut entries = vec![(Value::from("pid"), Value::from(self.pid()))];
        entries.extend(self.load.as_map().into_iter().flatten().cloned());
        Value::Map(entries)
    }
}

/// All running jobs.
#[derive(Default)]
pub(crate) struct JobTable {
    jobs: Mutex<HashMap<String, Arc<RunningJob>>>,
}

impl JobTable {
    /// Notes a job; `None` when one with this jid runs already.
    pub(crate) fn start(&self, jid: &str, load: Value) -> Option<Arc<RunningJob>> {
        let mut jobs = self.jobs.lock();
        if jobs.contains_key(jid) {
            return None;
        }
        let job = Arc::new(RunningJob {
            jid: jid.to_owned(),
            load,
            stop: CancellationToken::new(),
            command: Mutex::new(None),
        });
        jobs.insert(jid.to_owned(), Arc::clone(&job));
        Some(job)
    }

    /// Forgets a job.
    pub(crate) fn finish(&self, jid: &str) {
        self.jobs.lock().remove(jid);
    }

    pub(crate) fn get(&self, jid: &str) -> Option<Arc<RunningJob>> {
        self.jobs.lock().get(jid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<RunningJob>> {
        self.jobs.lock().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.lock().len()
    }
}

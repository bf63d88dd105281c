//! A limit on the threads of one process, by a control group of its own: `RLIMIT_NPROC` does not bind root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The variable that excuses tests from what they can only show in a control group.
pub const WITHOUT_GROUPS: &str = "SALTERN_TESTS_WITHOUT_GROUPS";

/// Roots of the hierarchies that may limit processes: of version 1 and of version 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];

/// A group with one process in it, without a limit at first. The process is moved back when this is dropped.
pub struct ThreadLimit {
    root: &'static Path,
    group: PathBuf,
    process: u32,
}

impl ThreadLimit {
    /// Puts a process into a group of its own; `None` where the tests are excused from it.
    ///
    /// # Errors
    /// When this user may not.
    pub fn of(process: u32) -> Result<Option<Self>> {
        if std::env::var(WITHOUT_GROUPS).is_ok_and(|value| value == "1") {
            return Ok(None);
        }
        for root in ROOTS.map(Path::new) {
            let group = root.join(format!("saltern-tests-{process}"));
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let limit = Self {
                root,
                group,
                process,
            };
            if limit.group.join("pids.max").exists() {
                let procs = limit.group.join("cgroup.procs");
                fs::write(procs, process.to_string()).context("the process is moved")?;
                return Ok(Some(limit));
            }
        }
        bail!("no control group limits threads here; {WITHOUT_GROUPS}=1 excuses from it")
    }

    /// From now on no thread starts.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn close(&self) -> Result<()> {
        self.set("1")
    }

    /// Lifts the limit.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn lift(&self) -> Result<()> {
        self.set("max")
    }

    /// Names of the threads of the process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn threads(&self) -> Result<Vec<String>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process))?;
        // One may end meanwhile.
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        Ok(names.map(|name| name.trim().to_owned()).collect())
    }

    fn set(&self, value: &str) -> Result<()> {
        fs::write(self.group.join("pids.max"), value).context("the limit of threads")
    }
}

impl Drop for ThreadLimit {
    fn drop(&mut self) {
        // Either fails where the process is gone.
        let _ = fs::write(self.root.join("cgroup.procs"), self.process.to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

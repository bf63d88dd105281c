//! A limit on the threads of one process, by a control group of its own: `RLIMIT_NPROC` does not bind root.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context, Result, bail, ensure};

/// The variable that excuses tests from what they can only show in a control group.
pub const WITHOUT_GROUPS: &str = "SALTERN_TESTS_WITHOUT_GROUPS";

/// Attempts to remove a group, whose process may be about to end, and the pause between two.
const REMOVALS: (usize, Duration) = (50, Duration::from_millis(20));

/// A group with one process in it, without a limit at first. The process is moved back when this is dropped.
pub struct ThreadLimit {
    /// The group that the process comes from.
    before: PathBuf,
    group: PathBuf,
    process: u32,
}

impl ThreadLimit {
    /// Puts a process into a group of its own; `None` where the tests are excused from it.
    ///
    /// # Errors
    /// When this user may not.
    pub fn of(process: u32) -> Result<Option<Self>> {
        static GROUPS: AtomicUsize = AtomicUsize::new(0);
        if std::env::var(WITHOUT_GROUPS).is_ok_and(|value| value == "1") {
            return Ok(None);
        }
        let (root, before) = group_of(process)?;
        let (tests, number) = (std::process::id(), GROUPS.fetch_add(1, Ordering::Relaxed));
        let group = root.join(format!("saltern-tests-{tests}-{process}-{number}"));
        fs::create_dir(&group)
            .with_context(|| format!("no control group; {WITHOUT_GROUPS}=1 excuses from it"))?;
        if !group.join("pids.max").exists() {
            remove(&group);
            bail!("no control group limits threads here; {WITHOUT_GROUPS}=1 excuses from it");
        }
        let limit = Self {
            before,
            group,
            process,
        };
        limit
            .move_to(&limit.group)
            .context("the process is moved")?;
        Ok(Some(limit))
    }

    fn move_to(&self, group: &Path) -> io::Result<()> {
        fs::write(group.join("cgroup.procs"), self.process.to_string())
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
        // Fails where the process is gone.
        let _ = self.move_to(&self.before);
        remove(&self.group);
    }
}

/// The hierarchy that may limit the threads of a process, and its group there.
fn group_of(process: u32) -> Result<(&'static Path, PathBuf)> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let (root, group) = place_of(&groups).context("the process is in no group")?;
    let root = Path::new(root);
    let before = root.join(group.trim_start_matches('/'));
    // Without the file it is no group, but the directory of a version 1 without this hierarchy, or a group elsewhere.
    ensure!(
        before.join("cgroup.procs").exists(),
        "{} is no control group; {WITHOUT_GROUPS}=1 excuses from it",
        before.display()
    );
    Ok((root, before))
}

/// The same by the text of the process: version 1 where that has the threads, and else version 2.
fn place_of(groups: &str) -> Option<(&'static str, &str)> {
    let mut unified = None;
    for line in groups.lines() {
        let fields: Vec<&str> = line.splitn(3, ':').collect();
        match *fields {
            [_, controllers, group] if controllers.split(',').any(|one| one == "pids") => {
                return Some(("/sys/fs/cgroup/pids", group));
            }
            ["0", "", group] => unified = Some(("/sys/fs/cgroup", group)),
            _ => {}
        }
    }
    unified
}

fn remove(group: &Path) {
    let (attempts, pause) = REMOVALS;
    for _ in 0..attempts {
        if fs::remove_dir(group).is_ok() {
            return;
        }
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn group_of_a_process_is_that_of_the_version_that_has_the_threads() {
        for (groups, expected) in [
            ("8:pids:/a\n0::/b\n", Some(("/sys/fs/cgroup/pids", "/a"))),
            (
                "0::/b\n8:cpu,pids:/a:c\n",
                Some(("/sys/fs/cgroup/pids", "/a:c")),
            ),
            ("1:cpu:/a\n0::/b\n", Some(("/sys/fs/cgroup", "/b"))),
            ("1:cpu:/a\n", None),
        ] {
            assert_eq!(place_of(groups), expected, "{groups}");
        }
    }

    #[test]
    fn process_is_moved_back_to_the_group_that_it_was_in() -> Result<()> {
        let mut child = Command::new("sleep").arg("600").spawn()?;
        let moved = move_twice(child.id());
        child.kill()?;
        child.wait()?;
        moved
    }

    fn move_twice(process: u32) -> Result<()> {
        let Some(outer) = ThreadLimit::of(process)? else {
            return Ok(());
        };
        let Some(inner) = ThreadLimit::of(process)? else {
            return Ok(());
        };
        ensure!(inner.before == outer.group && inner.group != outer.group);
        let (first, second) = (outer.group.clone(), inner.group.clone());
        drop(inner);
        ensure!(group_of(process)?.1 == first && !second.exists());
        drop(outer);
        ensure!(!first.exists());
        Ok(())
    }
}

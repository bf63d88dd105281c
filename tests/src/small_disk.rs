//! A small tmpfs that fills up, or, without the right to mount one, a limit on the size of the
//! master's files.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::process::{run, wait_until};
use crate::site::SOON;

/// The variable that excuses tests from what they can only show on a small disk.
pub const WITHOUT_DISKS: &str = "SALTERN_TESTS_WITHOUT_DISKS";

/// A mounted tmpfs; it is gone when this is dropped.
pub struct SmallDisk {
    path: PathBuf,
    bytes: u64,
}

impl SmallDisk {
    /// Mounts one of so many bytes over a directory.
    ///
    /// # Errors
    /// When this user may not.
    pub fn mount(path: &Path, bytes: u64) -> Result<Self> {
        let mut command = Command::new("mount");
        command
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={bytes},mode=755"),
                "tmpfs",
            ])
            .arg(path);
        run(&mut command, SOON)?.expect_code(0)?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// The same for a test that shows nothing without one. It fails where none can be mounted,
    /// so that nobody takes it for passed, unless [`WITHOUT_DISKS`] says that this is known; only
    /// then there is `None`.
    ///
    /// # Errors
    /// When this user may not, and [`WITHOUT_DISKS`] is not set.
    pub fn mount_unless_excused(path: &Path, bytes: u64) -> Result<Option<Self>> {
        match Self::mount(path, bytes) {
            Err(error) if std::env::var_os(WITHOUT_DISKS).is_some() => {
                eprintln!("nothing is shown here, as {WITHOUT_DISKS} allows: {error:#}");
                Ok(None)
            }
            disk => disk.map(Some).with_context(|| {
                format!("a small disk takes the right to mount; {WITHOUT_DISKS}=1 excuses from it")
            }),
        }
    }

    /// Begins to take its room evenly, so that all is taken after this time.
    pub fn begin_to_fill(&self, full_after: Duration) -> Filling<'_> {
        Filling {
            disk: self,
            began: Instant::now(),
            full_after,
        }
    }

    /// Takes all the room there is.
    ///
    /// # Errors
    /// When the ballast cannot be written for another reason than that there is no more room.
    pub fn fill(&self) -> Result<()> {
        let mut ballast = self.open_ballast()?;
        let mut piece = vec![0; 1 << 16];
        while !piece.is_empty() {
            match ballast.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => return Err(error).context("the ballast"),
            }
        }
        Ok(())
    }

    /// Allows nothing to be written any more.
    ///
    /// # Errors
    /// When somebody has a file open for writing.
    pub fn make_read_only(&self) -> Result<()> {
        // What a process has open that is being ended is closed a little later.
        wait_until("the disk to be read-only", SOON, || {
            let mut command = Command::new("mount");
            command.args(["-o", "remount,ro"]).arg(&self.path);
            let remounted = run(&mut command, SOON).ok()?;
            (remounted.code == Some(0)).then_some(())
        })
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When the ballast is not there.
    pub fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn open_ballast(&self) -> Result<File> {
        let mut options = File::options();
        let ballast = options.create(true).append(true).open(self.ballast());
        ballast.context("the ballast")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

/// A disk that fills up.
pub struct Filling<'a> {
    disk: &'a SmallDisk,
    began: Instant,
    full_after: Duration,
}

impl Filling<'_> {
    /// Takes as much as should be taken by now.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn go_on(&self) -> Result<()> {
        let share = self.began.elapsed().div_duration_f64(self.full_after);
        let wanted = (self.disk.bytes as f64 * share) as u64;
        let mut ballast = self.disk.open_ballast()?;
        let taken = ballast.metadata()?.len();
        let mut more = std::io::repeat(0).take(wanted.saturating_sub(taken));
        std::io::copy(&mut more, &mut ballast).context("the ballast")?;
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: processes that have files open there keep them.
        let umount = Command::new("umount").arg("-l").arg(&self.path).status();
        drop(umount);
    }
}

/// The command line that starts a program which gets an error, and is not ended, when a file of it
/// may grow no further.
pub const SURVIVES_SHORT_FILES: [&str; 3] = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];

/// Limits the files of a process to `longest` bytes (`RLIMIT_FSIZE`); `None` lifts the limit.
///
/// # Errors
/// When the process is gone.
pub fn limit_files(process: u32, longest: Option<u64>) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    ensure!(pid.is_some(), "{process} is no process id");
    let limit = Rlimit {
        current: longest,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).context("cannot limit the files of the master")?;
    Ok(())
}

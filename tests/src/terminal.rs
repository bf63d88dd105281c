//! A program in a terminal of its own: a pseudo-terminal, of which a small part of what terminals
//! do is understood, enough to know what stands on the screen.
//!
//! Understood are moves of the cursor, clearing, and which of the two pages is shown; colours are
//! passed over. A program that needs more than that is not for here.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Weak};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::process::wait_until;
use crate::site::SOON;

/// The size of the screen.
const COLUMNS: u16 = 140;
const ROWS: u16 = 40;

/// A program and its terminal; closing the terminal ends most programs, dropping this ends all.
pub struct Terminal {
    /// Our end of it, until it is closed.
    keys: Option<Arc<File>>,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    modes_before: LocalModes,
}

impl Terminal {
    /// Starts a program with its arguments as the leader of a session in a new terminal.
    ///
    /// # Errors
    /// There is no terminal to be had, or the program cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        Self::with_columns(COLUMNS, program, arguments)
    }

    /// The same in a terminal that is so many columns wide; [`screen`](Self::screen) does not wrap
    /// lines that are longer.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with_columns<A: AsRef<OsStr>>(
        columns: u16,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let size = Winsize {
            ws_row: ROWS,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size)?;
        let modes_before = tcgetattr(&theirs)?.local_modes;
        let copy = |fd: &OwnedFd| fd.try_clone().map(Stdio::from);
        // It becomes the program, and leads the session: so this child is the program.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(arguments)
            .env("TERM", "xterm-256color")
            .stdin(copy(&theirs)?)
            .stdout(copy(&theirs)?)
            .stderr(copy(&theirs)?)
            .spawn()
            .context("cannot start setsid")?;
        drop(theirs);
        let keys = Arc::new(File::from(ours));
        let output = Arc::<Mutex<Vec<u8>>>::default();
        collect(Arc::downgrade(&keys), output.clone());
        Ok(Self {
            keys: Some(keys),
            child,
            output,
            modes_before,
        })
    }

    /// Presses keys, as the bytes that a terminal sends for them.
    ///
    /// # Errors
    /// The terminal is closed.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        let mut ours = self.keys.as_deref().context("the terminal is closed")?;
        Ok(ours.write_all(keys.as_bytes())?)
    }

    /// Waits until all of these texts are on the screen.
    ///
    /// # Errors
    /// Shows the screen when they are not there in time.
    pub fn wait_for(&self, texts: &[&str]) -> Result<()> {
        let shown = || texts.iter().all(|text| self.screen().contains(text));
        let found = wait_until("the screen", SOON, || shown().then_some(()));
        found.with_context(|| format!("{texts:?} is not all on:\n{}", self.screen()))
    }

    /// The lines of the screen.
    pub fn screen(&self) -> String {
        shown(&String::from_utf8_lossy(&self.output.lock())).0
    }

    /// All output of the program so far, with control sequences.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output.lock()).into_owned()
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok();
        let id = id.and_then(rustix::process::Pid::from_raw);
        Ok(rustix::process::kill_process(
            id.context("no process id")?,
            signal,
        )?)
    }

    /// Closes the terminal under the program, which gets `SIGHUP` from the kernel.
    pub fn close(&mut self) {
        self.keys = None;
    }

    /// Waits until the program has ended by itself.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn end(&mut self) -> Result<ExitStatus> {
        wait_until("the program in the terminal to end", SOON, || {
            self.child.try_wait().ok().flatten()
        })
    }

    /// Fails unless the terminal is as it was before the program: its modes, its page, the cursor.
    ///
    /// # Errors
    /// Says what is not.
    pub fn expect_restored(&self) -> Result<()> {
        let ours = self.keys.as_deref().context("the terminal is closed")?;
        let modes = tcgetattr(ours)?.local_modes;
        if modes != self.modes_before {
            bail!("its modes are {modes:?} and were {:?}", self.modes_before);
        }
        let restored = || {
            let output = self.output.lock();
            let (_, page) = shown(&String::from_utf8_lossy(&output));
            page == Page::default()
        };
        wait_until("the first page with its cursor", SOON, || {
            restored().then_some(())
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Reads what the program writes until either end is closed.
fn collect(terminal: Weak<File>, output: Arc<Mutex<Vec<u8>>>) {
    const GLANCE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        // Held only for one poll, so that closing does not wait for it.
        while let Some(terminal) = terminal.upgrade() {
            let mut ready = [PollFd::new(&*terminal, PollFlags::IN)];
            match poll(&mut ready, Some(&GLANCE)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return,
            }
            match (&*terminal).read(&mut buffer) {
                Ok(length @ 1..) => output.lock().extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
    });
}

/// The page that is shown, and whether the cursor is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    is_other: bool,
    is_without_cursor: bool,
}

/// The screen after this output.
fn shown(output: &str) -> (String, Page) {
    let mut cells = vec![vec![' '; usize::from(COLUMNS)]; usize::from(ROWS)];
    let (mut row, mut column) = (0, 0);
    let mut page = Page::default();
    let mut rest = output.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' if rest.as_str().starts_with('[') => {
                rest.next();
                let mut words = String::new();
                let end = rest.by_ref().find(|c| {
                    let is_end = c.is_ascii_alphabetic();
                    if !is_end {
                        words.push(*c);
                    }
                    is_end
                });
                match (words.as_str(), end) {
                    (place, Some('H')) => (row, column) = place_of(place),
                    ("", Some('K')) => {
                        let line = cells.get_mut(row).and_then(|line| line.get_mut(column..));
                        line.into_iter().for_each(|line| line.fill(' '));
                    }
                    ("2", Some('K')) => cells
                        .get_mut(row)
                        .into_iter()
                        .for_each(|line| line.fill(' ')),
                    (lines, Some('A')) => row = row.saturating_sub(lines.parse().unwrap_or(1)),
                    ("2", Some('J')) => cells.iter_mut().for_each(|line| line.fill(' ')),
                    ("?1049", Some(end)) => page.is_other = end == 'h',
                    ("?25", Some(end)) => page.is_without_cursor = end == 'l',
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c => {
                let cell = cells.get_mut(row).and_then(|line| line.get_mut(column));
                if let Some(cell) = cell {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    let lines = cells.into_iter().map(|line| {
        let line: String = line.into_iter().collect();
        format!("{}\n", line.trim_end())
    });
    (lines.collect(), page)
}

/// Row and column, which are counted from one, as indices.
fn place_of(words: &str) -> (usize, usize) {
    let mut numbers = words.split(';').map(|word| word.parse().unwrap_or(1));
    let mut next = || numbers.next().unwrap_or(1_usize).saturating_sub(1);
    (next(), next())
}

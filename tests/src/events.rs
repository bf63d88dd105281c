//! The event bus as stock Salt's own listener sees it (`peers/listen.py`).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};
use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Group, Process, null, peer};
use crate::release::Release;
use crate::site::SOON;

/// Begin of the tags of marks.
const MARK: &str = "saltern-tests/mark/";

/// No two marks of a process have the same event.
static MARKS: AtomicUsize = AtomicUsize::new(0);

/// A master that takes or passes on nothing for so long, as one that is stopped, is not waited for by a mark.
const MARK_WAIT: Duration = Duration::from_secs(30);

/// One event of the bus.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The tag.
    pub tag: String,
    /// The data; bytes that are no text stand as `{"bytes": "hex"}`.
    pub data: Value,
}

impl Event {
    /// The names of the data's fields, sorted.
    pub fn fields(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .data
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names
    }
}

/// A stock listener on a master's event socket; keeps every event since it began.
pub struct Listener {
    child: Process,
    group: Option<Group>,
    heard: Arc<Heard>,
    pull: PathBuf,
}

#[derive(Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    listening: bool,
    ended: bool,
    events: Vec<Event>,
}

impl Listener {
    /// Starts one and waits until it is connected.
    ///
    /// # Errors
    /// When it cannot connect.
    pub fn start(release: Release, sock_dir: &Path, config: &Path, output: &Path) -> Result<Self> {
        let mut command = Command::new(release.program("python"));
        command.arg(peer("listen.py")).args([sock_dir, config]);
        let (pipe, stdout) = std::io::pipe()?;
        let errors = std::fs::File::create(output)?;
        let child = Process::start(&mut command, null()?, stdout.into(), errors.into())?;
        let group = Some(Group::of(child.id()));
        let heard = Arc::new(Heard::default());
        let pipe = BufReader::new(pipe);
        let writer = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                let mut state = writer.state.lock();
                match line["tag"].as_str() {
                    Some(tag) => state.events.push(Event {
                        tag: tag.to_owned(),
                        data: line["data"].clone(),
                    }),
                    None => state.listening = true,
                }
                writer.changed.notify_all();
            }
            writer.state.lock().ended = true;
            writer.changed.notify_all();
        });
        let listener = Self {
            child,
            group,
            heard,
            pull: sock_dir.join("master_event_pull.ipc"),
        };
        listener.wait("the listener to connect", SOON, |state| {
            state.listening.then_some(())
        })?;
        Ok(listener)
    }

    /// Waits for an event for which `pick` gives a value; earlier events count too.
    ///
    /// # Errors
    /// When none comes in time: the message lists the tags that came.
    pub fn find<T>(
        &self,
        what: &str,
        limit: Duration,
        pick: impl Fn(&Event) -> Option<T>,
    ) -> Result<T> {
        self.wait(what, limit, |state| state.events.iter().find_map(&pick))
    }

    /// Waits for an event with exactly this tag and returns it.
    ///
    /// # Errors
    /// As [`Listener::find`].
    pub fn tag(&self, tag: &str, limit: Duration) -> Result<Event> {
        let what = format!("an event tagged {tag:?}");
        self.find(&what, limit, |event| {
            (event.tag == tag).then(|| event.clone())
        })
    }

    /// How many events the master had sent by now: a mark for [`Listener::since`]. The listener may be behind a
    /// command that has ended, so an event of our own is fired, and what came up to it is before the mark. Where
    /// no master passes it on, what has come is.
    pub fn mark(&self) -> usize {
        let tag = format!("{MARK}{}", MARKS.fetch_add(1, Relaxed));
        let passed = || {
            fire(&self.pull, &tag).ok()?;
            let is_it = |event: &Event| event.tag == tag;
            let position = |state: &State| state.events.iter().position(is_it);
            self.wait("a mark", MARK_WAIT, position).ok()
        };
        match passed() {
            Some(position) => position + 1,
            None => self.heard.state.lock().events.len(),
        }
    }

    /// The events from a mark up to now, without those of marks.
    pub fn since(&self, mark: usize) -> Vec<Event> {
        self.mark();
        let state = self.heard.state.lock();
        let since = state.events.iter().skip(mark);
        since
            .filter(|event| !event.tag.starts_with(MARK))
            .cloned()
            .collect()
    }

    /// Waits for an event after the mark for which `pick` gives a value.
    ///
    /// # Errors
    /// As [`Listener::find`].
    pub fn find_since<T>(
        &self,
        mark: usize,
        what: &str,
        limit: Duration,
        pick: impl Fn(&Event) -> Option<T>,
    ) -> Result<T> {
        self.wait(what, limit, |state| {
            state.events[mark..].iter().find_map(&pick)
        })
    }

    fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        pick: impl Fn(&State) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        let mut state = self.heard.state.lock();
        loop {
            if let Some(value) = pick(&state) {
                return Ok(value);
            }
            if state.ended {
                bail!("the event listener ended while waiting for {what}");
            }
            if self.heard.changed.wait_until(&mut state, end).timed_out() {
                let tags: Vec<&str> = state
                    .events
                    .iter()
                    .map(|event| event.tag.as_str())
                    .collect();
                bail!("waited {limit:?} in vain for {what}; events so far: {tags:#?}");
            }
        }
    }
}

/// Fires an event without data, framed as stock's own tools do (`salt/transport/tcp.py`, `PublishServer`).
fn fire(pull: &Path, tag: &str) -> io::Result<()> {
    let data = [tag.as_bytes(), b"\n\n\x80"].concat();
    let length = u8::try_from(data.len()).map_err(io::Error::other)?;
    let frame = [&b"\x82\xa4head\x80\xa4body\xc4"[..], &[length], &data].concat();
    let prefix = u32::try_from(frame.len()).map_err(io::Error::other)?;
    let mut stream = UnixStream::connect(pull)?;
    stream.set_write_timeout(Some(MARK_WAIT))?;
    stream.write_all(&[&prefix.to_be_bytes(), &*frame].concat())
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.end(Signal::KILL);
        }
        self.child.wait().ok();
    }
}

//! Queue of log-ins that wait for their backend: fair by address and, at each address, by name, so
//! that password guessing does not keep others from logging in.
//!
//! Bounded: a new log-in is taken as long as another queue has more to shed. Of a name with too
//! many waiting the oldest is shed: behind however many wrong passwords the right one is late, not
//! refused, unless so many follow it that it becomes the oldest itself. At a full address, the
//! name with most gives way to one with less. Names with a successful log-in from their address
//! have a lane of their own, which takes turns with the others and to which these give way: anybody
//! can invent names, and many have a thousand addresses. An IPv6 network of 64 bits counts as one
//! address: smaller ones are not assigned.
//!
//! A refused log-in keeps no slot while its answer is delayed (`login_worker.rs`), or a few
//! strangers would lock everybody out. It counts against its address and name together: many users
//! may come from one address, where salt-api is. While too many refusals of one name are delayed,
//! its next tries wait and others are served: guesses are slow.
//!
//! Not here: which of several passwords for a name is the right one. Only the backend knows, and
//! calling it out of turn would let passwords be guessed quickly.

pub(crate) mod proved;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{Histogram, IntCounter, IntGauge, Registry, SECONDS};
use saltern_base::metrics::{counter, gauge, histogram};
use saltern_requests::LogIn;
use saltern_wire::port::network;
use tokio::time::Instant;

use self::proved::{NameDigest, ProvedNames};
use crate::content::renderer::Look;
use crate::shared::answer::PendingReply;
use crate::shared::fair_queue::FairQueue;

/// Waiting log-ins, in all and of one address; salt-api sends those of all its users from one.
const MAX_WAITING: usize = 1_024;
const MAX_PER_ADDRESS: usize = 256;

/// Waiting log-ins of one name at one address. The last of them is served, after as many refusals,
/// before its client gives up.
const MAX_PER_NAME: usize = 64;

/// Slots that are reserved for names without a successful log-in from their address: in all, and
/// of one address.
const FLOOR: usize = MAX_WAITING / 8;
const FLOOR_OF_ADDRESS: usize = MAX_PER_ADDRESS / 8;

/// Minimum time between two writes of the proved names, apart from the one at the end.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Tries of one name at one address that are under way or whose refusal is delayed; at that number,
/// its next try waits. With the delay, this bounds the guesses a second.
const MAX_TRIES: usize = 4;

/// A log-in and the reply to its sender.
pub(crate) struct Login {
    pub(crate) log_in: LogIn,
    pub(crate) answer: PendingReply,
}

/// Queue of the log-ins that wait for a login worker.
pub(crate) struct Logins {
    lines: Mutex<Lines>,
    digest: NameDigest,
    saved: Mutex<Saved>,
    login_workers: Vec<Recipient<Look>>,
    waiting: IntGauge,
    shed: IntCounter,
    /// Refusals that were answered early because too many were held back.
    pub(crate) early: IntCounter,
    pub(crate) taking: Histogram,
}

/// File and time of the last saved names that have logged in.
struct Saved {
    memory: Option<PathBuf>,
    at: Option<Instant>,
}

/// A client that logs in: its address, and the digest of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Who {
    address: IpAddr,
    name: u64,
}

#[derive(Default)]
struct Lines {
    /// Of names with a successful log-in from their address.
    proved: Lane,
    unknown: Lane,
    is_turn_of_unknown: bool,
    /// Tries under way and delayed refusals, by client.
    tries: HashMap<Who, usize>,
    names: ProvedNames,
}

/// Log-ins by address and name; addresses take turns.
#[derive(Default)]
struct Lane {
    by_address: HashMap<IpAddr, FairQueue<u64, Login>>,
    /// Each address of `by_address` once, the next one in front.
    turns: VecDeque<IpAddr>,
    /// Length of the queue of each address.
    by_length: BTreeSet<(usize, IpAddr)>,
    waiting: usize,
}

impl Lane {
    fn len_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, FairQueue::len)
    }

    fn longest(&self) -> (usize, IpAddr) {
        let none = (0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.by_length.last().copied().unwrap_or(none)
    }

    /// Changes the queue of an address.
    fn change<T>(
        &mut self,
        address: IpAddr,
        change: impl FnOnce(&mut FairQueue<u64, Login>) -> T,
    ) -> T {
        let queue = self.by_address.entry(address).or_default();
        let before = queue.len();
        let result = change(queue);
        let after = queue.len();
        self.waiting = self.waiting - before + after;
        self.by_length.remove(&(before, address));
        if after > 0 {
            self.by_length.insert((after, address));
        } else {
            self.by_address.remove(&address);
        }
        match (before, after) {
            (0, 1..) => self.turns.push_back(address),
            (1.., 0) => self.turns.retain(|other| *other != address),
            _ => {}
        }
        result
    }

    /// The next log-in of a client that is ready.
    fn pop(&mut self, is_ready: impl Fn(Who) -> bool) -> Option<Login> {
        for _ in 0..self.turns.len() {
            let address = self.turns.pop_front()?;
            self.turns.push_back(address);
            let is_ready = |name: &u64| {
                is_ready(Who {
                    address,
                    name: *name,
                })
            };
            let login = self.change(address, |queue| queue.pop_if(is_ready));
            if login.is_some() {
                return login;
            }
        }
        None
    }

    /// Sheds the youngest log-in of the name with most at this address.
    fn shed(&mut self, address: IpAddr) -> Option<Login> {
        self.change(address, |queue| {
            queue.pop_over(1).or_else(|| queue.pop_last())
        })
    }

    /// Sheds one of the address with most, if that has more than `most`.
    fn shed_over(&mut self, most: usize) -> Option<Login> {
        let (length, address) = self.longest();
        (length > most).then(|| self.shed(address)).flatten()
    }
}

impl Lines {
    fn waiting(&self) -> usize {
        self.proved.waiting + self.unknown.waiting
    }

    fn lane(&mut self, is_proved: bool) -> &mut Lane {
        match is_proved {
            true => &mut self.proved,
            false => &mut self.unknown,
        }
    }

    /// Adds a log-in; gives back the one that is shed for it: it, or another one.
    fn push(&mut self, who: Who, login: Login) -> Option<Login> {
        let is_proved = self.names.contains(&who);
        let here = self.proved.len_of(who.address) + self.unknown.len_of(who.address);
        let lane = self.lane(is_proved);
        let queue = lane.by_address.get(&who.address);
        let mut given_up = None;
        if queue.is_some_and(|queue| queue.len_of(&who.name) >= MAX_PER_NAME) {
            let oldest = |queue: &mut FairQueue<u64, Login>| queue.pop_oldest_of(&who.name);
            given_up = lane.change(who.address, oldest);
        } else if here >= MAX_PER_ADDRESS {
            given_up = self.give_way_here(who, is_proved);
            if given_up.is_none() {
                return Some(login);
            }
        } else if self.waiting() >= MAX_WAITING {
            given_up = self.give_way(who.address, is_proved);
            if given_up.is_none() {
                return Some(login);
            }
        }
        let lane = self.lane(is_proved);
        lane.change(who.address, |queue| queue.push(who.name, login));
        given_up
    }

    /// The log-in at a full address that is shed for one of this name, if one is.
    fn give_way_here(&mut self, who: Who, is_proved: bool) -> Option<Login> {
        let address = who.address;
        if is_proved && self.unknown.len_of(address) > FLOOR_OF_ADDRESS {
            return self.unknown.shed(address);
        }
        let other = self.lane(is_proved).change(address, |queue| {
            let share = queue.share_of(&who.name, queue.len());
            let has_less = queue.len_of(&who.name) < share;
            has_less.then(|| queue.pop_over(share)).flatten()
        });
        if other.is_none() && !is_proved && self.unknown.len_of(address) < FLOOR_OF_ADDRESS {
            let over = |queue: &mut FairQueue<u64, Login>| queue.pop_over(FLOOR_OF_ADDRESS);
            return self.proved.change(address, over);
        }
        other
    }

    /// The log-in that is shed for one of this address in a full queue, if one is.
    fn give_way(&mut self, address: IpAddr, is_proved: bool) -> Option<Login> {
        if is_proved && self.unknown.waiting > FLOOR {
            return self.unknown.shed_over(0);
        }
        let here = self.lane(is_proved).len_of(address);
        let other = self.lane(is_proved).shed_over(here + 1);
        if other.is_none() && !is_proved && self.unknown.waiting < FLOOR {
            return self.proved.shed_over(0);
        }
        other
    }

    /// The next log-in of a client with fewer tries than `max_tries`; both lanes take turns.
    fn pop(&mut self, max_tries: usize) -> Option<Login> {
        let first = !self.is_turn_of_unknown;
        for is_proved in [first, !first] {
            let (lane, tries) = match is_proved {
                true => (&mut self.proved, &self.tries),
                false => (&mut self.unknown, &self.tries),
            };
            let login = lane.pop(|who| tries.get(&who).is_none_or(|tries| *tries < max_tries));
            if login.is_some() {
                self.is_turn_of_unknown = is_proved;
                return login;
            }
        }
        None
    }
}

/// A log-in whose backend is being called.
pub(crate) struct Turn(Try);

impl Turn {
    /// Ends it as refused: counts against the client until its answer has left.
    pub(crate) fn refused(self) -> Try {
        self.0
    }

    /// Ends it as successful.
    pub(crate) fn proved(self) {
        let Try { logins, who } = &self.0;
        let is_new = logins.lines.lock().names.remember(*who);
        if is_new {
            logins.save_soon();
        }
    }
}

/// Counts a try against its client for as long as it lives.
pub(crate) struct Try {
    logins: Arc<Logins>,
    who: Who,
}

impl Drop for Try {
    fn drop(&mut self) {
        let mut lines = self.logins.lines.lock();
        if let Some(count) = lines.tries.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                lines.tries.remove(&self.who);
            }
        }
        let somebody_waits = lines.waiting() > 0;
        drop(lines);
        if somebody_waits {
            self.logins.wake_login_workers();
        }
    }
}

impl Logins {
    /// Queue that knows the names which an earlier process saved at `memory`, and notifies these
    /// login workers of new log-ins.
    pub(crate) fn new(
        login_workers: Vec<Recipient<Look>>,
        memory: Option<PathBuf>,
        registry: &Registry,
    ) -> Arc<Self> {
        let read = memory.as_deref().map(proved::read).transpose();
        let read = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "the names that have logged in cannot be read");
            None
        });
        let (digest, names) = read.unwrap_or_default();
        let lines = Lines {
            names,
            ..Lines::default()
        };
        Arc::new(Self {
            lines: Mutex::new(lines),
            digest,
            saved: Mutex::new(Saved { memory, at: None }),
            login_workers,
            waiting: gauge(
                registry,
                "saltern_logins_waiting",
                "Log-ins that wait for their backend to be asked.",
            ),
            shed: counter(
                registry,
                "saltern_logins_shed_total",
                "Log-ins refused unheard: too many waited, in all, from one address or of one user \
                 there.",
            ),
            early: counter(
                registry,
                "saltern_login_refusals_early_total",
                "Refused log-ins answered early because too many were held back.",
            ),
            taking: histogram(
                registry,
                "saltern_login_seconds",
                "Time that a backend takes to authenticate a user; waiting is not in it.",
                SECONDS,
            ),
        })
    }

    /// Adds a log-in; one that is shed for it is answered at once.
    pub(crate) fn push(&self, login: Login) {
        let who = self.who(&login.log_in);
        let given_up = {
            let mut lines = self.lines.lock();
            let given_up = lines.push(who, login);
            self.count(&lines);
            given_up
        };
        if let Some(login) = given_up {
            self.shed.inc();
            login.answer.failed();
        }
        self.wake_login_workers();
    }

    /// The next log-in. A client with too many tries is skipped until one of them has ended.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Login, Turn)> {
        let mut lines = self.lines.lock();
        let login = lines.pop(MAX_TRIES)?;
        let who = self.who(&login.log_in);
        *lines.tries.entry(who).or_default() += 1;
        self.count(&lines);
        let logins = Arc::clone(self);
        Some((login, Turn(Try { logins, who })))
    }

    /// The next log-in without regard to tries: when the master stops.
    pub(crate) fn give_up(&self) -> Option<Login> {
        let mut lines = self.lines.lock();
        let login = lines.pop(usize::MAX);
        self.count(&lines);
        login
    }

    fn count(&self, lines: &Lines) {
        let waiting = i64::try_from(lines.waiting()).unwrap_or(i64::MAX);
        self.waiting.set(waiting);
    }

    fn who(&self, log_in: &LogIn) -> Who {
        Who {
            address: network(log_in.from()),
            name: self.digest.of(log_in.user()),
        }
    }

    /// Saves the names that have logged in for the next process, at the end of this one.
    pub(crate) fn save(&self) {
        let mut saved = self.saved.lock();
        let Some(path) = saved.memory.clone() else {
            return;
        };
        saved.at = Some(Instant::now());
        let text = self.lines.lock().names.to_text(&self.digest);
        if let Err(error) = proved::write(&path, &text) {
            tracing::debug!(%error, "the names that have logged in cannot be saved");
        }
    }

    fn save_soon(&self) {
        let is_due = |at: Instant| at.elapsed() >= SAVE_INTERVAL;
        let is_due = self.saved.lock().at.is_none_or(is_due);
        if is_due {
            self.save();
        }
    }

    fn wake_login_workers(&self) {
        for login_worker in &self.login_workers {
            // A full mailbox holds a look that is still to come, which sees this one too.
            let _ = login_worker.try_send(Look);
        }
    }
}

#[cfg(test)]
mod tests;

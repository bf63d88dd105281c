//! Queue of log-ins that wait for their backend: fair by address and, at each address, by name, so
//! that password guessing does not keep others from logging in.
//!
//! Bounded: a new log-in is taken as long as another queue has more to shed. Of a name with too
//! many waiting the oldest is shed: behind however many wrong passwords the right one is late, not
//! refused, unless so many follow it that it becomes the oldest itself. At a full address, the
//! name with most gives way to one with less; names without a successful log-in from there give
//! way first, because anybody can invent them. An IPv6 network of 64 bits counts as one address:
//! smaller ones are not assigned.
//!
//! A refused log-in keeps no slot while its answer is delayed (`login_worker.rs`), or a few
//! strangers would lock everybody out. It counts against its address and name together: many users
//! may come from one address, where salt-api is. While too many refusals of one name are delayed,
//! its next tries wait and others are served: guesses are slow.
//!
//! Not here: which of several passwords for a name is the right one. Only the backend knows, and
//! calling it out of turn would let passwords be guessed quickly.

mod proved;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{Histogram, IntCounter, IntGauge, Registry, SECONDS};
use saltern_base::metrics::{counter, gauge, histogram};
use saltern_requests::LogIn;
use saltern_wire::port::network;

use self::proved::Proved;
use crate::content::renderer::Look;
use crate::shared::answer::PendingReply;
use crate::shared::fair_queue::FairQueue;

/// Waiting log-ins, in all and of one address; salt-api sends those of all its users from one.
const MAX_WAITING: usize = 1_024;
const MOST_OF_ADDRESS: usize = 256;

/// Waiting log-ins of one name at one address. The last of them is served, after as many refusals,
/// before its client gives up.
const MOST_OF_NAME: usize = 64;

/// Slots of an address that are reserved for names without a successful log-in from there.
const FLOOR: usize = MOST_OF_ADDRESS / 8;

/// Delayed refusals of one name at one address; at that number, its next try waits. With the
/// delay, this bounds the guesses a second.
const MOST_REFUSED: usize = 4;

/// A log-in and the reply to its sender.
pub(crate) struct Login {
    pub(crate) log_in: LogIn,
    pub(crate) answer: PendingReply,
}

/// Queue of the log-ins that wait for a login worker.
pub(crate) struct Logins {
    lines: Mutex<Lines>,
    names: RandomState,
    login_workers: Mutex<Vec<Recipient<Look>>>,
    waiting: IntGauge,
    shed: IntCounter,
    /// Refusals that were answered early because too many were held back.
    pub(crate) early: IntCounter,
    pub(crate) taking: Histogram,
}

/// A client that logs in: its address, and the hash of the name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Who {
    address: IpAddr,
    name: u64,
}

#[derive(Default)]
struct Lines {
    /// Addresses with waiting log-ins.
    by_address: HashMap<IpAddr, Line>,
    /// Each address of `by_address` once, the next one in front.
    turns: VecDeque<IpAddr>,
    /// Length of the queue of each address.
    by_length: BTreeSet<(usize, IpAddr)>,
    waiting: usize,
    /// Delayed refusals, by client.
    refused: HashMap<Who, usize>,
    proved: Proved,
}

/// Log-ins of one address, by name.
#[derive(Default)]
struct Line {
    /// Of names with a successful log-in from there.
    proved: FairQueue<u64, Login>,
    unknown: FairQueue<u64, Login>,
    is_turn_of_unknown: bool,
}

impl Line {
    fn len(&self) -> usize {
        self.proved.len() + self.unknown.len()
    }

    fn lane(&mut self, is_proved: bool) -> &mut FairQueue<u64, Login> {
        match is_proved {
            true => &mut self.proved,
            false => &mut self.unknown,
        }
    }

    /// The next log-in of a name that is ready; both lanes take turns.
    fn pop(&mut self, is_ready: impl Fn(u64) -> bool) -> Option<Login> {
        let first = !self.is_turn_of_unknown;
        let next = [first, !first].into_iter().find_map(|is_proved| {
            let login = self.lane(is_proved).pop_if(|name| is_ready(*name))?;
            Some((is_proved, login))
        });
        next.map(|(is_proved, login)| {
            self.is_turn_of_unknown = is_proved;
            login
        })
    }

    /// The log-in that is shed for one of this name, if one is.
    fn give_way(&mut self, name: u64, is_proved: bool) -> Option<Login> {
        if is_proved
            && self.unknown.len() > FLOOR
            && let Some(other) = take_youngest(&mut self.unknown)
        {
            return Some(other);
        }
        let lane = self.lane(is_proved);
        let share = lane.share_of(&name, lane.len());
        let has_less = lane.len_of(&name) < share;
        let other = has_less.then(|| lane.pop_over(share)).flatten();
        if other.is_none() && !is_proved && self.unknown.len() < FLOOR {
            return self.proved.pop_over(FLOOR);
        }
        other
    }
}

/// The youngest log-in of the name with most.
fn take_youngest(lane: &mut FairQueue<u64, Login>) -> Option<Login> {
    lane.pop_over(1).or_else(|| lane.pop_last())
}

impl Lines {
    fn has_tried_enough(&self, who: &Who) -> bool {
        let refused = self.refused.get(who);
        refused.is_some_and(|count| *count >= MOST_REFUSED)
    }

    fn len_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, Line::len)
    }

    /// Adds a log-in; gives back the one that is shed for it: it, or another one.
    fn push(&mut self, who: Who, login: Login) -> Option<Login> {
        let is_proved = self.proved.contains(&who);
        let here = self.len_of(who.address);
        let (mut given_up, mut of) = (None, who.address);
        if let Some(line) = self.by_address.get_mut(&who.address) {
            let lane = line.lane(is_proved);
            if lane.len_of(&who.name) >= MOST_OF_NAME {
                given_up = lane.pop_oldest_of(&who.name);
            } else if here >= MOST_OF_ADDRESS {
                given_up = line.give_way(who.name, is_proved);
                if given_up.is_none() {
                    return Some(login);
                }
            }
        }
        if given_up.is_none() && self.waiting >= MAX_WAITING {
            let longest = self.by_length.last().copied();
            let Some((_, address)) = longest.filter(|(length, _)| *length > here + 1) else {
                return Some(login);
            };
            let line = self.by_address.get_mut(&address);
            given_up = line.and_then(|line| {
                let unknown = take_youngest(&mut line.unknown);
                unknown.or_else(|| take_youngest(&mut line.proved))
            });
            of = address;
        }
        if given_up.is_some() {
            self.resize(of, |length| length + 1);
        }
        let line = self.by_address.entry(who.address).or_default();
        line.lane(is_proved).push(who.name, login);
        self.resize(who.address, |length| length - 1);
        given_up
    }

    /// Records the new length of an address' queue; `before` computes the old one.
    fn resize(&mut self, address: IpAddr, before: impl Fn(usize) -> usize) {
        let length = self.len_of(address);
        let before = before(length);
        self.waiting = (self.waiting - before) + length;
        self.by_length.remove(&(before, address));
        if length > 0 {
            self.by_length.insert((length, address));
        } else {
            self.by_address.remove(&address);
        }
        if before == 0 {
            self.turns.push_back(address);
        }
    }

    /// The next log-in of a client that is not skipped.
    fn pop(&mut self, is_passed_over: impl Fn(&Self, &Who) -> bool) -> Option<Login> {
        for _ in 0..self.turns.len() {
            let address = self.turns.pop_front()?;
            // Taken out of the map while it is looked at: what decides is kept beside it.
            let mut line = self.by_address.remove(&address)?;
            let login = line.pop(|name| !is_passed_over(self, &Who { address, name }));
            if line.len() > 0 {
                self.turns.push_back(address);
            }
            self.by_address.insert(address, line);
            if login.is_some() {
                self.resize(address, |length| length + 1);
                return login;
            }
        }
        None
    }
}

/// A log-in whose backend is being called.
pub(crate) struct Turn {
    logins: Arc<Logins>,
    who: Who,
}

impl Turn {
    /// Ends it as refused: counts against the client until its answer has left.
    pub(crate) fn refused(self) -> Refused {
        let mut lines = self.logins.lines.lock();
        *lines.refused.entry(self.who).or_default() += 1;
        drop(lines);
        Refused {
            logins: self.logins,
            who: self.who,
        }
    }

    /// Ends it as successful.
    pub(crate) fn proved(self) {
        self.logins.lines.lock().proved.remember(self.who);
    }
}

/// Counts a refusal against its client for as long as it lives.
pub(crate) struct Refused {
    logins: Arc<Logins>,
    who: Who,
}

impl Drop for Refused {
    fn drop(&mut self) {
        let mut lines = self.logins.lines.lock();
        if let Some(count) = lines.refused.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                lines.refused.remove(&self.who);
            }
        }
        let somebody_waits = lines.waiting > 0;
        drop(lines);
        if somebody_waits {
            self.logins.wake_login_workers();
        }
    }
}

impl Logins {
    pub(crate) fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            lines: Mutex::default(),
            names: RandomState::new(),
            login_workers: Mutex::default(),
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

    /// Sets the login workers to notify of new log-ins.
    pub(crate) fn set_login_workers(&self, login_workers: Vec<Recipient<Look>>) {
        *self.login_workers.lock() = login_workers;
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

    /// The next log-in. A client with too many delayed refusals is skipped until one of them has
    /// left.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Login, Turn)> {
        let login = self.next(Lines::has_tried_enough)?;
        let turn = Turn {
            who: self.who(&login.log_in),
            logins: Arc::clone(self),
        };
        Some((login, turn))
    }

    /// The next log-in without regard to delays: when the master stops.
    pub(crate) fn give_up(&self) -> Option<Login> {
        self.next(|_, _| false)
    }

    fn next(&self, is_passed_over: impl Fn(&Lines, &Who) -> bool) -> Option<Login> {
        let mut lines = self.lines.lock();
        let login = lines.pop(is_passed_over);
        self.count(&lines);
        login
    }

    fn count(&self, lines: &Lines) {
        let waiting = i64::try_from(lines.waiting).unwrap_or(i64::MAX);
        self.waiting.set(waiting);
    }

    fn who(&self, log_in: &LogIn) -> Who {
        Who {
            address: network(log_in.from()),
            name: self.names.hash_one(log_in.user()),
        }
    }

    fn wake_login_workers(&self) {
        for login_worker in self.login_workers.lock().iter() {
            // A full mailbox holds a look that is still to come, which sees this one too.
            let _ = login_worker.try_send(Look);
        }
    }
}

#[cfg(test)]
mod tests;

//! Log-ins that wait for their backend: in turns by address, so that nobody who tries passwords
//! keeps the others from logging in.
//!
//! An address may have a few under way; one beyond that is refused at once and counted. While there
//! are too many in all, the longest line gives up its last for who has less. Of IPv6 a network of
//! 64 bits counts as one address: nobody is given less.
//!
//! A refused log-in keeps no place while its answer is held back (`doorkeeper.rs`), or a few
//! strangers would lock everybody out. It counts against whoever tried, an address and a name
//! together: many users may come from one address, where salt-api is. While too many refusals of
//! one name are held back, its next tries wait and the others are heard: guesses are slow, and the
//! right password behind wrong ones is late, not refused.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{Histogram, IntCounter, IntGauge, Registry, SECONDS};
use saltern_base::metrics::{counter, gauge, histogram};
use saltern_requests::LogIn;

use crate::answer::Answer;
use crate::renderer::Look;

/// Log-ins that wait or are being asked about, in all and of one address; salt-api sends those of
/// all its users from one.
const MOST: usize = 256;
const MOST_OF_ADDRESS: usize = 32;

/// Refusals of one user at one address whose answers are held back; while there are as many, the
/// next try waits. With the time that each is held back, these are the guesses a second.
const MOST_REFUSED: usize = 4;

/// Log-ins of one user at one address that may wait: beyond it, one is refused at once, so that the
/// other users of the address keep places.
const MOST_OF_USER: usize = 16;

/// A log-in and the answer to whoever sent it.
pub(crate) struct Login {
    pub(crate) log_in: LogIn,
    pub(crate) answer: Answer,
}

/// See the module.
pub(crate) struct Logins {
    lines: Mutex<Lines>,
    doorkeepers: Mutex<Vec<Recipient<Look>>>,
    waiting: IntGauge,
    shed: IntCounter,
    /// Refusals that were answered early because too many were held back.
    pub(crate) early: IntCounter,
    pub(crate) taking: Histogram,
}

#[derive(Default)]
struct Lines {
    by_address: HashMap<IpAddr, Line>,
    /// Addresses with somebody in their line, each once.
    turns: VecDeque<IpAddr>,
    /// Those that wait or are being asked about.
    under_way: usize,
    /// Refusals whose answers are held back, by who tried.
    refused: HashMap<Who, usize>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Login>,
    under_way: usize,
}

impl Line {
    fn waiting_of(&self, user: &str) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|login| login.log_in.user() == user).count()
    }
}

/// Somebody who logs in.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Who {
    address: IpAddr,
    user: String,
}

impl Who {
    fn of(log_in: &LogIn) -> Self {
        Self {
            address: network(log_in.from()),
            user: log_in.user().to_owned(),
        }
    }
}

/// What counts as one address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host = u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !host))
        }
        address => address,
    }
}

impl Lines {
    fn has_tried_enough(&self, who: &Who) -> bool {
        self.refused
            .get(who)
            .is_some_and(|count| *count >= MOST_REFUSED)
    }

    /// Takes the last one out of the longest line, if it has more waiting than so many.
    fn cut_longest(&mut self, more_than: usize) -> Option<Login> {
        let lines = self.by_address.values_mut();
        let longest = lines.max_by_key(|line| line.waiting.len())?;
        if longest.waiting.len() <= more_than {
            return None;
        }
        longest.under_way -= 1;
        self.under_way -= 1;
        longest.waiting.pop_back()
    }
}

/// A log-in counts for as long as this lives.
pub(crate) struct Turn {
    logins: Arc<Logins>,
    who: Who,
}

impl Turn {
    /// The same for a log-in that is refused, until its answer has left: it gives its place up.
    pub(crate) fn refused(self) -> Refused {
        let (logins, who) = (self.logins.clone(), self.who.clone());
        *logins.lines.lock().refused.entry(who.clone()).or_default() += 1;
        Refused { logins, who }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.logins.lines.lock();
        lines.under_way -= 1;
        if let Some(line) = lines.by_address.get_mut(&self.who.address) {
            line.under_way -= 1;
            if line.under_way == 0 {
                lines.by_address.remove(&self.who.address);
            }
        }
    }
}

/// A refusal counts against who tried for as long as this lives.
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
        let somebody_waits = !lines.turns.is_empty();
        drop(lines);
        if somebody_waits {
            self.logins.wake_doorkeepers();
        }
    }
}

impl Logins {
    pub(crate) fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            lines: Mutex::default(),
            doorkeepers: Mutex::default(),
            waiting: gauge(
                registry,
                "saltern_logins_waiting",
                "Log-ins that wait for their backend to be asked.",
            ),
            shed: counter(
                registry,
                "saltern_logins_shed_total",
                "Log-ins refused unheard: too many were under way, in all, from one address or of \
                 one user there.",
            ),
            early: counter(
                registry,
                "saltern_login_refusals_early_total",
                "Refused log-ins answered early because too many were held back.",
            ),
            taking: histogram(
                registry,
                "saltern_login_seconds",
                "Time that a backend takes to say who somebody is; waiting is not in it.",
                SECONDS,
            ),
        })
    }

    /// Who is told of new log-ins.
    pub(crate) fn set_doorkeepers(&self, doorkeepers: Vec<Recipient<Look>>) {
        *self.doorkeepers.lock() = doorkeepers;
    }

    /// Takes a log-in; what there is no room for, this one or another, is answered at once.
    pub(crate) fn push(&self, login: Login) {
        if let Some(login) = self.take(login) {
            self.shed(login);
        }
        self.wake_doorkeepers();
    }

    /// Gives back the one that there is no room for.
    fn take(&self, login: Login) -> Option<Login> {
        let who = Who::of(&login.log_in);
        let address = who.address;
        let mut lines = self.lines.lock();
        let lines = &mut *lines;
        let of_address = lines.by_address.get(&address);
        let has = of_address.map_or(0, |line| line.under_way);
        let of_user = of_address.map_or(0, |line| line.waiting_of(&who.user));
        if has >= MOST_OF_ADDRESS || of_user >= MOST_OF_USER {
            return Some(login);
        }
        let mut cut = None;
        if lines.under_way >= MOST {
            cut = lines.cut_longest(has + 1);
            if cut.is_none() {
                return Some(login);
            }
            self.waiting.dec();
        }
        let line = lines.by_address.entry(address).or_default();
        if line.waiting.is_empty() {
            lines.turns.push_back(address);
        }
        line.waiting.push_back(login);
        line.under_way += 1;
        lines.under_way += 1;
        self.waiting.inc();
        cut
    }

    /// The next log-in; it counts until the turn is dropped. A user with too many refusals held back
    /// is passed over until one of them has left.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Login, Turn)> {
        self.next(Lines::has_tried_enough)
    }

    /// The next log-in, whoever it is: when the master stops.
    pub(crate) fn give_up(self: &Arc<Self>) -> Option<Login> {
        self.next(|_, _| false).map(|(login, _)| login)
    }

    fn next(
        self: &Arc<Self>,
        is_passed_over: impl Fn(&Lines, &Who) -> bool,
    ) -> Option<(Login, Turn)> {
        let mut lines = self.lines.lock();
        for _ in 0..lines.turns.len() {
            let address = lines.turns.pop_front()?;
            let at = lines.by_address.get(&address).and_then(|line| {
                let mut waiting = line.waiting.iter();
                waiting.position(|login| !is_passed_over(&lines, &Who::of(&login.log_in)))
            });
            let line = lines.by_address.get_mut(&address);
            let login = at
                .zip(line)
                .and_then(|(at, line)| Some((line.waiting.remove(at)?, line.waiting.is_empty())));
            if !matches!(login, Some((_, true))) {
                lines.turns.push_back(address);
            }
            if let Some((login, _)) = login {
                self.waiting.dec();
                let turn = Turn {
                    logins: Arc::clone(self),
                    who: Who::of(&login.log_in),
                };
                return Some((login, turn));
            }
        }
        None
    }

    fn wake_doorkeepers(&self) {
        for doorkeeper in self.doorkeepers.lock().iter() {
            // A full mailbox holds a look that is still to come, which sees this one too.
            let _ = doorkeeper.try_send(Look);
        }
    }

    fn shed(&self, login: Login) {
        self.shed.inc();
        login.answer.failed();
    }
}

#[cfg(test)]
mod tests;

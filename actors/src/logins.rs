//! Log-ins that wait for their backend: in turns by address, so that nobody who tries passwords
//! keeps the others from logging in.
//!
//! An address may have a few under way; one beyond that, and what comes while there are too many in
//! all, is refused at once and counted. A log-in counts until its answer has left: a refused one
//! is answered late, so an address has only so many guesses a second.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{Histogram, IntCounter, IntGauge, Registry, SECONDS};
use saltern_base::metrics::{counter, gauge, histogram};
use saltern_requests::LogIn;

use crate::answer::Answer;
use crate::renderer::Look;

/// Log-ins under way in all, and of one address; salt-api sends those of all its users from one.
const MOST: usize = 256;
const MOST_OF_ADDRESS: usize = 32;

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
    pub(crate) taking: Histogram,
}

#[derive(Default)]
struct Lines {
    by_address: HashMap<IpAddr, Line>,
    /// Addresses with somebody in their line, each once.
    turns: VecDeque<IpAddr>,
    /// Those that wait, are being asked about, or are yet to be answered.
    under_way: usize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Login>,
    under_way: usize,
}

/// A log-in counts for as long as this lives.
pub(crate) struct Turn {
    logins: Arc<Logins>,
    address: IpAddr,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.logins.lines.lock();
        lines.under_way -= 1;
        if let Some(line) = lines.by_address.get_mut(&self.address) {
            line.under_way -= 1;
            if line.under_way == 0 {
                lines.by_address.remove(&self.address);
            }
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
                "Log-ins refused because too many were under way, in all or from one address.",
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

    /// Takes a log-in, or answers it at once if there is no room.
    pub(crate) fn push(&self, login: Login) {
        if let Some(login) = self.take(login) {
            self.shed.inc();
            login.answer.failed();
            return;
        }
        for doorkeeper in self.doorkeepers.lock().iter() {
            // A full mailbox holds a look that is still to come, which sees this one too.
            let _ = doorkeeper.try_send(Look);
        }
    }

    /// Gives the log-in back if there is no room for it.
    fn take(&self, login: Login) -> Option<Login> {
        let address = login.log_in.from();
        let mut lines = self.lines.lock();
        let lines = &mut *lines;
        let of_address = lines.by_address.get(&address);
        let has = of_address.map_or(0, |line| line.under_way);
        if lines.under_way >= MOST || has >= MOST_OF_ADDRESS {
            return Some(login);
        }
        let line = lines.by_address.entry(address).or_default();
        if line.waiting.is_empty() {
            lines.turns.push_back(address);
        }
        line.waiting.push_back(login);
        line.under_way += 1;
        lines.under_way += 1;
        self.waiting.inc();
        None
    }

    /// The next log-in; it counts until the turn is dropped.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Login, Turn)> {
        let mut lines = self.lines.lock();
        let address = lines.turns.pop_front()?;
        let line = lines.by_address.get_mut(&address)?;
        let login = line.waiting.pop_front()?;
        if !line.waiting.is_empty() {
            lines.turns.push_back(address);
        }
        self.waiting.dec();
        let turn = Turn {
            logins: Arc::clone(self),
            address,
        };
        Some((login, turn))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_requests::{Handled, LoginEnd, Outcome};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::testing::{Port, in_system};

    const BUSY: &[u8] = b"too many";

    async fn push(logins: &Logins, port: &mut Port, last: u8) -> JoinHandle<Bytes> {
        let (request, reply) = port.ask(b"log in").await;
        let log_in = LogIn::new(IpAddr::from([10, 0, 0, last]), "ana", || LoginEnd {
            handled: Handled {
                outcome: Outcome::reply("done"),
                command: "publish",
                minion: None,
            },
            is_refused: false,
        });
        let answer = Answer::without_place(request.reply, Bytes::from_static(BUSY));
        logins.push(Login { log_in, answer });
        reply
    }

    #[test]
    fn addresses_take_turns() {
        in_system(async {
            let logins = Logins::new(&Registry::new());
            let mut port = Port::open();
            let mut replies = Vec::new();
            for last in [1, 1, 1, 2, 3, 2] {
                replies.push(push(&logins, &mut port, last).await);
            }
            let mut order = Vec::new();
            while let Some((login, _turn)) = logins.pop() {
                let IpAddr::V4(address) = login.log_in.from() else {
                    panic!("an address of the test");
                };
                order.push(address.octets()[3]);
            }
            assert_eq!(order, [1, 2, 3, 1, 2, 1]);
            assert_eq!(logins.waiting.get(), 0);
            assert!(logins.lines.lock().by_address.is_empty());
        });
    }

    #[test]
    fn an_address_has_a_few_under_way_and_keeps_nobody_else_out() {
        in_system(async {
            let logins = Logins::new(&Registry::new());
            let mut port = Port::open();
            let mut replies = Vec::new();
            for _ in 0..MOST_OF_ADDRESS {
                replies.push(push(&logins, &mut port, 1).await);
            }
            let refused = push(&logins, &mut port, 1).await;
            assert_eq!(refused.await.unwrap(), BUSY);
            assert_eq!(logins.shed.get(), 1);
            replies.push(push(&logins, &mut port, 2).await);
            // One that is asked about, or not answered yet, still counts.
            let (login, turn) = logins.pop().unwrap();
            drop(login);
            let refused = push(&logins, &mut port, 1).await;
            assert_eq!(refused.await.unwrap(), BUSY);
            drop(turn);
            replies.push(push(&logins, &mut port, 1).await);
            assert_eq!(logins.shed.get(), 2);
            let all = usize::try_from(logins.waiting.get()).unwrap();
            assert_eq!(all, MOST_OF_ADDRESS + 1);
        });
    }
}

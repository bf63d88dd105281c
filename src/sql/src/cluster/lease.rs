//! A lease: who among several members owns something, such as the jobs of a schema. Pure: it is given
//! the time and the answers, and says what to ask.
//!
//! PostgreSQL's clock decides when a lease is over. Its owner stops by its own monotonic clock: at two
//! thirds of the lease after it *sent* the last renewal that was granted, since the database counted from
//! a later moment. So a clock may run a third slower than the database's before two members own one
//! thing, and the epoch, which each owner's write compares, holds even then.

use std::time::Duration;

/// Number of requests for a renewal, or tries for a lease of others, in the time of a lease.
const REQUESTS_A_LEASE: u32 = 6;

/// Something to ask of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Take the lease, if nobody has it; the answer is the new epoch.
    Take,
    /// Keep the lease of this epoch; the answer is the same epoch.
    Renew(i64),
    /// Give up the lease of this epoch, so that others need not wait for its end.
    Release(i64),
}

/// A question, with the number that its answer comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Its number.
    pub number: u64,
    /// The question.
    pub action: LeaseAction,
}

/// Ownership, until a time of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ownership {
    epoch: i64,
    until: Duration,
}

/// The request that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Sent {
    request: LeaseRequest,
    at: Duration,
}

/// One member's part in a lease. Times are those of its monotonic clock.
#[derive(Debug)]
pub struct LeaseHolder {
    length: Duration,
    owned: Option<Ownership>,
    sent: Option<Sent>,
    numbers: u64,
    /// No request before.
    next: Duration,
}

impl LeaseHolder {
    /// A member that owns nothing yet. `length` is that of the lease.
    pub fn new(length: Duration) -> Self {
        Self {
            length,
            owned: None,
            sent: None,
            numbers: 0,
            next: Duration::ZERO,
        }
    }

    /// The epoch of the lease, if this member owns it now.
    pub fn epoch(&self, now: Duration) -> Option<i64> {
        let owned = self.owned.filter(|owned| now < owned.until)?;
        Some(owned.epoch)
    }

    /// The next request, if one is due. One whose answer is late is given up: its number is not known
    /// any more.
    pub fn due(&mut self, now: Duration) -> Option<LeaseRequest> {
        if now < self.next {
            return None;
        }
        self.next = now + self.length / REQUESTS_A_LEASE;
        // A lease whose time is over is not asked for again by its epoch: another one may have it.
        let action = self
            .epoch(now)
            .map_or(LeaseAction::Take, LeaseAction::Renew);
        let request = self.request(action);
        self.sent = Some(Sent { request, at: now });
        Some(request)
    }

    /// The database has answered a request: with the epoch that it granted, or with a refusal.
    pub fn answered(&mut self, number: u64, granted: Option<i64>) {
        let Some(sent) = self.sent.take_if(|sent| sent.request.number == number) else {
            return;
        };
        self.owned = granted.map(|epoch| Ownership {
            epoch,
            until: sent.at + self.length * 2 / 3,
        });
    }

    /// Stops owning; the request that lets others know, if there was something to own.
    pub fn release(&mut self, now: Duration) -> Option<LeaseRequest> {
        // An answer that is on its way must not make it the owner again.
        self.sent = None;
        self.next = now + self.length;
        let epoch = self.epoch(now);
        self.owned = None;
        epoch.map(|epoch| self.request(LeaseAction::Release(epoch)))
    }

    fn request(&mut self, action: LeaseAction) -> LeaseRequest {
        self.numbers += 1;
        let number = self.numbers;
        LeaseRequest { number, action }
    }
}

#[cfg(test)]
mod tests;

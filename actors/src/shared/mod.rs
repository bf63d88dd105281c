//! Shared parts of the actors of all branches: the reply to a request with its slot and its
//! latency, sending to bounded mailboxes, fair queues, thread priority, writes of histories.

pub(crate) mod answer;
pub(crate) mod fair_queue;
pub(crate) mod history_writer;
pub(crate) mod latency;
pub(crate) mod priority;
pub(crate) mod send;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod window;

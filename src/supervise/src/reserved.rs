//! Addresses that are handed out before their actor is started.

use actix::{
    Addr, Handler, Message, Recipient,
    dev::{
        ToEnvelope,
        channel::{AddressReceiver, channel},
    },
};

use crate::Child;

/// An address without an actor yet: for actors that send to each other, of which one has to be
/// started first.
///
/// Messages wait in the mailbox, within [`Child::MAILBOX`], until
/// [`Supervisor::start_reserved`](crate::Supervisor::start_reserved) starts the actor behind the
/// address. Dropped before, it closes the address: senders are refused as by an actor that has ended.
pub struct Reserved<A: Child> {
    address: Addr<A>,
    receiver: AddressReceiver<A>,
}

impl<A: Child> Reserved<A> {
    /// Reserves an address.
    #[must_use]
    pub fn new() -> Self {
        const { assert!(A::MAILBOX > 0, "a mailbox of 0 would be unbounded") };
        let (sender, receiver) = channel::<A>(A::MAILBOX);
        Self {
            address: Addr::new(sender),
            receiver,
        }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> Addr<A> {
        self.address.clone()
    }

    /// The address, for one kind of message.
    #[must_use]
    pub fn recipient<M>(&self) -> Recipient<M>
    where
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        self.address().recipient()
    }

    pub(crate) fn into_parts(self) -> (Addr<A>, AddressReceiver<A>) {
        (self.address, self.receiver)
    }
}

impl<A: Child> Default for Reserved<A> {
    fn default() -> Self {
        Self::new()
    }
}

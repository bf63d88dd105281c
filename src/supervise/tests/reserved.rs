//! Addresses that are handed out before their actor is started.

use actix::MailboxError;
use saltern_supervise::Reserved;

use crate::common::*;

#[test]
fn message_to_a_reserved_address_waits_for_its_actor() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let reserved = Reserved::<Probe>::new();
        let early = reserved.address();
        let answer = actix_rt::spawn(async move { early.send(Bump).await });
        tokio::task::yield_now().await;
        assert!(!answer.is_finished() && log.take().is_empty());
        let address = root.start_reserved(reserved, generous(), Script::new(7, &log), 7);
        assert_eq!(answer.await.unwrap(), Ok(1));
        assert_eq!(address.send(Bump).await, Ok(2));
    });
}

#[test]
fn reserved_address_without_an_actor_is_closed() {
    paused(async {
        let reserved = Reserved::<Probe>::new();
        let address = reserved.address();
        let recipient = reserved.recipient::<Bump>();
        assert!(address.connected());
        drop(reserved);
        assert!(!address.connected());
        assert_eq!(recipient.send(Bump).await, Err(MailboxError::Closed));
    });
}

#[test]
fn reserved_address_stays_good_over_restarts() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let reserved = Reserved::<Probe>::new();
        let recipient = reserved.recipient::<Bump>();
        let address = root.start_reserved(reserved, generous(), Script::new(0, &log), 0);
        assert!(address.send(boom()).await.is_err());
        assert_eq!(recipient.send(Bump).await, Ok(1));
        assert_eq!(tree.liveness()[0].restarts, 1);
    });
}

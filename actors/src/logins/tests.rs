use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use saltern_requests::{Handled, LoginEnd, Outcome};
use tokio::task::JoinHandle;

use super::*;
use crate::testing::{Port, in_system};

const BUSY: &[u8] = b"too many";

async fn push(logins: &Logins, port: &mut Port, last: u8) -> JoinHandle<Bytes> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let user = format!("user{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    push_of(logins, port, (IpAddr::from([10, 0, 0, last]), &user)).await
}

async fn push_of(
    logins: &Logins,
    port: &mut Port,
    (address, user): (IpAddr, &str),
) -> JoinHandle<Bytes> {
    let (request, reply) = port.ask(b"log in").await;
    let log_in = LogIn::new(address, user, || LoginEnd {
        handled: Handled {
            outcome: Outcome::reply("done"),
            command: "publish",
            minion: None,
            span: None,
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
        // One that is asked about still counts.
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

/// Strangers who are refused keep neither their own places nor anybody else's.
#[test]
fn refusals_count_against_who_tried_and_nobody_else() {
    in_system(async {
        let logins = Logins::new(&Registry::new());
        let mut port = Port::open();
        let api = IpAddr::from([10, 0, 0, 1]);
        let mut replies = Vec::new();
        let mut held_back = Vec::new();
        for _ in 0..=MOST_REFUSED {
            replies.push(push_of(&logins, &mut port, (api, "ana")).await);
        }
        for _ in 0..MOST_REFUSED {
            let (_, turn) = logins.pop().unwrap();
            held_back.push(turn.refused());
        }
        assert_eq!(logins.lines.lock().under_way, 1);
        // The fifth, and the sixth with the right password, wait until an answer has left.
        replies.push(push_of(&logins, &mut port, (api, "ana")).await);
        assert!(logins.pop().is_none());
        assert_eq!((logins.shed.get(), logins.waiting.get()), (0, 2));
        // Another user there, and the same name from elsewhere.
        for who in [(api, "bob"), (IpAddr::from([10, 0, 0, 2]), "ana")] {
            replies.push(push_of(&logins, &mut port, who).await);
            assert_eq!(Who::of(&logins.pop().unwrap().0.log_in).user, who.1);
        }
        for _ in 0..2 {
            assert!(logins.pop().is_none());
            held_back.pop();
            let (login, turn) = logins.pop().unwrap();
            assert_eq!(Who::of(&login.log_in).user, "ana");
            held_back.push(turn.refused());
        }
        held_back.clear();
        let lines = logins.lines.lock();
        assert!(lines.refused.is_empty() && lines.by_address.is_empty());
    });
}

/// Of a user who is tried without end a few wait; the other users of the address have places.
#[test]
fn flood_of_one_user_leaves_places_to_others_at_its_address() {
    in_system(async {
        let logins = Logins::new(&Registry::new());
        let mut port = Port::open();
        let api = IpAddr::from([10, 0, 0, 1]);
        let mut replies = Vec::new();
        for _ in 0..MOST_OF_USER {
            replies.push(push_of(&logins, &mut port, (api, "ana")).await);
        }
        let refused = push_of(&logins, &mut port, (api, "ana")).await;
        assert_eq!(refused.await.unwrap(), BUSY);
        replies.push(push_of(&logins, &mut port, (api, "bob")).await);
        let mut given_up = 0;
        while logins.give_up().is_some() {
            given_up += 1;
        }
        assert_eq!(given_up, MOST_OF_USER + 1);
        assert!(logins.lines.lock().by_address.is_empty());
    });
}

#[test]
fn a_full_house_has_room_for_who_has_less() {
    in_system(async {
        let logins = Logins::new(&Registry::new());
        let mut port = Port::open();
        let mut strangers = Vec::new();
        for number in 0..MOST {
            let last = u8::try_from(number / MOST_OF_ADDRESS).unwrap();
            strangers.push(push(&logins, &mut port, last).await);
        }
        let mut guests = Vec::new();
        for last in [100, 101] {
            guests.push(push(&logins, &mut port, last).await);
        }
        assert_eq!(logins.shed.get(), 2);
        let lines = || logins.lines.lock();
        assert_eq!(lines().under_way, MOST);
        assert_eq!(logins.waiting.get(), i64::try_from(MOST).unwrap());
        let mut heard = std::collections::HashSet::new();
        while let Some((login, _turn)) = logins.pop() {
            heard.insert(login.log_in.from());
        }
        assert_eq!(heard.len(), MOST / MOST_OF_ADDRESS + 2);
        assert_eq!((lines().under_way, logins.waiting.get()), (0, 0));
    });
}

#[test]
fn a_network_of_somebody_is_one_address() {
    let address = |text: &str| network(text.parse().unwrap());
    assert_eq!(address("2001:db8:1:2::3"), address("2001:db8:1:2:ffff::"));
    assert_ne!(address("2001:db8:1:2::3"), address("2001:db8:1:3::3"));
    assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
    assert_ne!(address("10.0.0.2"), address("10.0.0.1"));
}

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use saltern_requests::{Handled, LoginEnd, Outcome};
use tokio::task::JoinHandle;

use super::*;
use crate::shared::testing::{Port, in_system};

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
            audit: None,
        },
        is_refused: false,
    });
    let answer = PendingReply::without_place(request.reply, Bytes::from_static(BUSY));
    logins.push(Login { log_in, answer });
    reply
}

#[test]
fn addresses_take_turns() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
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
        is_empty(&logins);
    });
}

/// Whether nothing waits, and no record of clients is left.
fn is_empty(logins: &Logins) {
    let lines = logins.lines.lock();
    assert_eq!((lines.waiting(), logins.waiting.get()), (0, 0));
    for lane in [&lines.proved, &lines.unknown] {
        assert!(lane.by_address.is_empty() && lane.by_length.is_empty() && lane.turns.is_empty());
    }
}

fn api() -> IpAddr {
    IpAddr::from([10, 0, 0, 1])
}

/// Drains the queue by name; each log-in succeeds.
fn served(logins: &Arc<Logins>) -> Vec<String> {
    let all = std::iter::from_fn(|| {
        let (login, turn) = logins.pop()?;
        turn.proved();
        Some(login.log_in.user().to_owned())
    });
    all.collect()
}

#[test]
fn names_of_an_address_take_turns() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = Vec::new();
        for name in ["ana", "ana", "ana", "bob", "eve", "bob"] {
            replies.push(push_of(&logins, &mut port, (api(), name)).await);
        }
        assert_eq!(served(&logins), ["ana", "bob", "eve", "ana", "bob", "ana"]);
        is_empty(&logins);
    });
}

/// Strangers who are refused take neither their own slots nor those of others.
#[test]
fn refusals_count_against_their_own_client_only() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = Vec::new();
        let mut held_back = Vec::new();
        for _ in 0..=MAX_TRIES {
            replies.push(push_of(&logins, &mut port, (api(), "ana")).await);
        }
        for _ in 0..MAX_TRIES {
            let (_, turn) = logins.pop().unwrap();
            held_back.push(turn.refused());
        }
        assert_eq!(logins.lines.lock().waiting(), 1);
        // The fifth, and the sixth with the right password, wait until an answer has left.
        replies.push(push_of(&logins, &mut port, (api(), "ana")).await);
        assert!(logins.pop().is_none());
        assert_eq!((logins.shed.get(), logins.waiting.get()), (0, 2));
        // Another user there, and the same name from elsewhere.
        for who in [(api(), "bob"), (IpAddr::from([10, 0, 0, 2]), "ana")] {
            replies.push(push_of(&logins, &mut port, who).await);
            assert_eq!(logins.pop().unwrap().0.log_in.user(), who.1);
        }
        for _ in 0..2 {
            assert!(logins.pop().is_none());
            held_back.pop();
            let (login, turn) = logins.pop().unwrap();
            assert_eq!(login.log_in.user(), "ana");
            held_back.push(turn.refused());
        }
        held_back.clear();
        is_empty(&logins);
        assert!(logins.lines.lock().tries.is_empty());
    });
}

/// As many threads ask the backend as there are: each of them is a guess.
#[test]
fn tries_under_way_count_like_delayed_refusals() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = Vec::new();
        for _ in 0..2 * MAX_TRIES {
            replies.push(push_of(&logins, &mut port, (api(), "ana")).await);
        }
        let pop = || Some(logins.pop()?.1);
        let mut turns: Vec<Turn> = std::iter::from_fn(pop).collect();
        assert_eq!(turns.len(), MAX_TRIES);
        let refused = turns.pop().map(Turn::refused);
        assert!(logins.pop().is_none(), "it counts once");
        drop(refused);
        // One that panics frees its slot, too.
        turns.truncate(2);
        turns.extend(std::iter::from_fn(pop));
        assert_eq!(turns.len(), MAX_TRIES);
        turns.clear();
        served(&logins);
        is_empty(&logins);
        assert!(logins.lines.lock().tries.is_empty());
    });
}

/// However many wrong passwords wait, the next one is taken, and the oldest is shed.
#[test]
fn flooded_name_takes_the_latest_and_leaves_places_to_others_at_its_address() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = VecDeque::new();
        for _ in 0..MAX_PER_NAME {
            replies.push_back(push_of(&logins, &mut port, (api(), "ana")).await);
        }
        replies.push_back(push_of(&logins, &mut port, (api(), "ana")).await);
        let oldest = replies.pop_front().unwrap();
        assert_eq!(oldest.await.unwrap(), BUSY);
        // Four such names fill the address; a new one has less.
        for name in ["bob", "cid", "dot"] {
            for _ in 0..MAX_PER_NAME {
                replies.push_back(push_of(&logins, &mut port, (api(), name)).await);
            }
        }
        assert_eq!(logins.lines.lock().waiting(), MAX_PER_ADDRESS);
        let guest = push_of(&logins, &mut port, (api(), "guest")).await;
        assert_eq!(
            (logins.shed.get(), logins.lines.lock().waiting()),
            (2, MAX_PER_ADDRESS)
        );
        let served = served(&logins);
        assert_eq!(served.len(), MAX_PER_ADDRESS);
        assert!(
            served[..5].contains(&"guest".to_owned()),
            "{:?}",
            &served[..5]
        );
        assert!(!guest.is_finished() || guest.await.unwrap() != BUSY);
        is_empty(&logins);
    });
}

/// Names cost nothing: those with a successful log-in are not pushed out by others.
#[test]
fn invented_names_give_way_to_a_name_that_has_logged_in() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = vec![push_of(&logins, &mut port, (api(), "ana")).await];
        assert_eq!(served(&logins), ["ana"]);
        for number in 0..MAX_PER_ADDRESS {
            let name = format!("invented{number}");
            replies.push(push_of(&logins, &mut port, (api(), &name)).await);
        }
        assert_eq!(logins.shed.get(), 0);
        let one_more = push_of(&logins, &mut port, (api(), "invented")).await;
        assert_eq!(one_more.await.unwrap(), BUSY);
        replies.push(push_of(&logins, &mut port, (api(), "ana")).await);
        assert_eq!(logins.shed.get(), 2);
        let (first, turn) = logins.pop().unwrap();
        assert_eq!(first.log_in.user(), "ana");
        turn.proved();
        served(&logins);
        // Nor do names that are flooded keep out those who log in for the first time.
        for name in ["bob", "cid", "dot"] {
            let who = Who {
                address: api(),
                name: logins.digest.of(name),
            };
            logins.lines.lock().names.remember(who);
        }
        for name in ["ana", "bob", "cid", "dot"] {
            for _ in 0..MAX_PER_NAME {
                replies.push(push_of(&logins, &mut port, (api(), name)).await);
            }
        }
        let proved = |logins: &Logins| logins.lines.lock().proved.len_of(api());
        assert_eq!(proved(&logins), MAX_PER_ADDRESS);
        replies.push(push_of(&logins, &mut port, (api(), "newcomer")).await);
        assert_eq!(proved(&logins), MAX_PER_ADDRESS - 1);
        for name in ["ana", "bob", "cid", "dot"] {
            replies.push(push_of(&logins, &mut port, (api(), name)).await);
        }
        assert_eq!(proved(&logins), MAX_PER_ADDRESS - 1);
        assert!(served(&logins)[..2].contains(&"newcomer".to_owned()));
        is_empty(&logins);
    });
}

fn far(number: usize) -> IpAddr {
    IpAddr::from(
        0x0a01_0000_u32
            .saturating_add(u32::try_from(number).unwrap())
            .to_be_bytes(),
    )
}

/// Anybody with a network of 54 bits has 1,024 networks of 64.
#[test]
fn one_login_each_of_many_addresses_neither_sheds_nor_delays_a_name_that_has_logged_in() {
    in_system(async {
        let dir = tempfile::tempdir().unwrap();
        let memory = || Some(proved::path(dir.path()));
        let mut port = Port::open();
        let logins = Logins::new(Vec::new(), memory(), &Registry::new());
        let mut replies = vec![push_of(&logins, &mut port, (api(), "ana")).await];
        assert_eq!(served(&logins), ["ana"]);
        // Also behind a restart.
        for logins in [Logins::new(Vec::new(), memory(), &Registry::new()), logins] {
            for number in 0..MAX_WAITING {
                replies.push(push_of(&logins, &mut port, (far(number), "ana")).await);
            }
            assert_eq!(logins.shed.get(), 0);
            for _ in 0..2 {
                replies.push(push_of(&logins, &mut port, (api(), "ana")).await);
            }
            // Two of the others gave way, and none of these does.
            for number in MAX_WAITING..MAX_WAITING + 10 {
                replies.push(push_of(&logins, &mut port, (far(number), "ana")).await);
            }
            assert_eq!(logins.shed.get(), 12);
            assert_eq!(logins.lines.lock().proved.waiting, 2);
            let served: Vec<IpAddr> = std::iter::from_fn(|| logins.pop())
                .map(|(login, _)| login.log_in.from())
                .collect();
            let places = served
                .iter()
                .enumerate()
                .filter(|(_, from)| **from == api());
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            assert!(places.iter().all(|place| *place < 4), "{places:?}");
            assert_eq!((places.len(), served.len()), (2, MAX_WAITING));
            is_empty(&logins);
        }
    });
}

/// Nor do names that have logged in keep all others out.
#[test]
fn full_queue_of_proved_names_leaves_slots_to_others() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = Vec::new();
        for number in 0..MAX_WAITING {
            let (address, name) = (far(number), logins.digest.of("ana"));
            logins.lines.lock().names.remember(Who { address, name });
            replies.push(push_of(&logins, &mut port, (address, "ana")).await);
        }
        for number in 0..FLOOR + 10 {
            replies.push(push_of(&logins, &mut port, (far(MAX_WAITING + number), "bob")).await);
        }
        let lines = logins.lines.lock();
        assert_eq!(lines.unknown.waiting, FLOOR);
        assert_eq!(lines.waiting(), MAX_WAITING);
    });
}

#[test]
fn full_queue_has_room_for_an_address_that_has_less() {
    in_system(async {
        let logins = Logins::new(Vec::new(), None, &Registry::new());
        let mut port = Port::open();
        let mut replies = Vec::new();
        for number in 0..MAX_WAITING {
            let last = u8::try_from(number / MAX_PER_ADDRESS).unwrap();
            replies.push(push(&logins, &mut port, last).await);
        }
        for last in [100, 101] {
            replies.push(push(&logins, &mut port, last).await);
        }
        assert_eq!(logins.shed.get(), 2);
        assert_eq!(logins.lines.lock().waiting(), MAX_WAITING);
        assert_eq!(logins.waiting.get(), i64::try_from(MAX_WAITING).unwrap());
        let mut heard = std::collections::HashSet::new();
        while let Some((login, _)) = logins.pop() {
            heard.insert(login.log_in.from());
        }
        assert_eq!(heard.len(), MAX_WAITING / MAX_PER_ADDRESS + 2);
        is_empty(&logins);
    });
}

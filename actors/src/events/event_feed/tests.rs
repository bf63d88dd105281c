use bytes::Bytes;
use proptest::prelude::*;
use saltern_store::{DatabaseLimits, JobDatabase, NewEvent, Retention, Write};
use tempfile::TempDir;

use super::*;

/// A job database with its feed; both can be started anew.
struct Site {
    dir: TempDir,
    database: Option<JobDatabase>,
    feed: Arc<EventFeed>,
}

/// Events in the ring, and of a page.
const SMALL: usize = 4;

fn open(dir: &TempDir) -> (JobDatabase, Arc<EventFeed>) {
    let path = dir.path().join("jobs.sqlite");
    let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
    let limits = QueueLimits {
        frames: SMALL,
        bytes: 1 << 20,
    };
    let next = database.next_event_position();
    let reader = database.reader().unwrap();
    let mut feed = EventFeed::new(reader, next, limits, &Registry::new()).unwrap();
    Arc::get_mut(&mut feed).unwrap().page_events = SMALL;
    (database, feed)
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (database, feed) = open(&dir);
        Self {
            dir,
            database: Some(database),
            feed,
        }
    }

    fn database(&mut self) -> &mut JobDatabase {
        self.database.as_mut().unwrap()
    }

    /// Commits some events; without `announced` the process dies before the feed has them.
    fn commit(&mut self, events: usize, announced: bool) {
        let first = self.database().next_event_position();
        let caused = (first..).take(events).map(|position| NewEvent {
            received: 1,
            tag: format!("t/{position}"),
            data: Bytes::from_static(b"\x80"),
            of_minion: position % 3 == 0,
        });
        // Any change causes them.
        let write = Write::Events {
            first: 1,
            events: Vec::new(),
        };
        let committed = self.database();
        let committed = committed.commit_with_events(&[write], &[caused.collect()]);
        let committed = committed.unwrap();
        if announced {
            self.feed.committed(committed.events);
        }
    }

    fn restart(&mut self) {
        self.database = None;
        let (database, feed) = open(&self.dir);
        (self.database, self.feed) = (Some(database), feed);
    }

    fn remove_all_but(&mut self, most_events: u64) {
        let retention = Retention {
            most_events: Some(most_events),
            ..Retention::default()
        };
        while self
            .database()
            .remove_slice(&retention, 2)
            .unwrap()
            .is_some()
        {}
    }

    fn position(&self, number: i64) -> Option<Position> {
        Some(Position {
            history: self.feed.history,
            number,
        })
    }
}

/// Outcome of reading a stream until it would wait.
#[derive(Debug, PartialEq, Eq)]
enum Given {
    Event(i64),
    Gap(Option<u64>),
    Closed(CloseReason),
}

use Given::{Closed, Event, Gap};

async fn given(stream: &mut FeedStream) -> Vec<Given> {
    let mut all = Vec::new();
    // Time is paused: it goes on only when nothing else does.
    while let Ok(item) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {
        match item {
            StreamItem::Events { batch, range } => {
                let events = &batch.events()[range];
                all.extend(events.iter().map(|event| Event(event.number)));
            }
            StreamItem::Gap { missed, .. } => all.push(Gap(missed)),
            StreamItem::Closed(reason) => {
                all.push(Closed(reason));
                break;
            }
        }
    }
    all
}

fn events(numbers: impl IntoIterator<Item = i64>) -> Vec<Given> {
    numbers.into_iter().map(Event).collect()
}

#[tokio::test(start_paused = true)]
async fn stream_behind_a_position_reads_kept_events_then_live_ones() {
    let mut site = Site::new();
    site.commit(11, true);
    let mut late = site.feed.follow(site.position(2));
    let mut live = site.feed.follow(None);
    assert_eq!(given(&mut late).await, events(3..=11));
    site.commit(2, true);
    for stream in [&mut late, &mut live] {
        assert_eq!(given(stream).await, events(12..=13));
    }
}

#[tokio::test(start_paused = true)]
async fn stream_over_a_restart_gets_what_was_committed_but_not_announced() {
    let mut site = Site::new();
    site.commit(3, true);
    site.commit(2, false);
    let at = site.position(3);
    site.restart();
    let mut stream = site.feed.follow(at);
    site.commit(1, true);
    assert_eq!(given(&mut stream).await, events(4..=6));
}

#[tokio::test(start_paused = true)]
async fn removed_events_are_a_gap_of_their_number() {
    let mut site = Site::new();
    site.commit(10, true);
    site.remove_all_but(4);
    site.restart();
    let mut stream = site.feed.follow(site.position(0));
    let all = given(&mut stream).await;
    let missed = all.iter().map(|item| match item {
        Gap(missed) => missed.unwrap(),
        _ => 0,
    });
    assert_eq!(missed.sum::<u64>(), 6, "{all:?}");
    assert!(matches!(all.first(), Some(Gap(Some(_)))), "{all:?}");
    assert_eq!(all.last(), Some(&Event(10)));
    // Also when nothing is left.
    site.remove_all_but(0);
    let retention = Retention {
        before: Some(i64::MAX),
        ..Retention::default()
    };
    while site
        .database()
        .remove_slice(&retention, 9)
        .unwrap()
        .is_some()
    {}
    site.restart();
    let mut stream = site.feed.follow(site.position(1));
    assert_eq!(given(&mut stream).await, [Gap(Some(9))]);
}

#[tokio::test(start_paused = true)]
async fn position_of_another_history_is_a_gap_of_unknown_size() {
    let mut site = Site::new();
    site.commit(2, true);
    let other = Position {
        history: !site.feed.history,
        number: 1,
    };
    for after in [Some(other), site.position(3)] {
        let mut stream = site.feed.follow(after);
        assert_eq!(given(&mut stream).await, [Gap(None)]);
    }
    let mut stream = site.feed.follow(site.position(2));
    site.commit(1, true);
    assert_eq!(given(&mut stream).await, events([3]));
}

#[tokio::test(start_paused = true)]
async fn stream_that_falls_behind_the_ring_is_cut_off_and_can_resume() {
    let mut site = Site::new();
    let mut slow = site.feed.follow(None);
    site.commit(1, true);
    assert_eq!(given(&mut slow).await, events([1]));
    for _ in 0..SMALL + 2 {
        site.commit(1, true);
    }
    assert_eq!(given(&mut slow).await, [Closed(CloseReason::Slow)]);
    let mut back = site.feed.follow(site.position(1));
    assert_eq!(given(&mut back).await, events(2..=7));
}

#[tokio::test(start_paused = true)]
async fn streams_at_the_same_place_share_one_read() {
    let mut site = Site::new();
    site.commit(12, true);
    site.restart();
    let at = site.position(9);
    for _ in 0..20 {
        let mut stream = site.feed.follow(at);
        assert_eq!(given(&mut stream).await, events(10..=12));
    }
    assert_eq!(site.feed.metrics.pages.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn latest_events_are_read_backwards_and_no_more_than_were_asked_for() {
    let mut site = Site::new();
    let latest = async |site: &Site, through, count| {
        let found = site.feed.backwards(through, count).await.unwrap();
        let numbers = found.events.iter().map(|event| event.number);
        (numbers.collect::<Vec<_>>(), found.rest)
    };
    assert_eq!(latest(&site, 0, 3).await, (vec![], 0));
    site.commit(11, true);
    assert_eq!(latest(&site, 11, 3).await, (vec![11, 10, 9], 8));
    assert_eq!(latest(&site, 2, 3).await, (vec![2, 1], 0));
    assert_eq!(latest(&site, 11, 99).await, (vec![11, 10, 9, 8], 7));
    // What is kept no longer has no turn of its own, however much it was.
    site.remove_all_but(2);
    let (numbers, rest) = latest(&site, 11, 4).await;
    assert_eq!((numbers.len(), rest), (2, 0), "{numbers:?}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Commit(usize),
    Lost(usize),
    Read(usize),
    Reconnect(usize),
    Restart,
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6_usize).prop_map(Step::Commit),
        1 => (1..4_usize).prop_map(Step::Lost),
        4 => (0..3_usize).prop_map(Step::Read),
        2 => (0..3_usize).prop_map(Step::Reconnect),
        1 => Just(Step::Restart),
        1 => (1..12_u64).prop_map(Step::Remove),
    ]
}

/// A client that remembers its position.
struct Client {
    stream: FeedStream,
    at: i64,
}

impl Client {
    fn reconnect(&mut self, site: &Site) {
        self.stream = site.feed.follow(site.position(self.at));
    }

    /// Reads what there is; everything is the next event or a gap.
    async fn read(&mut self, site: &Site) {
        loop {
            let mut is_cut_off = false;
            for item in given(&mut self.stream).await {
                match item {
                    Event(number) => {
                        assert_eq!(number, self.at + 1);
                        self.at = number;
                    }
                    Gap(missed) => self.at += i64::try_from(missed.unwrap()).unwrap(),
                    Closed(reason) => {
                        assert_eq!(reason, CloseReason::Slow);
                        is_cut_off = true;
                    }
                }
            }
            if !is_cut_off {
                return;
            }
            self.reconnect(site);
        }
    }
}

async fn run(steps: Vec<Step>) {
    let mut site = Site::new();
    let mut clients: Vec<Client> = (0..3)
        .map(|_| Client {
            stream: site.feed.follow(site.position(0)),
            at: 0,
        })
        .collect();
    for step in steps {
        match step {
            Step::Commit(events) => site.commit(events, true),
            Step::Lost(events) => {
                site.commit(events, false);
                site.restart();
                clients
                    .iter_mut()
                    .for_each(|client| client.reconnect(&site));
            }
            Step::Read(client) => clients[client].read(&site).await,
            Step::Reconnect(client) => clients[client].reconnect(&site),
            Step::Restart => {
                site.restart();
                clients
                    .iter_mut()
                    .for_each(|client| client.reconnect(&site));
            }
            Step::Remove(most) => site.remove_all_but(most),
        }
    }
    let newest = site.database().next_event_position() - 1;
    for client in &mut clients {
        client.read(&site).await;
        assert_eq!(client.at, newest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_position_is_given_or_counted_as_missing_once_in_order(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps));
    }
}

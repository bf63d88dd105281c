//! A job cache whose database ends each connection at once.

use std::io::ErrorKind;
use std::net::TcpListener;

use saltern_base::metrics::Registry;
use saltern_config::load_master;
use saltern_model::Compat;
use saltern_store::jobs::Write;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_store::{JobFollower, StoreOptions};

use super::*;
use crate::shared::answer::PendingReply;
use crate::shared::testing::{in_system, ping};

/// Turns of a wait, during which the clock stands; a thread has to come to its end in it.
const MAX_TURNS: u64 = 2_000_000;

/// A server that accepts connections, and ends them.
struct Closing {
    listener: TcpListener,
    /// Connections that it has ended.
    ended: u32,
}

impl Closing {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, ended: 0 }
    }

    fn end_those_that_came(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(_) => self.ended += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return;
                }
            }
        }
    }

    /// Serves until something is the case, while the clock stands: this task never waits.
    async fn serve_until(&mut self, mut is_so: impl FnMut() -> bool) {
        for _ in 0..MAX_TURNS {
            self.end_those_that_came();
            if is_so() {
                return;
            }
            tokio::task::yield_now().await;
            thread::yield_now();
        }
        panic!("waited in vain; {} connections", self.ended);
    }
}

fn writer(directory: &std::path::Path, port: u16) -> SqlWriter {
    let path = directory.join("master");
    let text = format!(
        "master_job_cache: pgjsonb\nreturner.pgjsonb.host: 127.0.0.1\nreturner.pgjsonb.port: {port}\n"
    );
    std::fs::write(&path, text).unwrap();
    let loaded = load_master(&path).unwrap();
    let store = loaded.config.returners.sql_store("pgjsonb").unwrap();
    SqlWriter::new(store.clone(), "the_master").unwrap()
}

#[test]
fn publish_during_the_back_off_of_a_database_tries_it_at_once() {
    in_system(async {
        tokio::time::pause();
        let mut server = Closing::start();
        let port = server.listener.local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions::below(directory.path(), Compat::V3008);
        std::fs::create_dir_all(options.private_dir()).unwrap();
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
        let mut database = database.unwrap();
        let reader = database.reader().unwrap();
        let owner = ("master_job_cache", "pgjsonb");
        let follower = JobFollower::with_options(&options, owner, reader).unwrap();
        let jid = Jid::parse("20260102030405060708").unwrap();
        database.commit(&[Write::Job(ping(jid.clone()))]).unwrap();
        let state = Arc::<Mutex<State>>::default();
        let writer = writer(directory.path(), port);
        let seed = Seed {
            purpose: Purpose::Master,
            name: "pgjsonb".to_owned(),
            target: Target::Sql(Arc::new(Mutex::new(writer))),
            follower: Arc::new(Mutex::new(follower)),
            stores_endtime: false,
            state: state.clone(),
            metrics: JobCacheMetrics::new(&Registry::new()),
        };
        let cache = JobCache::build(&seed).start();
        let is_failing = || state.lock().pace.is_failing();
        server.serve_until(is_failing).await;
        let first = server.ended;
        assert!(first > 0);

        // The pause of the back-off is longer.
        tokio::time::advance(pace::MIN_PAUSE).await;
        let (answer, answered) = PendingReply::inside();
        let answered = actix_rt::spawn(answered);
        cache.do_send(AnswerWhenGiven { jid, answer });
        server.serve_until(|| answered.is_finished()).await;
        assert!(answered.await.unwrap());
        // It failed once more, and so the client waits no longer.
        assert!(server.ended > first, "no attempt for the client");
        assert!(state.lock().waiting.is_empty());
    });
}

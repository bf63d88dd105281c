//! Commits that the engine leaves without a reply, stored or not.

use saltern_store::jobs::{AuditHead, Imported, JobLog, Pending};
use saltern_store::mirror::CachedJob;

use super::*;
use crate::jobs::job_store::interrupted::PATIENCE;

/// Fate of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not made, and nobody learns so.
    Lost,
    /// It is made, and nobody learns so.
    Stored,
    /// It is made, nobody learns so, and the jobs cannot be read until [`mend`].
    StoredUnreadable,
}

/// An engine whose next commit meets a fault.
pub(super) struct FaultyLog {
    log: Arc<dyn JobLog>,
    database: Arc<Mutex<JobDatabase>>,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl FaultyLog {
    pub(super) fn before(
        engine: Engine,
        database: &Arc<Mutex<JobDatabase>>,
        fault: &Arc<Mutex<Option<Fault>>>,
    ) -> Engine {
        let log = Arc::new(Self {
            log: engine.log.clone(),
            database: database.clone(),
            fault: fault.clone(),
        });
        Engine { log, ..engine }
    }
}

impl JobLog for FaultyLog {
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed> {
        let Some(fault) = self.fault.lock().take() else {
            return self.log.append(batch);
        };
        let path = self.database.lock().path().to_owned();
        let appended = (fault != Fault::Lost).then(|| self.log.append(batch));
        Box::pin(async move {
            if let Some(appended) = appended {
                appended.await?;
            }
            if fault == Fault::StoredUnreadable {
                rename(&path, "jobs", "hidden");
            }
            Err(StoreError::Interrupted { path })
        })
    }

    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported> {
        self.log.import(slice)
    }

    fn finish_import(&self) -> Pending<()> {
        self.log.finish_import()
    }

    fn next_event_position(&self) -> Pending<i64> {
        self.log.next_event_position()
    }

    fn audit_head(&self) -> Pending<AuditHead> {
        self.log.audit_head()
    }
}

fn rename(path: &std::path::Path, from: &str, to: &str) {
    let database = rusqlite::Connection::open(path).unwrap();
    let renamed = format!("ALTER TABLE {from} RENAME TO {to}");
    database.execute_batch(&renamed).unwrap();
}

/// A job whose commit meets a fault: the reply to its client.
async fn publish(rig: &mut Rig, fault: Fault) -> Bytes {
    let (answer, reply) = rig.answer().await;
    let begin = beginning(job("test.ping"), Vec::new());
    let persist = Persist {
        writes: vec![(Write::JobPart(job("test.ping")), begin)],
        answer: Some(answer),
    };
    *rig.fault.lock() = Some(fault);
    rig.store.try_send(persist).unwrap();
    reply.await.unwrap()
}

#[test]
fn interrupted_commit_is_read_back_before_its_client_is_answered() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        assert_eq!(publish(&mut rig, Fault::Stored).await, &b"done"[..]);
        assert_eq!(rig.publisher.recv().await.unwrap().jid.as_str(), JID);
        assert_eq!(rig.tracker.recv().await.unwrap().jobs.len(), 1);
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

#[test]
fn interrupted_commit_that_is_not_stored_is_refused_and_can_be_sent_again() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        assert_eq!(publish(&mut rig, Fault::Lost).await, &b"failed"[..]);
        assert!(rig.publisher.try_recv().is_err());
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert!(rig.tracker.recv().await.unwrap().is_of_one_new_return());
    });
}

#[test]
fn return_of_an_interrupted_commit_is_acknowledged_and_its_events_fired() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        *rig.fault.lock() = Some(Fault::Stored);
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.tracker.recv().await.unwrap().returns.len(), 1);
        assert_eq!(rig.bus.recv().await.unwrap().0.len(), 1);
        assert_eq!(rig.kept(), 1);
    });
}

/// Otherwise the job would stay open until the next start, and nobody would track it.
#[test]
fn refused_job_that_is_found_to_be_stored_is_handed_to_the_tracker() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let began = tokio::time::Instant::now();
        let reply = publish(&mut rig, Fault::StoredUnreadable).await;
        assert_eq!(reply, &b"failed"[..]);
        assert!(began.elapsed() >= PATIENCE);
        rig.address.send(disk::LookAtDisk).await.unwrap();
        assert!(rig.tracker.try_recv().is_err(), "it cannot be read yet");
        let path = rig.database.lock().path().to_owned();
        rename(&path, "hidden", "jobs");
        rig.address.send(disk::LookAtDisk).await.unwrap();
        let stored = rig.tracker.recv().await.unwrap();
        assert_eq!(stored.unsent.len(), 1);
        assert_eq!(stored.unsent[0].jid.as_str(), JID);
        rig.address.send(disk::LookAtDisk).await.unwrap();
        assert!(rig.tracker.try_recv().is_err(), "announced once");
        assert!(rig.publisher.try_recv().is_err());
    });
}

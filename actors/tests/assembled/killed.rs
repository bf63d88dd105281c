//! A master that dies as by a power cut. It runs in a process of its own, which is this test once more: the
//! signal ends a whole process.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use saltern_base::fail_point::FailPoint;
use saltern_model::{Jid, MinionId};
use saltern_store::jobs::JobState;
use saltern_wire::zmtp::SubClient;

use crate::site::{Minion, Running, Site, jid_of};
use crate::{in_system, until};

/// Names the directory of the site to the process that is to die.
const DIRECTORY: &str = "SALTERN_TEST_SITE";

/// The minions of the job.
const MINIONS: [&str; 2] = ["m1", "m2"];

/// Minions that only return what nobody asked for.
const OTHERS: [&str; 4] = ["x1", "x2", "x3", "x4"];

/// Right after the commit, nobody has noticed it: neither the tracker, nor the bus, nor the minions.
#[test]
fn last_two_returns_of_one_commit_end_their_job_after_a_kill() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let site = Site::at(PathBuf::from(directory), "");
        in_system(die_with_the_last_returns(site));
        unreachable!("it has been killed");
    }
    let site = Site::new("");
    let minions = MINIONS.map(|id| site.minion(id));
    let others = OTHERS.map(|id| site.minion(id));
    for identity in minions.iter().chain(&others) {
        site.write_key(identity);
    }
    let test = "killed::last_two_returns_of_one_commit_end_their_job_after_a_kill";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let ended = child.env(DIRECTORY, site.path()).status().unwrap();
    assert_eq!(ended.signal(), Some(9), "{ended}");

    let reader = site.reader();
    let jobs = reader.open_jobs().unwrap();
    let [open] = &jobs[..] else {
        panic!("one job is open: {jobs:?}");
    };
    let jid = open.job.record.jid.clone();
    assert_eq!(open.returned.len(), 2, "they were in one commit: {open:?}");
    in_system(async {
        let running = site.start();
        until(|| reader.load(&jid).unwrap().unwrap().state == JobState::Complete).await;
        // Nobody acknowledged their returns: they come again.
        for identity in &minions {
            let mut minion = identity.sign_in(&running).await;
            minion.return_until_acknowledged(jid.as_str()).await;
        }
        running.master.shutdown().await;
        let finished = "saltern_jobs_finished_total";
        assert_eq!(running.metric(finished), 1.0);
        assert_eq!(running.labelled(finished, &["complete"]), 1.0);
    });
    let job = reader.load(&jid).unwrap().unwrap();
    assert_eq!(job.state, JobState::Complete);
    let returns = reader.returns(&jid).unwrap();
    assert_eq!(returns.len(), 2, "each once");
    for id in MINIONS {
        let id = MinionId::parse(id).unwrap();
        let returned = reader.return_of(&jid, &id).unwrap().unwrap();
        assert_eq!((returned.retcode, returned.success), (0, true));
    }
    assert!(reader.open_jobs().unwrap().is_empty());
}

/// Messages that wait in the mailbox of the store.
fn waiting(running: &Running) -> f64 {
    running.labelled("saltern_actor_mailbox_depth", &["job_store"])
}

fn handled(running: &Running) -> f64 {
    running.labelled("saltern_actor_messages_total", &["job_store"])
}

/// Sends a return and does not wait for its acknowledgement.
fn send_return(mut minion: Minion, jid: String) {
    actix_rt::spawn(async move { minion.return_until_acknowledged(&jid).await });
}

/// Publishes a job, and dies when the returns of all its minions are in the store by one commit.
async fn die_with_the_last_returns(site: Site) {
    let running = site.start();
    // Without a subscriber it would not leave.
    let address = running.master.publish_address();
    let _publications = SubClient::connect(address, &[b""]).await.unwrap();
    running.subscriptions(1.0).await;
    let jid = jid_of(&running.publish(&MINIONS).await);
    let job = Jid::parse(&jid).unwrap();
    let reader = site.reader();
    // Nothing is to be written any more but returns.
    until(|| reader.load(&job).unwrap().unwrap().published.is_some()).await;
    let (mut signed_in, mut others) = (Vec::new(), Vec::new());
    for id in MINIONS {
        signed_in.push(site.minion_of_file(id).sign_in(&running).await);
    }
    for id in OTHERS {
        others.push(site.minion_of_file(id).sign_in(&running).await);
    }
    // The next commit waits, and what comes meanwhile is committed together behind it. A commit gives up after some
    // seconds, so from here on nothing takes long.
    let other = rusqlite::Connection::open(&running.config.saltern_job_database).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut others = others.into_iter().enumerate();
    let mut before = 0.0;
    while before == 0.0 {
        let (number, minion) = others.next().expect("the first one is being committed");
        let handled_before = handled(&running);
        let unasked = format!("2026010203040506070{number}");
        send_return(minion, unasked);
        until(|| waiting(&running) > 0.0 || handled(&running) > handled_before).await;
        before = waiting(&running);
    }
    for minion in signed_in {
        send_return(minion, jid.clone());
    }
    until(|| waiting(&running) >= before + 2.0).await;
    FailPoint::CommitAfter.arm(2);
    other.execute_batch("ROLLBACK").unwrap();
    std::future::pending::<()>().await;
}

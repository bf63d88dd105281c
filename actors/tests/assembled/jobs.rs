//! Tests of jobs and returns through all actors.

use saltern_model::{Jid, MinionId};
use saltern_store::jobs::JobState;
use saltern_wire::msgpack::Value;
use saltern_wire::zmtp::SubClient;

use crate::site::{Listener, Minion, Site, jid_of};
use crate::{in_system, until};

#[test]
fn job_is_announced_published_returned_and_closed() {
    in_system(async {
        let site = Site::new("");
        let identity = site.minion("m1");
        let running = site.start();
        let mut minion = identity.sign_in(&running).await;
        let mut publications = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        running.subscriptions(1.0).await;
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let jid = jid_of(&running.publish(&["m1"]).await);
        let announced = events.wait_for(&format!("salt/job/{jid}/new")).await;
        assert_eq!(
            announced.get("fun").and_then(Value::as_str),
            Some("test.ping")
        );
        let frames = publications.next().await.unwrap();
        let load = minion.open(&frames[0]).unwrap();
        assert_eq!(load.get("jid").and_then(Value::as_str), Some(jid.as_str()));
        // What was acknowledged to a client is in the store.
        let (job, id) = (Jid::parse(&jid).unwrap(), MinionId::parse("m1").unwrap());
        let reader = site.reader();
        assert_eq!(reader.load(&job).unwrap().unwrap().state, JobState::Open);

        assert_eq!(minion.return_until_acknowledged(&jid).await, 1);
        assert!(reader.return_of(&job, &id).unwrap().is_some());
        events.wait_for(&format!("salt/job/{jid}/ret/m1")).await;
        // Sent again, it is acknowledged again, fired once and stored once.
        assert_eq!(minion.return_until_acknowledged(&jid).await, 1);
        let next = jid_of(&running.publish(&["m1"]).await);
        loop {
            let (tag, _) = events.next().await.unwrap();
            assert_ne!(tag, format!("salt/job/{jid}/ret/m1"));
            if tag == format!("salt/job/{next}/new") {
                break;
            }
        }
        assert_eq!(reader.returns(&job).unwrap().len(), 1);
        running.master.shutdown().await;
        assert_eq!(
            reader.load(&job).unwrap().unwrap().state,
            JobState::Complete
        );
    });
}

#[test]
fn return_of_an_unknown_job_stores_a_closed_job() {
    in_system(async {
        let site = Site::new("");
        let identity = site.minion("m1");
        let running = site.start();
        let mut minion = identity.sign_in(&running).await;
        let jid = "20260102030405060708";
        assert_eq!(minion.return_until_acknowledged(jid).await, 1);
        assert!(minion.send(Minion::return_of("req")).await.is_ok());
        running.master.shutdown().await;
        let reader = site.reader();
        let stored = reader.load(&Jid::parse(jid).unwrap()).unwrap().unwrap();
        assert_eq!(stored.state, JobState::Complete);
        assert_eq!(reader.counts().unwrap(), (2, 2));
        assert!(reader.open_jobs().unwrap().is_empty());
    });
}

/// At the second start the job cache holds only the jobs that this master mirrored there.
#[test]
fn master_of_a_new_site_has_no_job_cache_to_read() {
    in_system(async {
        let site = Site::new("");
        site.minion("m1");
        let running = site.start();
        jid_of(&running.publish(&["m1"]).await);
        running.master.shutdown().await;
        assert!(site.reader().has_imported().unwrap());
    });
}

#[test]
fn restarted_master_resumes_jobs_keys_and_sessions() {
    in_system(async {
        let site = Site::new("");
        let identity = site.minion("m1");
        let running = site.start();
        let before = identity.sign_in(&running).await;
        let jid = jid_of(&running.publish(&["m1"]).await);
        running.master.shutdown().await;

        let running = site.start();
        until(|| running.metric("saltern_jobs_open") > 0.0).await;
        let mut minion = identity.sign_in(&running).await;
        assert!(
            minion.shared_key == before.shared_key,
            "the shared key is kept"
        );
        assert_eq!(minion.return_until_acknowledged(&jid).await, 1);
        running.master.shutdown().await;
        assert!(site.reader().open_jobs().unwrap().is_empty());
    });
}

#[test]
fn shared_key_revoked_while_stopped_is_not_used_again() {
    in_system(async {
        let site = Site::new("ping_on_rotate: True\n");
        let identity = site.minion("m1");
        let running = site.start();
        let before = identity.sign_in(&running).await.shared_key;
        running.master.shutdown().await;

        drop_dropfile(&site);
        let running = site.start();
        let mut minion = identity.sign_in(&running).await;
        assert!(minion.shared_key != before, "a new shared key");
        assert!(!site.path().join("cache/.dfn").exists());

        // And while it serves: announced, and all minions are pinged under the new key.
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let mut publications = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        running.subscriptions(1.0).await;
        drop_dropfile(&site);
        let data = events.wait_for("key").await;
        assert_eq!(
            data.get("rotate_aes_key").and_then(Value::as_bool),
            Some(true)
        );
        let frames = publications.next().await.unwrap();
        assert!(
            minion.open(&frames[0]).is_none(),
            "the old key does not open it"
        );
        minion = identity.sign_in(&running).await;
        let load = minion.open(&frames[0]).unwrap();
        assert_eq!(load.get("fun").and_then(Value::as_str), Some("test.ping"));
        assert_eq!(load.get("serial").and_then(Value::as_u64), Some(1));
        running.master.shutdown().await;
    });
}

/// A revoked minion has the old key and still listens; it must be able to decrypt no further job,
/// so none is sent as long as there can be no other key.
#[test]
fn no_load_is_published_under_a_key_to_be_replaced() {
    in_system(async {
        let site = Site::new("");
        let identity = site.minion("m1");
        let running = site.start();
        let mut publications = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        running.subscriptions(1.0).await;
        // More than once, because Maintenance checks too, once a second.
        for _ in 0..5 {
            let before = identity.sign_in(&running).await;
            drop_dropfile(&site);
            running.publish(&["m1"]).await;
            let frames = publications.next().await.unwrap();
            assert!(before.open(&frames[0]).is_none(), "under the old key");
            let after = identity.sign_in(&running).await;
            assert!(after.open(&frames[0]).is_some(), "under the new key");
        }

        let shared_key = site.path().join("cache/saltern/shared_key");
        std::fs::remove_file(&shared_key).unwrap();
        std::fs::create_dir(&shared_key).unwrap();
        drop_dropfile(&site);
        running.publish(&["m1"]).await;
        until(|| running.metric("saltern_publishes_not_sent_total") > 0.0).await;
        std::fs::remove_dir(&shared_key).unwrap();
        let next = jid_of(&running.publish(&["m1"]).await);
        let frames = publications.next().await.unwrap();
        let load = identity.sign_in(&running).await.open(&frames[0]).unwrap();
        let jid = load.get("jid").and_then(Value::as_str);
        assert_eq!(jid, Some(next.as_str()), "the one before was not sent");

        // The dropfile cannot be read, so it is not known whether it counts.
        let dropfile = site.path().join("cache/.dfn");
        std::fs::write(&dropfile, "m".repeat(5_000)).unwrap();
        set_mode(&dropfile);
        running.publish(&["m1"]).await;
        until(|| running.metric("saltern_publishes_not_sent_total") > 1.0).await;
        std::fs::remove_file(&dropfile).unwrap();
        let next = jid_of(&running.publish(&["m1"]).await);
        let frames = publications.next().await.unwrap();
        let load = identity.sign_in(&running).await.open(&frames[0]).unwrap();
        let jid = load.get("jid").and_then(Value::as_str);
        assert_eq!(jid, Some(next.as_str()), "the one before was not sent");
        running.master.shutdown().await;
    });
}

fn set_mode(dropfile: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dropfile, std::fs::Permissions::from_mode(0o400)).unwrap();
}

/// As stock's `salt-key` does it, in one step and with the right mode.
fn drop_dropfile(site: &Site) {
    let next = site.path().join("cache/.dfn-next");
    std::fs::write(&next, "m").unwrap();
    set_mode(&next);
    std::fs::rename(&next, site.path().join("cache/.dfn")).unwrap();
}

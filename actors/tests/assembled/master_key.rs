//! A master whose own key is rotated: its publications, and what the audit trail says of it.

use bytes::Bytes;
use saltern_crypto::{PublicKey, SigAlgo};
use saltern_model::AuditDoor;
use saltern_store::jobs::AuditPage;
use saltern_store::{MasterKeyRotation, MasterKeys, StoreOptions};
use saltern_wire::msgpack::{Limits, Value, decode_wire};
use saltern_wire::zmtp::SubClient;

use crate::site::{Minion, Site, jid_of};
use crate::{in_system, until};

/// A time beyond the clock of this machine.
const UNTIL: i64 = 9_000_000_000;

fn is_signed_by(payload: &[u8], key: &PublicKey) -> bool {
    let envelope = decode_wire(payload, &Limits::WIRE).unwrap();
    let bytes = |name| envelope.get(name).and_then(Value::as_bytes).unwrap();
    key.verify(SigAlgo::Pkcs1v15Sha1, bytes("load"), bytes("sig"))
}

/// The next payload of a job, and its serial.
async fn next(publications: &mut SubClient, minion: &Minion, jid: &str) -> (Bytes, u64) {
    loop {
        let payload = publications.next().await.unwrap().pop().unwrap();
        let load = minion.open(&payload).unwrap();
        // The master asks a subscriber who it is, too.
        if load.get("jid").and_then(Value::as_str) == Some(jid) {
            let serial = load.get("serial").and_then(Value::as_u64).unwrap();
            return (payload, serial);
        }
    }
}

fn states(site: &Site) -> Vec<String> {
    let page = AuditPage {
        door: Some(AuditDoor::Master),
        fun: Some("key.rotate_master"),
        limit: 10,
        ..AuditPage::default()
    };
    let rows = site.reader().audit(&page).unwrap();
    let states = rows.into_iter().rev().map(|row| {
        let arguments: serde_json::Value = serde_json::from_str(&row.record.arguments).unwrap();
        let state = arguments
            .pointer("/0/state")
            .and_then(|state| state.as_str());
        state.expect("a state").to_owned()
    });
    states.collect()
}

#[test]
fn rotation_signs_publications_by_both_keys_and_is_audited() {
    in_system(async {
        let site = Site::new("loop_interval: 1\n");
        let config = site.config();
        let options = StoreOptions::from(&config);
        saltern_store::files::ensure_dir(&config.pki_dir, 0o700).unwrap();
        MasterKeys::with_options(&options).unwrap();
        let rotation = MasterKeyRotation::begin(&options, UNTIL).unwrap();
        let previous = PublicKey::from_pem(rotation.previous.unwrap()).unwrap();
        let present = PublicKey::from_pem(&rotation.current).unwrap();

        let identity = site.minion("m1");
        let running = site.start();
        let minion = identity.sign_in(&running).await;
        let mut publications = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        running.subscriptions(1.0).await;
        let jid = jid_of(&running.publish(&["m1"]).await);
        let (first, serial) = next(&mut publications, &minion, &jid).await;
        assert!(is_signed_by(&first, &previous));
        let (second, next_serial) = next(&mut publications, &minion, &jid).await;
        assert!(is_signed_by(&second, &present));
        assert!(next_serial > serial, "it is no replay");
        until(|| states(&site) == ["both keys accepted"]).await;

        MasterKeyRotation::finish(&options).unwrap();
        let jid = jid_of(&running.publish(&["m1"]).await);
        let (only, _) = next(&mut publications, &minion, &jid).await;
        assert!(is_signed_by(&only, &present));
        until(|| states(&site) == ["both keys accepted", "one key accepted"]).await;
        running.master.shutdown().await;
    });
}

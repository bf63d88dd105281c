//! Events that stock minions send, and new grains, as a stock listener and stock's client see them.

use anyhow::{Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::SOON;
use saltern_tests::{Site, wait_until};
use serde_json::json;

/// Runs the steps on a site whose minions m6, m7 and m8 are in.
pub(crate) fn check(site: &mut Site, client: &mut Session) -> Result<()> {
    site.step("event.send and event.fire_master of every release, seen by a stock listener");
    let mut call = |tgt: &str, fun: &str, arg: serde_json::Value| {
        client.call(&json!({"tgt": tgt, "fun": fun, "arg": arg, "tgt_type": "glob"}))
    };
    let sent = call("*", "event.send", json!(["myco/built", {"size": 3}]))?;
    ensure!(
        sent == json!({"m6": true, "m7": true, "m8": true}),
        "{sent}"
    );
    for id in ["m6", "m7", "m8"] {
        let what = format!("the event of {id}");
        site.events().find(&what, SOON, |event| {
            let data = &event.data;
            let is_it = event.tag == "myco/built" && data["id"] == id && data["data"]["size"] == 3;
            is_it.then_some(())
        })?;
    }
    let run = site.salt_call("m8", &["event.fire_master", "{k: v}", "salt/custom/tag"])?;
    run.expect_code(0)?;
    let event = site.events().tag("salt/custom/tag", SOON)?;
    ensure!(event.data["data"] == json!({"k": "v"}), "{event:?}");
    if site.server().is_ours() {
        a_forged_return_is_refused(site, client)?;
    }
    new_grains_count(site, client)
}

/// The event under the tag of another minion's return, which stock lets through.
fn a_forged_return_is_refused(site: &mut Site, client: &mut Session) -> Result<()> {
    site.step("a minion cannot forge another one's return");
    site.announce("event dropped: this minion may not use this tag");
    let forged = "salt/job/20260102030405060708/ret/m7";
    let arg = json!([{"return": "forged", "id": "m7"}, forged]);
    client.call(&json!({"tgt": "m8", "fun": "event.fire_master", "arg": arg}))?;
    // What m8 sends after it has come, so the first one is not on its way any more.
    let arg = json!(["myco/after", {}]);
    client.call(&json!({"tgt": "m8", "fun": "event.send", "arg": arg}))?;
    site.events().tag("myco/after", SOON)?;
    let came = site.events().since(0);
    ensure!(came.iter().all(|event| event.tag != forged), "it was fired");
    Ok(())
}

fn new_grains_count(site: &Site, client: &mut Session) -> Result<()> {
    site.step("grains that a minion sets are targets once it has refreshed them");
    let set = json!({"tgt": "m7", "fun": "grains.setval", "arg": ["tier", "edge"]});
    client.call(&set)?;
    let ask = json!({
        "publish": true, "fun": "test.ping", "tgt": "tier:edge", "tgt_type": "grain"
    });
    wait_until("the new grain to be a target", SOON, || {
        let minions = client.call(&ask);
        match minions {
            Ok(minions) if minions == json!(["m7"]) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })?
}

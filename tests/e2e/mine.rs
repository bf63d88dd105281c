//! The mine with stock minions: sent, asked for, kept from others, deleted, flushed.

use anyhow::{Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::SOON;
use saltern_tests::{Site, wait_until};
use serde_json::{Value, json};

/// Runs the steps on a site whose minions m6, m7 and m8 are in.
pub(crate) fn check(site: &mut Site, client: &mut Session) -> Result<()> {
    site.step("mine.send of all minions, mine.get by each");
    let mut call = |tgt: &str, fun: &str, arg: Value| {
        client.call(&json!({"tgt": tgt, "fun": fun, "arg": arg, "tgt_type": "glob"}))
    };
    let sent = call(
        "*",
        "mine.send",
        json!(["ids", "mine_function=grains.get", "id"]),
    )?;
    ensure!(
        sent == json!({"m6": true, "m7": true, "m8": true}),
        "{sent}"
    );
    let all = json!({"m6": "m6", "m7": "m7", "m8": "m8"});
    let got = call("*", "mine.get", json!(["*", "ids"]))?;
    ensure!(got == json!({"m6": all, "m7": all, "m8": all}), "{got}");
    site.step("mine.get by a grain of the others, several functions at once");
    let got = call(
        "m8",
        "mine.get",
        json!(["role:web", "ids,nothing", "tgt_type=grain"]),
    )?;
    let webs = json!({"m6": "m6", "m7": "m7"});
    ensure!(got == json!({"m8": {"ids": webs}}), "{got}");
    site.step("an entry that is for one minion only");
    let guarded = json!([
        "secret",
        "allow_tgt=m7",
        "mine_function=grains.get",
        "place"
    ]);
    let sent = call("m6", "mine.send", guarded)?;
    ensure!(sent == json!({"m6": true}), "{sent}");
    let got = call("*", "mine.get", json!(["m6", "secret"]))?;
    let expected = json!({"m6": {}, "m7": {"m6": "New York"}, "m8": {}});
    ensure!(got == expected, "{got}");
    site.step("salt-call reads the mine too");
    let run = site.salt_call("m7", &["mine.get", "m6", "secret", "--out=json"])?;
    let said: Value = serde_json::from_str(&run.expect_code(0)?.stdout)?;
    ensure!(said == json!({"local": {"m6": "New York"}}), "{run}");
    site.step("mine.delete and mine.flush");
    call("m6", "mine.delete", json!(["ids"]))?;
    call("m7", "mine.flush", json!([]))?;
    let got = call("m8", "mine.get", json!(["*", "ids"]))?;
    ensure!(got == json!({"m8": {"m8": "m8"}}), "{got}");
    Ok(())
}

/// 3008's `salt-key` leaves the mine of a deleted key behind; our master removes it.
pub(crate) fn is_forgotten_with_the_key(site: &Site) -> Result<()> {
    site.step("what is kept of a minion goes with its key");
    let kept = ["grains", "pillar", "mine"].map(|bank| site.path(format!("cache/{bank}/m6.p")));
    ensure!(
        kept.iter().all(|file| file.exists()),
        "nothing is kept of m6"
    );
    site.salt_key(&["-y", "-d", "m6"])?.expect_code(0)?;
    wait_until("what is kept of m6 to go", SOON, || {
        (!kept.iter().any(|file| file.exists())).then_some(())
    })
}

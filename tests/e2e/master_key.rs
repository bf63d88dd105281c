//! Rotation of the master's own key under a stock minion, which accepts no other key of a master than
//! the one it has, and our own minions: nobody is visited, no job is lost, also where the master is
//! killed meanwhile.

use std::fs;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

const STOCK: &str = "m1";
const MINIONS: [&str; 3] = [STOCK, "n1", "n2"];

#[test]
fn master_key_is_rotated_under_a_stock_minion_of_3006() -> TestResult {
    master_key_is_rotated(Release::V3006)
}

#[test]
fn master_key_is_rotated_under_a_stock_minion_of_3007() -> TestResult {
    master_key_is_rotated(Release::V3007)
}

#[test]
fn master_key_is_rotated_under_a_stock_minion_of_3008() -> TestResult {
    master_key_is_rotated(Release::V3008)
}

/// Runs a scenario with the three minions of a rotation, and commands that wait long for them.
fn with_minions(release: Release, scenario: impl FnOnce(&mut Site) -> Result<()>) -> TestResult {
    Site::run(
        Server::Saltern(release),
        |config| {
            config.set("timeout", SOON.as_secs());
        },
        |site| {
            // The task that compares the key in use with the one on the disk, before the restart.
            site.announce("master_key");
            // Our minions say that the master went away.
            site.announce("WARN saltern_minion::");
            start_minions(site, release)?;
            scenario(site)
        },
    )
}

/// The stock minion verifies the signatures of publications, too, which is no default.
fn master_key_is_rotated(release: Release) -> TestResult {
    with_minions(release, |site| {
        let held = |site: &Site, id| {
            let held = site.minion_path(id, "pki/minion_master.pub");
            fs::read_to_string(held).map(|pem| pem.trim().to_owned())
        };
        works(site, "before")?;
        let old = held(site, STOCK)?;

        site.step("a new key, not in use before the restart");
        rotate(site, &["begin"], 0)?;
        let early = rotate(site, &["hand-over"], 1)?;
        ensure!(early.contains("restart it first"), "{early}");
        works(site, "under the old key")?;
        site.stop_master()?;
        start(site)?;

        site.step("each minion is served under the key that it has");
        works(site, "under both keys")?;
        let status = rotate(site, &["status"], 1)?;
        ensure!(status.contains("m1: has the previous key"), "{status}");
        rotate(site, &["finish"], 1)?;

        site.step("the new key is handed over");
        hand_over(site)?;
        let new = fs::read_to_string(site.path("pki/master.pub"))?;
        ensure!(old != new.trim());
        for id in MINIONS {
            ensure!(held(site, id)? == new.trim(), "{id} has another key");
        }
        works(site, "with the new key")?;
        site.kill_master();
        start(site)?;
        works(site, "after a kill")?;

        site.step("the old key is accepted no longer");
        rotate(site, &["finish"], 0)?;
        // Each minion has to log in anew, under the new key.
        works(site, "at the end")?;
        let states = audited(site)?;
        let expected = [
            "new key at the next start",
            "both keys accepted",
            "one key accepted",
        ];
        ensure!(states == expected, "{states:?}");
        Ok(())
    })
}

/// The new key goes back to the old one, which the minions get as they got the new one.
#[test]
fn master_key_goes_back_under_a_stock_minion() -> TestResult {
    with_minions(Release::V3008, |site| {
        let public = site.path("pki/master.pub");
        let old = fs::read_to_string(&public)?;
        let restart_and_hand_over = |site: &mut Site| -> Result<()> {
            site.stop_master()?;
            start(site)?;
            hand_over(site)
        };
        rotate(site, &["begin"], 0)?;
        restart_and_hand_over(site)?;
        let new = fs::read_to_string(&public)?;
        ensure!(new != old, "the key was replaced");

        site.step("back to the old key");
        rotate(site, &["revert"], 0)?;
        restart_and_hand_over(site)?;
        ensure!(fs::read_to_string(&public)? == old, "the old key is back");
        works(site, "with the old key again")?;
        rotate(site, &["finish"], 0)?;
        works(site, "at the end")
    })
}

/// Once the time that the old key has signed is over, a running master accepts that key no longer: a stock
/// minion, which has not got the new one, refuses the master, until the time is extended.
#[test]
fn old_master_key_is_refused_after_its_time_until_that_is_extended() -> TestResult {
    with_minions(Release::V3008, |site| {
        // It was encrypted with the old key.
        site.announce("the token of an authentication does not decrypt");
        rotate(site, &["begin"], 0)?;
        site.stop_master()?;
        start(site)?;
        site.end_stock_minion(STOCK)?;

        site.step("its time is over");
        end_time_of_old_key(site)?;
        site.start_prepared_minion(STOCK)?;
        let log = site.path(format!("log/{STOCK}.out"));
        wait_until("the minion to refuse the new key", SOON, || {
            let log = fs::read_to_string(&log).ok()?;
            log.contains("did not authenticate").then_some(())
        })?;
        site.end_stock_minion(STOCK)?;

        site.step("its time is extended");
        rotate(site, &["extend"], 0)?;
        site.start_prepared_minion(STOCK)?;
        wait_subscribed(site)?;
        works(site, "after the extension")
    })
}

/// Has the old key sign a time in the past, where the command takes whole days from now.
fn end_time_of_old_key(site: &Site) -> Result<()> {
    let until = 1_000_000_000;
    let old = PKey::private_key_from_pem(&fs::read(site.path("pki/master_previous.pem"))?)?;
    let new = fs::read_to_string(site.path("pki/master.pub"))?;
    let statement = format!(
        "saltern master key rotation\nuntil {until}\n{}\n",
        new.trim()
    );
    let mut signer = Signer::new(MessageDigest::sha224(), &old)?;
    let signature = signer.sign_oneshot_to_vec(statement.as_bytes())?;
    let line = format!("{until} {}\n", STANDARD.encode(signature));
    Ok(fs::write(site.path("pki/master_previous.sig"), line)?)
}

/// A minion that trusts the signing key (`verify_master_pubkey_sign`) takes a new key that nobody
/// handed over.
#[test]
fn minion_that_trusts_the_signing_key_takes_a_new_master_key() -> TestResult {
    let release = Release::V3008;
    Site::run(
        Server::Saltern(release),
        |config| {
            config
                .set("timeout", SOON.as_secs())
                .set("master_sign_pubkey", "True");
        },
        |site| {
            site.announce("master_key");
            // It was encrypted with the old key.
            site.announce("the token of an authentication does not decrypt");
            site.prepare_minion(STOCK, MinionKind::Stock(release), |config| {
                config.set("verify_master_pubkey_sign", "True");
            })?;
            site.accept_beforehand(STOCK)?;
            let signing = site.minion_path(STOCK, "pki/master_sign.pub");
            fs::copy(site.path("pki/master_sign.pub"), signing)?;
            site.start_prepared_minion(STOCK)?;
            site.wait_started(STOCK)?;

            rotate(site, &["begin"], 0)?;
            site.stop_master()?;
            site.start_master_only()?;
            site.wait_until_ready_again()?;
            rotate(site, &["finish", "--force"], 0)?;
            // A deleted key has the shared key rotated, so the minion logs in anew with the next publication.
            site.accept_beforehand("other")?;
            site.salt_key(&["-y", "-d", "other"])?.expect_code(0)?;
            let held = site.minion_path(STOCK, "pki/minion_master.pub");
            let new = fs::read_to_string(site.path("pki/master.pub"))?;
            wait_until("the minion to take the new key", SOON, || {
                let asked = ["--async", STOCK, "test.ping"];
                site.salt(&asked).ok()?;
                let held = fs::read_to_string(&held).ok()?;
                (held.trim() == new.trim()).then_some(())
            })?;
            let ping = site.salt(&[STOCK, "test.ping"])?;
            ensure!(ping.stdout.contains("True"), "{}", ping.stdout);
            Ok(())
        },
    )
}

fn start_minions(site: &mut Site, release: Release) -> Result<()> {
    site.prepare_minion(STOCK, MinionKind::Stock(release), |config| {
        config.set("sign_pub_messages", "True");
    })?;
    for id in MINIONS {
        if id != STOCK {
            site.prepare_minion(id, MinionKind::Native, |_| ())?;
        }
        site.accept_beforehand(id)?;
        site.start_prepared_minion(id)?;
    }
    MINIONS.iter().try_for_each(|id| site.wait_started(id))
}

/// Starts the master, and waits until all minions have subscribed anew: until they had time to, those of
/// before count as present.
fn start(site: &mut Site) -> Result<()> {
    site.start_master_only()?;
    site.wait_until_ready_again()?;
    wait_subscribed(site)
}

fn wait_subscribed(site: &Site) -> Result<()> {
    wait_until("all minions to have subscribed", SOON, || {
        let subscribers = site.metric("saltern_subscribers", "").ok()?;
        (subscribers == MINIONS.len() as f64).then_some(())
    })
}

/// A job for all, and a pillar, which the stock minion verifies by the key that it has.
fn works(site: &Site, when: &str) -> Result<()> {
    let options = ["--out=json", "--static"];
    let ping = site.salt(&[options.as_slice(), &["*", "test.ping"]].concat())?;
    ping.expect_code(0)?;
    let returned: Value = serde_json::from_str(&ping.stdout)?;
    for id in MINIONS {
        let is_there = returned.get(id) == Some(&Value::Bool(true));
        ensure!(is_there, "{when}: {id} lost the job: {}", ping.stdout);
    }
    let pillar = site.salt(&[options.as_slice(), &[STOCK, "pillar.items"]].concat())?;
    pillar.expect_code(0)?;
    let returned: Value = serde_json::from_str(&pillar.stdout)?;
    let is_map = returned.get(STOCK).is_some_and(Value::is_object);
    ensure!(is_map, "{when}: {}", pillar.stdout);
    Ok(())
}

/// A step with its exit code; gives all that it printed.
fn rotate(site: &Site, step: &[&str], code: i32) -> Result<String> {
    let run = site.saltern(&[&["key", "rotate-master"], step].concat())?;
    run.expect_code(code)?;
    Ok(format!("{}{}", run.stdout, run.stderr))
}

/// Hands the present key to all three minions. One that has just returned a job may still have it among those
/// that run, and is left for the next time.
fn hand_over(site: &Site) -> Result<()> {
    wait_until("all minions to have the key", SOON, || {
        let handed = rotate(site, &["hand-over"], 0).ok()?;
        let all = "3 with the present key, 0 left";
        handed.contains(all).then_some(())
    })
}

/// The states of the rotation in the audit trail, in their order, without repetitions.
fn audited(site: &Site) -> Result<Vec<String>> {
    let options = ["--fun", "key.rotate_master", "--json"];
    let rows = site.saltern(&[&["audit"], options.as_slice()].concat())?;
    rows.expect_code(0)?;
    let mut states = Vec::new();
    for row in rows.stdout.lines() {
        let row: Value = serde_json::from_str(row)?;
        let arguments = match &row["arguments"] {
            Value::String(text) => serde_json::from_str(text)?,
            arguments => arguments.clone(),
        };
        let state = arguments[0]["state"].as_str().unwrap_or_default();
        states.push(state.to_owned());
    }
    states.dedup();
    Ok(states)
}

//! Keys of minions in a cluster whose members have a `pki_dir` each: stock's `salt-key` works on any of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Site, TestResult, wait_until};

use crate::cluster::{LONG, Pair, pair, wait_for_ping};

/// Has a member take no key by itself, and share keys under a secret of its own file.
pub(crate) fn share_keys(site: &mut Site) -> Result<()> {
    let secret = site.path("secret").display().to_string();
    let config = site.config();
    let cluster = config.get("saltern_cluster").unwrap_or_default();
    let cluster = cluster.trim_end_matches('}').to_owned();
    config.set("auto_accept", "False").set(
        "saltern_cluster",
        format!("{cluster}, secret_file: {secret}, share_keys: true}}"),
    );
    site.write_config()
}

/// The directory of keys of `b`.
fn keys_of_b(pair: &Pair<'_>) -> PathBuf {
    pair.b.path("own-pki")
}

/// Copies the master's own keys and the secret, and none of a minion.
fn copy_identity(pair: &Pair<'_>) -> Result<()> {
    let (from, to) = (pair.a.path("pki"), keys_of_b(pair));
    fs::create_dir_all(&to)?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o700))?;
    for name in ["master.pem", "master.pub"] {
        fs::copy(from.join(name), to.join(name))?;
    }
    copy_secret(pair)
}

/// Copies the secret that the first member has made.
pub(crate) fn copy_secret(pair: &Pair<'_>) -> Result<()> {
    let secret = pair.b.path("secret");
    fs::copy(pair.a.path("secret"), &secret)?;
    Ok(fs::set_permissions(
        secret,
        fs::Permissions::from_mode(0o600),
    )?)
}

fn wait_for_file(what: &str, path: &Path, is_there: bool) -> Result<()> {
    wait_until(what, SOON, || (path.exists() == is_there).then_some(()))
}

/// A number among those of the active member.
fn value(site: &Site, name: &str) -> Result<f64> {
    site.metric(name, "")
}

#[test]
fn key_that_is_accepted_or_deleted_on_any_member_is_so_on_all() -> TestResult {
    pair(
        LONG,
        |_: &mut Config| {},
        |pair| {
            for site in [&mut *pair.a, &mut *pair.b] {
                share_keys(site)?;
                site.announce("accepted on this machine only");
            }
            let own = keys_of_b(pair).display().to_string();
            pair.b.config().set("pki_dir", own);
            pair.b.write_config()?;
            pair.start_first()?;
            copy_identity(pair)?;
            // Of an earlier time: nobody else knows it.
            let (pki_a, pki_b) = (pair.a.path("pki"), keys_of_b(pair));
            let stale = pki_b.join("minions/stale");
            fs::create_dir_all(pki_b.join("minions"))?;
            fs::copy(pki_a.join("master.pub"), &stale)?;
            // The first table is that of a member with an accepted key.
            fs::copy(pki_a.join("master.pub"), pki_a.join("minions/known"))?;
            pair.start_second()?;

            pair.b.step("stock's salt-key accepts where the standby is");
            pair.a.prepare_minion("m1", MinionKind::Native, |_| {})?;
            pair.a.start_prepared_minion("m1")?;
            wait_for_file(
                "the standby to have the key",
                &pki_b.join("minions_pre/m1"),
                true,
            )?;
            pair.b.salt_key(&["-y", "-a", "m1"])?.expect_code(0)?;
            pair.a.wait_started("m1")?;
            wait_for_ping(pair.a, "m1")?;
            ensure!(!pki_a.join("minions_pre/m1").exists(), "it was moved");
            wait_for_file("the stale key to count no longer", &stale, false)?;
            wait_for_file("all to know it", &pki_a.join("minions_pre/stale"), true)?;
            ensure!(!pki_a.join("minions/stale").exists(), "nobody accepted it");
            let run = pair.b.saltern(&["cluster", "verify"])?;
            run.expect_code(1)?.expect_text("the key of \"stale\"")?;

            pair.b.step("stock's salt-key deletes there");
            let shared = pair.a.path("cache/saltern/shared_key");
            let before = fs::read(&shared)?;
            pair.b.salt_key(&["-y", "-d", "m1"])?.expect_code(0)?;
            wait_for_file("the key to be gone", &pki_a.join("minions/m1"), false)?;
            wait_until("a new shared key", SOON, || {
                let now = fs::read(&shared).ok()?;
                (now != before).then_some(())
            })?;
            pair.b.step("its minion asks anew");
            pair.a.kill_minion("m1");
            pair.a.start_prepared_minion("m1")?;
            wait_for_file(
                "the standby to have the key",
                &pki_b.join("minions_pre/m1"),
                true,
            )?;
            ensure!(!pki_a.join("minions/m1").exists(), "it is not accepted");
            pair.b
                .saltern(&["key", "accept", "-y", "m1"])?
                .expect_code(0)?;
            wait_for_ping(pair.a, "m1")?;
            ensure!(value(pair.a, "saltern_cluster_keys_applied_total")? > 2.5);

            pair.a.step("a member that was away");
            fs::copy(pki_a.join("minions/m1"), pki_a.join("minions/ghost"))?;
            wait_for_file("the standby to have it", &pki_b.join("minions/ghost"), true)?;
            pair.stop_second()?;
            pair.a
                .salt_key(&["-y", "-d", "ghost,stale"])?
                .expect_code(0)?;
            pair.start_second()?;
            wait_for_file("it to be gone there", &pki_b.join("minions/ghost"), false)?;
            ensure!(
                !pki_a.join("minions/ghost").exists(),
                "it does not come back"
            );
            wait_until("it to be named no more", SOON, || {
                let run = pair.b.saltern(&["cluster", "verify"]).ok()?;
                (!run.stdout.contains("stale")).then_some(())
            })?;

            pair.a.step("the other one takes over");
            let ended = pair.a.stop_master()?;
            ensure!(ended.success(), "{ended}");
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            wait_for_ping(pair.b, "m1")?;
            let age = value(pair.b, "saltern_cluster_keys_age_seconds")?;
            ensure!(age < 60.0, "{age}");
            let ids = fs::read_dir(pki_b.join("minions"))?;
            let mut ids: Vec<_> = ids
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .filter(|name| !name.starts_with('.'))
                .collect();
            ids.sort_unstable();
            ensure!(ids == ["known", "m1"], "{ids:?}");
            pair.stop_second().context("it ends in order")
        },
    )
}

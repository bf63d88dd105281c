//! Changes of keys: a minion whose key is rejected or deleted while it is connected, and one that
//! needs nobody to accept it.

use anyhow::{Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

/// Stock notifies no process: it moves or removes the file. The next message must be refused, also
/// on an existing session and connection.
#[test]
fn a_revoked_key_is_refused_with_the_next_message() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up_by_salt_key(&[
                ("kept", MinionKind::Native),
                ("rejected", MinionKind::Stock(Release::V3008)),
                ("deleted", MinionKind::Stock(Release::V3007)),
            ])?;
            site.salt(&["-t", "60", "*", "test.ping"])?.expect_code(0)?;
            for (id, option) in [("rejected", "-r"), ("deleted", "-d")] {
                // The minion itself would only ask again and again.
                site.kill_minion(id);
                revoke(site, id, option)?;
            }
            site.step("only the one that was kept is left");
            site.salt(&["-t", "60", "*", "test.ping"])?
                .expect_code(0)?
                .expect_stdout("kept:\n    True")?;
            Ok(())
        },
    )
}

fn revoke(site: &mut Site, id: &str, option: &str) -> Result<()> {
    site.step(&format!("salt-key {option} {id}"));
    site.announce(id);
    let mark = site.events().mark();
    let mut session = site.session_of(id)?;
    session.send("before")?;
    site.events()
        .find_since(mark, "the event before", SOON, |event| {
            (event.tag == "before").then_some(())
        })?;
    site.salt_key(&["-y", "--include-accepted", option, id])?
        .expect_code(0)?;
    ensure!(
        session.is_refused("after")?,
        "the master took an event of {id}"
    );

    // A later event of a minion in good standing marks the point by which it would have shown.
    let mut other = site.session_of("kept")?;
    other.send("marker")?;
    site.events()
        .find_since(mark, "the marker", SOON, |event| {
            (event.tag == "marker").then_some(())
        })?;
    ensure!(
        !site
            .events()
            .since(mark)
            .iter()
            .any(|event| event.tag == "after"),
        "the event of {id} got through after its key was revoked"
    );
    Ok(())
}

#[test]
fn auto_accept_lets_everyone_in() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    Site::run(
        server,
        |config| _ = config.set("auto_accept", "True"),
        |site| {
            site.announce("auto_accept");
            site.start_minion("m1", MinionKind::Native)?;
            site.start_minion("m3007", MinionKind::Stock(Release::V3007))?;
            site.wait_started("m1")?;
            site.wait_started("m3007")?;
            site.salt(&["-t", "60", "*", "test.ping"])?
                .expect_code(0)?
                .expect_text("m3007:\n    True")?;
            site.salt_key(&["-L"])?
                .expect_text("Accepted Keys:\nm1\nm3007\n")?;
            Ok(())
        },
    )
}

#[test]
fn another_key_under_an_accepted_name_is_denied() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up_by_salt_key(&[("m1", MinionKind::Native)])?;
            site.kill_minion("m1");
            let accepted = std::fs::read(site.path("pki/minions/m1"))?;
            std::fs::remove_dir_all(site.minion_path("m1", "pki"))?;
            site.announce("m1");
            site.announce("the master rejects the key");
            site.start_prepared_minion("m1")?;
            let denied = site.path("pki/minions_denied/m1");
            wait_until("the other key to be denied", SOON, || {
                denied.exists().then_some(())
            })?;
            ensure!(
                std::fs::read(site.path("pki/minions/m1"))? == accepted,
                "the key was replaced"
            );
            site.salt_key(&["-L"])?
                .expect_text("Accepted Keys:\nm1\nDenied Keys:\nm1\n")?;
            Ok(())
        },
    )
}

#[test]
fn a_rejected_minion_gets_in_once_it_is_accepted() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.start_minion("m1", MinionKind::Stock(Release::V3008))?;
            site.wait_pending("m1")?;
            site.salt_key(&["-y", "-r", "m1"])?.expect_code(0)?;
            site.events().find("a rejection", SOON, |event| {
                (event.tag == "salt/auth" && event.data["result"] == false).then_some(())
            })?;
            site.salt_key(&["-y", "--include-rejected", "-a", "m1"])?
                .expect_code(0)?;
            site.wait_started("m1")?;
            site.salt(&["-t", "60", "m1", "test.ping"])?
                .expect_code(0)?;
            Ok(())
        },
    )
}

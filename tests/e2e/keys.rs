//! What becomes of a minion whose key is rejected or deleted while it is connected, and of one that
//! needs nobody to accept it.

use anyhow::{Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

#[test]
fn a_revoked_key_is_refused_with_the_next_message() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[
                ("kept", MinionKind::Stock(Release::V3008)),
                ("rejected", MinionKind::Native),
                ("deleted", MinionKind::Native),
            ])?;
            site.salt(&["*", "test.ping"])?.expect_code(0)?;

            // Stock tells nobody: it moves or removes the file, and the next message must notice.
            for (id, option) in [("rejected", "-r"), ("deleted", "-d")] {
                site.step(&format!("salt-key {option} {id}"));
                site.announce(id);
                let run = site.salt_key(&["-y", "--include-accepted", option, id])?;
                run.expect_code(0)?;
                let mark = site.events().mark();
                send_from(site, id)?;
                ensure!(
                    !site
                        .events()
                        .since(mark)
                        .iter()
                        .any(|event| event.tag == "from/minion"),
                    "the event of {id} got through after its key was revoked"
                );
            }
            site.step("only the one that was kept is left");
            site.salt(&["*", "test.ping"])?
                .expect_code(0)?
                .expect_stdout("kept:\n    True")?;
            let list = site.salt_key(&["-L"])?;
            list.expect_text("Accepted Keys:\nkept\nDenied Keys:")?;
            list.expect_text("Rejected Keys:\nrejected")?;
            Ok(())
        },
    )
}

/// Sends an event with the keys of a minion, by stock's own client, and waits for its end. The
/// client gives up by itself when it is refused; a second event, of a minion in good standing,
/// marks the point after which the first would have shown.
fn send_from(site: &Site, id: &str) -> Result<()> {
    let mark = site.events().mark();
    let refused = site.send_event_as(id, "from/minion")?;
    ensure!(refused.code != Some(0), "the master took it\n{refused}");
    site.send_event_as("kept", "from/kept")?.expect_code(0)?;
    site.events().find_since(
        mark,
        "the event of the minion in good standing",
        SOON,
        |event| (event.tag == "from/kept").then_some(()),
    )
}

#[test]
fn auto_accept_lets_everyone_in() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    Site::run(
        server,
        |config| _ = config.set("auto_accept", "True"),
        |site| {
            site.start_minion("m1", MinionKind::Native)?;
            site.start_minion("m3007", MinionKind::Stock(Release::V3007))?;
            site.wait_started("m1")?;
            site.wait_started("m3007")?;
            site.salt(&["*", "test.ping"])?
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
            site.bring_up(&[("m1", MinionKind::Native)])?;
            site.kill_minion("m1");
            let accepted = std::fs::read(site.path("pki/minions/m1"))?;
            std::fs::remove_dir_all(site.minion_path("m1", "pki"))?;
            site.announce("m1");
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
            site.salt(&["m1", "test.ping"])?.expect_code(0)?;
            Ok(())
        },
    )
}

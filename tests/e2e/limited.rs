//! A user whose rules name minions: the job runs where the master decided, whatever a stock minion
//! makes of the target.

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, run};

/// One minion matches by its name, the other by a grain that the master does not have.
const TARGET: &[&str] = &["-C", "web1 or G@kind:fresh", "test.ping"];
const LIMITED: &[&str] = &["-a", "file", "--username", "lim", "--password", "limited"];

#[test]
fn limited_users_job_runs_where_the_master_decided() -> TestResult {
    let release = Release::V3008;
    Site::run(
        Server::Saltern(release),
        |config| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            let users = format!("{root}/users");
            std::fs::write(&users, "lim:limited\n").expect("the site has a directory");
            let rules =
                format!("{{file: {{'^filename': {users}, lim: [{{'web*': ['test.*']}}]}}}}");
            config.set("timeout", 60).set("external_auth", rules);
        },
        |site| {
            site.announce("request refused");
            for (id, grains) in [("web1", "{}"), ("db1", "{kind: fresh}")] {
                site.prepare_minion(id, MinionKind::Stock(release), |config| {
                    config.set("grains", grains);
                })?;
            }
            let stock = MinionKind::Stock(release);
            site.bring_up(&[("web1", stock), ("db1", stock)])?;
            site.listen()?;
            // A job makes sure that the minion has had its pillar, with which its grains come.
            site.salt(&["*", "test.ping"])?.expect_code(0)?;
            site.saltern(&["run", "cache.clear_grains", "tgt=db1"])?
                .expect_code(0)?;
            the_target_itself_reaches_both(site)?;
            the_limited_user_reaches_one(site)
        },
    )
}

/// Without this the other half would show nothing.
fn the_target_itself_reaches_both(site: &Site) -> Result<()> {
    let mark = site.events().mark();
    site.salt(TARGET)?.expect_code(0)?;
    let jid = jid_since(site, mark)?;
    site.events()
        .tag(&format!("salt/job/{jid}/ret/db1"), SOON)?;
    Ok(())
}

fn the_limited_user_reaches_one(site: &Site) -> Result<()> {
    let mark = site.events().mark();
    let words = [LIMITED, TARGET].concat();
    let done = run(&mut site.stock_command("salt", &words), SOON * 2)?;
    done.expect_code(0)?.expect_stdout("web1:\n    True")?;
    let jid = jid_since(site, mark)?;
    let new = site.events().tag(&format!("salt/job/{jid}/new"), SOON)?;
    ensure!(new.data["tgt"] == "web1 or G@kind:fresh", "{:?}", new.data);
    ensure!(new.data["tgt_type"] == "compound", "{:?}", new.data);
    // A minion takes jobs in their order: what it would have run has been returned by then.
    site.salt(&["db1", "test.ping"])?.expect_code(0)?;
    site.salt(&["db1", "test.ping"])?.expect_code(0)?;
    let wrong = format!("salt/job/{jid}/ret/db1");
    let events = site.events().since(mark);
    let is_wrong = events.iter().any(|event| event.tag == wrong);
    ensure!(
        !is_wrong,
        "the job of a user with rules for web* ran on db1"
    );
    let words = [LIMITED, &["db1", "test.ping"]].concat();
    let refused = run(&mut site.stock_command("salt", &words), SOON * 2)?;
    refused.expect_text("Authorization error occurred.")?;
    Ok(())
}

/// The jid of the job that was announced first since the mark.
fn jid_since(site: &Site, mark: usize) -> Result<String> {
    let what = "the announcement of a job";
    let tag = site.events().find_since(mark, what, SOON, |event| {
        let is_new = event.tag.starts_with("salt/job/") && event.tag.ends_with("/new");
        is_new.then(|| event.tag.clone())
    })?;
    let jid = tag.split('/').nth(2).context("a jid")?;
    Ok(jid.to_owned())
}

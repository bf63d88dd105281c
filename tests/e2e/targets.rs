//! Targets, the mine and events of minions: minions of all three releases, one site, and stock's
//! own client and command line as the judges. The same steps run against a stock master, which
//! keeps the expectations honest.
//!
//! Single rules are in `saltern-policy` (also compared with stock, expression by expression) and in
//! the wire tests of `saltern-requests`; here the data comes the whole way from real minions.

use std::fs;

use anyhow::{Context, Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::MinionKind;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::{Value, json};

use crate::{mine, minion_events};

#[test]
fn targets_mines_and_events_with_our_master() -> TestResult {
    everything(Server::Saltern(Release::V3008))
}

#[test]
fn targets_mines_and_events_with_a_stock_master() -> TestResult {
    everything(Server::Stock(Release::V3008))
}

const NODEGROUPS: &str = "{webs: 'L@m6,m7', dbs: 'G@role:db', both: 'N@webs or N@dbs', \
                          listed: ['G@place:New?York', or, m8]}";

/// Id, release and grains of the minions.
const MINIONS: [(&str, Release, &str); 3] = [
    (
        "m6",
        Release::V3006,
        "{role: web, place: New York, url: 'http://x', deep: {a: [b, c]}}",
    ),
    (
        "m7",
        Release::V3007,
        "{role: web, place: Paris, url: 'http://x'}",
    ),
    ("m8", Release::V3008, "{role: db, place: Paris}"),
];

fn everything(server: Server) -> TestResult {
    Site::run(
        server,
        |config| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            config
                .set("pillar_roots", format!("{{base: [{root}/pillar]}}"))
                .set("nodegroups", NODEGROUPS)
                // The minions answer, however busy the machine is, and nobody else is asked.
                .set("timeout", 60)
                .set("gather_job_timeout", 3);
        },
        |site| {
            write_pillar(site)?;
            for (id, release, grains) in MINIONS {
                site.prepare_minion(id, MinionKind::Stock(release), |config| {
                    config.set("grains", grains).set("mine_interval", 60);
                })?;
                site.start_prepared_minion(id)?;
            }
            for (id, ..) in MINIONS {
                site.wait_pending(id)?;
            }
            site.salt_key(&["-y", "-A"])?.expect_code(0)?;
            for (id, ..) in MINIONS {
                site.wait_started(id)?;
            }
            let mut client = site.client()?;
            every_kind_reaches_the_right_minions(site, &mut client)?;
            the_command_line_says_what_it_reached(site)?;
            mine::check(site, &mut client)?;
            minion_events::check(site, &mut client)?;
            if site.server().is_ours() {
                mine::is_forgotten_with_the_key(site)?;
            }
            Ok(())
        },
    )
}

fn write_pillar(site: &Site) -> Result<()> {
    let dir = site.path("pillar");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("top.sls"), "base:\n  '*':\n    - app\n")?;
    let text = "app:\n  role: {{ grains['role'] }}\n  ports: [80, 443]\n";
    fs::write(dir.join("app.sls"), text)?;
    Ok(())
}

fn every_kind_reaches_the_right_minions(site: &mut Site, client: &mut Session) -> Result<()> {
    site.step("the minions that the master expects, for every kind of target");
    site.announce("a target matches nobody");
    let table: &[(&str, &str, &[&str])] = &[
        ("glob", "m*", &["m6", "m7", "m8"]),
        ("glob", "m6,m7", &["m6", "m7"]),
        ("pcre", "m[67]", &["m6", "m7"]),
        ("list", "m8,m6", &["m6", "m8"]),
        ("grain", "role:web", &["m6", "m7"]),
        ("grain", "ROLE:w*", &[]),
        ("grain", "deep:a:c", &["m6"]),
        ("grain", "id:m8", &["m8"]),
        ("grain", "role:none", &[]),
        ("grain_pcre", "place:(New|Old).*", &["m6"]),
        ("pillar", "app:role:w*", &["m6", "m7"]),
        ("pillar", "app:ports:443", &["m6", "m7", "m8"]),
        ("pillar_pcre", "app:role:(db|x)", &["m8"]),
        ("pillar_exact", "app:role:web", &["m6", "m7"]),
        ("pillar_exact", "app:role:w*", &[]),
        (
            "compound",
            "I@app:role:web and J@app:role:w.. and not m6",
            &["m7"],
        ),
        ("ipcidr", "127.0.0.0/8", &["m6", "m7", "m8"]),
        ("ipcidr", "192.0.2.1", &[]),
        ("nodegroup", "webs", &["m6", "m7"]),
        ("nodegroup", "both", &["m6", "m7", "m8"]),
        ("nodegroup", "listed", &["m6", "m8"]),
        ("compound", "G@role:web and not m7", &["m6"]),
        (
            "compound",
            "( P@place:Par.* or m6 ) and not G@role:db",
            &["m6", "m7"],
        ),
        ("compound", "G|@url|http://x and L@m7,ghost", &["m7"]),
        ("compound", "N@dbs or E@m6", &["m6", "m8"]),
        ("compound", "S@127.0.0.1 and M@m8", &["m8"]),
        ("compound", "G@role:web and", &[]),
        ("compound", "m6 m7", &[]),
    ];
    for (kind, tgt, minions) in table {
        let call = json!({"publish": true, "fun": "test.ping", "tgt": tgt, "tgt_type": kind});
        let expected = client.call(&call)?;
        ensure!(expected == json!(minions), "{kind} {tgt}: {expected}");
    }
    site.step("the minions that answer: they match their own grains");
    for (kind, tgt, minions) in [
        ("grain", "role:web", json!({"m6": true, "m7": true})),
        ("pillar", "app:role:db", json!({"m8": true})),
        ("nodegroup", "listed", json!({"m6": true, "m8": true})),
        (
            "compound",
            "G@place:Paris and not G@role:db",
            json!({"m7": true}),
        ),
    ] {
        let call = json!({"fun": "test.ping", "tgt": tgt, "tgt_type": kind});
        let answer = client.call(&call)?;
        ensure!(answer == minions, "{kind} {tgt}: {answer}");
    }
    Ok(())
}

fn the_command_line_says_what_it_reached(site: &Site) -> Result<()> {
    site.step("stock's command line: what it prints, and its exit code");
    let reached: [(&[&str], &[&str]); 5] = [
        (&["-I", "app:role:db"], &["m8"]),
        (&["-G", "role:web"], &["m6", "m7"]),
        (&["-C", "G@role:web and not m7"], &["m6"]),
        (&["-N", "listed"], &["m6", "m8"]),
        (&["-S", "127.0.0.1"], &["m6", "m7", "m8"]),
    ];
    for (target, minions) in reached {
        let mut arguments = target.to_vec();
        arguments.extend(["test.ping", "--static", "--out=json"]);
        let run = site.salt(&arguments)?;
        let answer: Value = serde_json::from_str(&run.expect_code(0)?.stdout)?;
        let answered: Vec<&String> = answer.as_object().context("a mapping")?.keys().collect();
        ensure!(answered == minions, "{target:?}: {run}");
    }
    for target in [["-G", "role:none"], ["-C", "G@role:web and"]] {
        site.salt(&[target[0], target[1], "test.ping"])?
            .expect_code(2)?
            .expect_stdout(
                "No minions matched the target. No command was sent, no jid was assigned.",
            )?;
    }
    Ok(())
}

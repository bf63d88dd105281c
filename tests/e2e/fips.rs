//! `fips_mode` with stock minions: with SHA-1, which is their default, they are refused and listed; with
//! SHA-224 they work, and verify publications.

use std::fs;

use anyhow::{Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

const SHA1: &str = "sha1";
const SHA224: &str = "sha224";

#[test]
fn fips_mode_refuses_sha1_of_a_stock_minion_of_3006() -> TestResult {
    sha1_is_refused_and_sha224_works(Release::V3006)
}

#[test]
fn fips_mode_refuses_sha1_of_a_stock_minion_of_3007() -> TestResult {
    sha1_is_refused_and_sha224_works(Release::V3007)
}

#[test]
fn fips_mode_refuses_sha1_of_a_stock_minion_of_3008() -> TestResult {
    sha1_is_refused_and_sha224_works(Release::V3008)
}

fn sha1_is_refused_and_sha224_works(release: Release) -> TestResult {
    Site::run(
        Server::Saltern(release),
        |config| {
            config
                .set("fips_mode", "True")
                .set("timeout", SOON.as_secs());
        },
        |site| {
            // The start says what the mode means, and each refusal is logged.
            site.announce("fips_mode");
            let kind = MinionKind::Stock(release);

            site.step("with the defaults of stock it is refused, and listed");
            site.accept_beforehand(SHA1)?;
            site.start_minion(SHA1, kind)?;
            wait_until("saltern doctor to list the minion", SOON, || {
                let found = site.saltern(&["doctor"]).ok()?.stdout;
                let list = found
                    .lines()
                    .find(|line| line.contains("cannot connect under fips_mode"));
                list?.contains(": sha1;").then_some(())
            })?;
            let log = site.path(format!("log/{SHA1}.out"));
            wait_until("the minion to say so", SOON, || {
                let log = fs::read_to_string(&log).ok()?;
                log.contains("Sign-in attempt failed").then_some(())
            })?;
            site.kill_minion(SHA1);

            site.step("with SHA-224 it works");
            site.prepare_minion(SHA224, kind, |config| {
                config
                    .set("encryption_algorithm", "OAEP-SHA224")
                    .set("signing_algorithm", "PKCS1v15-SHA224")
                    .set("sign_pub_messages", "True");
            })?;
            site.accept_beforehand(SHA224)?;
            site.start_prepared_minion(SHA224)?;
            site.wait_started(SHA224)?;
            works(site, "test.ping", "True")?;
            works(site, "pillar.item", SHA224)
        },
    )
}

/// A job, whose publication the minion verifies, and one that makes it ask for its pillar.
fn works(site: &Site, function: &str, expected: &str) -> Result<()> {
    let mut arguments = vec![SHA224, function];
    if function == "pillar.item" {
        arguments.push("role");
    }
    let run = site.salt(&arguments)?;
    run.expect_code(0)?;
    ensure!(run.stdout.contains(expected), "{}", run.stdout);
    Ok(())
}

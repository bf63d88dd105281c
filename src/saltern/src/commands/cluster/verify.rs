//! `saltern cluster verify`: whether the members of a cluster agree. Each writes a summary of what it has
//! into the database when the command runs on it, and compares it with those of the others.

use std::collections::BTreeSet;

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_base::hex;
use saltern_config::{ClusterConfig, MasterConfig};
use saltern_content::member_summary::{MemberSummary, differences, member_summary};
use saltern_crypto::StateCipher;
use saltern_sql::{ClusterCheck, ClusterError, MemberReport, check_cluster, cluster_secret};
use saltern_store::PkiTree;

use super::cipher_of;
use crate::commands::{chain, complain, say};
use crate::privileges;

/// Seconds after which a summary says little about its member.
const MAX_AGE: i64 = 3600;

/// Longest summary that is read.
const MAX_REPORT: usize = 1 << 20;

/// Differences of one member that are named.
const MAX_NAMED: usize = 50;

/// Milliseconds that a clock may be ahead of the database's, or behind it.
const MAX_CLOCK: i64 = 2_000;

pub(super) fn verify(config: &MasterConfig, cluster: &ClusterConfig) -> Result<Exit, ClusterError> {
    // The files are those of the master's user.
    if let Err(error) = privileges::become_user(&config.user) {
        complain(&chain(&error));
        return Ok(Exit::NoPermission);
    }
    let cipher = cipher_of(cluster)?;
    let secret = cipher.as_ref();
    let secret = secret.map_or(&[][..], |cipher| &cipher.member_key()[..]);
    let pki = PkiTree::open(config, Clock::system())?;
    let own = member_summary(config, &pki, (env!("CARGO_PKG_VERSION"), secret))?;
    let text = serde_json::to_string(&own).unwrap_or_default();
    let check = check_cluster(cluster, &config.id, &text)?;
    let mut problems = of_tables(&check);
    problems.extend(of_secret(cluster, cipher.as_ref())?);
    problems.extend(of_members(&check, (&config.id, &own)));
    for problem in &problems {
        say(&format!("{problem}\n"));
    }
    Ok(match problems.is_empty() {
        true => {
            let members = check.state.members.len();
            say(&format!(
                "{members} members agree in release, options, files and keys\n"
            ));
            Exit::Ok
        }
        false => Exit::Failure,
    })
}

fn of_tables(check: &ClusterCheck) -> Vec<String> {
    let mut found = Vec::new();
    if !check.missing.is_empty() {
        let missing = check.missing.join(", ");
        found.push(format!(
            "tables are missing: {missing}; restore them from a backup"
        ));
    }
    if check.clock_ahead.abs() > MAX_CLOCK {
        let (seconds, side) = (
            check.clock_ahead.abs() / 1000,
            match check.clock_ahead > 0 {
                true => "ahead of",
                false => "behind",
            },
        );
        found.push(format!(
            "the clock of this machine is {seconds} s {side} that of the database: synchronise both"
        ));
    }
    found
}

fn of_secret(
    cluster: &ClusterConfig,
    cipher: Option<&StateCipher>,
) -> Result<Option<String>, ClusterError> {
    let own = cipher.map(|cipher| hex(cipher.check()));
    Ok((cluster_secret(cluster)? != own).then(|| {
        "the secret of this machine (secret_file) is not that of the cluster: copy it from another \
         member"
            .to_owned()
    }))
}

/// Problems of the other members.
fn of_members(check: &ClusterCheck, (name, own): (&str, &MemberSummary)) -> Vec<String> {
    let mut found = Vec::new();
    if check
        .state
        .layout
        .is_some_and(|layout| layout.is_expanded())
    {
        let layouts: BTreeSet<i64> = check.state.members.iter().map(|one| one.layout).collect();
        if layouts.len() == 1 {
            found.push(
                "all members know the present tables: run \"saltern cluster contract\"".to_owned(),
            );
        }
    }
    for member in check.state.members.iter().filter(|one| one.name != name) {
        let report = check.reports.iter().find(|one| one.name == member.name);
        let about = match report {
            _ if !member.is_alive => "does not live; if it is gone for good: saltern cluster leave",
            None => "has no summary: run \"saltern cluster verify\" there",
            Some(report) if report.age > MAX_AGE => {
                "has a summary of more than an hour ago: run \"saltern cluster verify\" there"
            }
            Some(report) => {
                found.extend(of_report(report, own));
                continue;
            }
        };
        found.push(format!("\"{}\" {about}", member.name));
    }
    found
}

fn of_report(report: &MemberReport, own: &MemberSummary) -> Vec<String> {
    let name = &report.name;
    let text = Some(report.report.as_str()).filter(|text| text.len() <= MAX_REPORT);
    let theirs = text.and_then(|text| serde_json::from_str::<MemberSummary>(text).ok());
    let Some(theirs) = theirs else {
        return vec![format!("\"{name}\" has a summary that cannot be read")];
    };
    let names = differences(own, &theirs);
    let mut found: Vec<String> = names
        .iter()
        .take(MAX_NAMED)
        .map(|what| format!("\"{name}\" differs: {}", what.escape_debug()))
        .collect();
    if names.len() > MAX_NAMED {
        found.push(format!(
            "\"{name}\" differs: {} more",
            names.len() - MAX_NAMED
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use saltern_sql::{ClusterState, Layout};

    use super::*;

    fn own() -> MemberSummary {
        MemberSummary::from([("option timeout".to_owned(), "1".to_owned())])
    }

    fn check(reports: &[(&str, i64, &str)]) -> ClusterCheck {
        let members = ["a", "b"].map(|name| {
            let mut member = saltern_sql::Member::default();
            member.name = name.to_owned();
            (member.is_alive, member.layout) = (true, 3);
            member
        });
        ClusterCheck {
            state: ClusterState {
                members: members.to_vec(),
                layout: Some(Layout {
                    version: 3,
                    floor: 3,
                }),
                ..ClusterState::default()
            },
            missing: Vec::new(),
            reports: reports
                .iter()
                .map(|(name, age, report)| MemberReport {
                    name: (*name).to_owned(),
                    age: *age,
                    report: (*report).to_owned(),
                })
                .collect(),
            clock_ahead: 0,
        }
    }

    #[test]
    fn member_is_compared_by_a_recent_summary() {
        let same = serde_json::to_string(&own()).expect("JSON");
        for (reports, said) in [
            (&[][..], "\"b\" has no summary"),
            (
                &[("b", MAX_AGE + 1, same.as_str())],
                "more than an hour ago",
            ),
            (&[("b", 1, "{}")], "\"b\" differs: option timeout"),
            (&[("b", 1, "x")], "cannot be read"),
        ] {
            let found = of_members(&check(reports), ("a", &own()));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(said), "{found:?}");
        }
        let agreed = check(&[("b", 1, &same)]);
        assert_eq!(of_members(&agreed, ("a", &own())), [""; 0]);
    }

    #[test]
    fn tables_clock_and_an_upgrade_that_was_not_ended_are_named() {
        let same = serde_json::to_string(&own()).expect("JSON");
        let mut found = check(&[("b", 1, &same)]);
        assert_eq!(of_tables(&found), [""; 0]);
        found.missing = vec!["events"];
        found.clock_ahead = -5_000;
        let said = of_tables(&found).concat();
        assert!(
            said.contains("events") && said.contains("5 s behind"),
            "{said}"
        );
        found.state.layout = Some(Layout {
            version: 3,
            floor: 2,
        });
        let said = of_members(&found, ("a", &own())).concat();
        assert!(said.contains("contract"), "{said}");
    }
}

//! `saltern cluster verify`: whether the members of a cluster agree. Each writes a summary of what it has
//! into the database when the command runs on it, and compares it with those of the others.

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_base::hex;
use saltern_config::{ClusterConfig, MasterConfig};
use saltern_content::member_summary::{MemberSummary, differences, member_summary};
use saltern_crypto::StateCipher;
use saltern_model::MinionId;
use saltern_sql::{
    ClusterCheck, ClusterError, Layout, MemberReport, check_cluster, cluster_secret, missing_tables,
};
use saltern_store::PkiTree;
use saltern_store::shared_state::minion_keys::{keys_no_longer_accepted, keys_not_shared};

use super::{cipher_of, notes};
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
    // Without all tables nothing is compared, and with another secret each digest is another one.
    if let Some(problem) = of_tables(&missing_tables(cluster)?) {
        say(&problem);
        return Ok(Exit::Failure);
    }
    let cipher = cipher_of(cluster)?;
    if let Some(problem) = of_secret(cluster, cipher.as_ref())? {
        say(problem);
        return Ok(Exit::Failure);
    }
    let secret = cipher.as_ref();
    let secret = secret.map_or(&[][..], |cipher| &cipher.member_key()[..]);
    let pki = PkiTree::existing(config, Clock::system());
    let own = member_summary((config, cluster), &pki, (env!("CARGO_PKG_VERSION"), secret))?;
    let text = serde_json::to_string(&own).unwrap_or_default();
    let check = check_cluster(cluster, &config.id, &text)?;
    let mut problems = Vec::from_iter(of_clock(check.clock_ahead));
    if cluster.share_keys {
        let refused = keys_not_shared(config)?;
        problems.extend(refused.map(|why| format!("keys of this member are not shared: {why}")));
        problems.extend(of_keys(&keys_no_longer_accepted(config)?));
    }
    let noted = notes(&check.state, &config.id);
    problems.extend(noted.map(|(member, why)| format!("\"{member}\" does not share all: {why}")));
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

fn of_tables(missing: &[&str]) -> Option<String> {
    let names = missing.join(", ");
    (!missing.is_empty())
        .then(|| format!("tables are missing: {names}; restore them from a backup\n"))
}

fn of_clock(ahead: i64) -> Option<String> {
    let side = match ahead > 0 {
        true => "ahead of",
        false => "behind",
    };
    (ahead.abs() > MAX_CLOCK).then(|| {
        format!(
            "the clock of this machine is {} s {side} that of the database: synchronise both",
            ahead.abs() / 1000
        )
    })
}

/// Keys that only this member had accepted when it joined.
fn of_keys(minions: &[MinionId]) -> Vec<String> {
    let named = minions.iter().take(MAX_NAMED);
    let mut found: Vec<String> = named
        .map(|id| {
            format!(
                "the key of \"{id}\" was accepted on this machine only and is pending since it joined: accept or \
                 delete it (salt-key)"
            )
        })
        .collect();
    if let Some(more) = minions
        .len()
        .checked_sub(MAX_NAMED)
        .filter(|more| *more > 0)
    {
        found.push(format!(
            "{more} more keys were accepted on this machine only"
        ));
    }
    found
}

fn of_secret(
    cluster: &ClusterConfig,
    cipher: Option<&StateCipher>,
) -> Result<Option<&'static str>, ClusterError> {
    let own = cipher.map(|cipher| hex(cipher.check()));
    Ok((cluster_secret(cluster)? != own).then_some(
        "the secret of this machine (secret_file) is not that of the cluster, so nothing was compared: copy \
         it from another member\n",
    ))
}

/// Whether the upgrade can be ended.
fn is_upgraded(check: &ClusterCheck) -> bool {
    let members = &check.state.members;
    let knows = |layout: Layout| members.iter().all(|one| one.layout >= layout.version);
    let layout = check.state.layout.filter(|layout| layout.is_expanded());
    !members.is_empty() && layout.is_some_and(knows)
}

/// Problems of the other members.
fn of_members(check: &ClusterCheck, (name, own): (&str, &MemberSummary)) -> Vec<String> {
    let mut found = Vec::new();
    if is_upgraded(check) {
        found.push(
            "all members know the present tables: run \"saltern cluster contract\"".to_owned(),
        );
    }
    if !check.state.members.iter().any(|one| one.name != name) {
        found.push("there is no other member, so nothing was compared".to_owned());
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
    use saltern_sql::ClusterState;

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
        let mut alone = agreed;
        alone.state.members.truncate(1);
        let said = of_members(&alone, ("a", &own())).concat();
        assert!(said.contains("no other member"), "{said}");
    }

    #[test]
    fn missing_tables_and_clock_are_named() {
        assert_eq!(of_tables(&[]), None);
        let said = of_tables(&["events", "lease"]).expect("missing");
        assert!(said.contains("events, lease"), "{said}");
        assert_eq!(of_clock(MAX_CLOCK), None);
        let said = of_clock(-5_000).expect("a difference");
        assert!(said.contains("5 s behind"), "{said}");
    }

    #[test]
    fn contract_is_advised_once_all_members_know_the_expanded_layout() {
        for (version, floor, layouts, is_advised) in [
            (3, 2, &[3, 3][..], true),
            (3, 3, &[3, 3], false),
            (3, 2, &[], false),
            // Right after "init" by the new release.
            (3, 2, &[0, 0], false),
            (3, 2, &[0, 3], false),
            // By the release before.
            (4, 3, &[3, 3], false),
            (4, 3, &[4, 4], true),
        ] {
            let mut found = check(&[]);
            found.state.layout = Some(Layout { version, floor });
            found.state.members.truncate(layouts.len());
            for (member, layout) in found.state.members.iter_mut().zip(layouts) {
                member.layout = *layout;
            }
            let said = of_members(&found, ("a", &own())).concat();
            assert_eq!(said.contains("contract"), is_advised, "{layouts:?}: {said}");
        }
    }
}

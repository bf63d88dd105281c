//! The cluster of masters: whether its database answers, one master is active, and another could follow.

use saltern_sql::{ClusterError, ClusterState, cluster_state};

use saltern_store::shared_state::minion_keys::keys_not_shared;

use super::{Diagnosis, Finding, chain};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    let Some(cluster) = &config.saltern_cluster else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if cluster.share_keys {
        found.extend(of_keys(keys_not_shared(config)));
    }
    found.extend(match cluster_state(cluster) {
        Ok(state) => findings(&state, &config.id),
        Err(error) => {
            let advice = match error {
                ClusterError::NotInitialised { .. } => "run \"saltern cluster init\"",
                _ => "look after the database: without it no job is published or stored",
            };
            vec![Finding::new(chain(&error), advice).error()]
        }
    });
    found
}

/// Why this member does not share the keys of minions as it should, as it noted it.
fn of_keys(noted: saltern_store::Result<Option<String>>) -> Option<Finding> {
    match noted {
        Ok(why) => why.map(|why| {
            let what = format!("keys of minions are not shared with the cluster: {why}");
            let advice = "until then a key that is deleted on another member still counts here, or the other way round";
            Finding::new(what, advice).error()
        }),
        Err(error) => {
            let advice = "run it as root or as the master's user";
            Some(Finding::new(chain(&error), advice).note())
        }
    }
}

fn findings(state: &ClusterState, id: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    match state.active() {
        None => {
            let advice = "start a master of the cluster, or wait until one takes over";
            findings.push(Finding::new("no master of the cluster is active", advice).error());
        }
        Some(active) if active != id => {
            let what = format!("the active master of the cluster is \"{active}\", not this one");
            findings.push(Finding::new(what, "nothing is to be done here").note());
        }
        Some(_) => {}
    }
    if state.active().is_some() && state.standbys() == 0 {
        let advice = "start another master of the cluster, so that one can take over";
        findings.push(Finding::new("no master of the cluster stands by", advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use saltern_sql::LeaseState;

    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn cluster_without_an_active_master_or_a_standby_is_found() {
        let (_dir, alone) = diagnosis("");
        assert!(check(&alone).is_empty(), "there is no cluster");
        let mut state = ClusterState::default();
        let whats = |state: &ClusterState| {
            let found = findings(state, "a").into_iter();
            found.map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(whats(&state), ["no master of the cluster is active"]);
        state.lease = Some(LeaseState {
            owner: "a".to_owned(),
            epoch: 1,
            remaining: 1,
        });
        assert_eq!(whats(&state), ["no master of the cluster stands by"]);
    }

    #[test]
    fn member_that_does_not_share_its_keys_is_an_error() {
        let found = of_keys(Ok(Some("30 of 31".to_owned()))).unwrap();
        assert!(found.what.ends_with("30 of 31"));
        assert_eq!(found.severity, saltern_config::Severity::Error);
        assert!(of_keys(Ok(None)).is_none());
    }

    #[test]
    fn database_that_is_away_is_an_error() {
        let (_dir, diagnosis) =
            diagnosis("saltern_cluster: {postgres: 'host=/nowhere user=salt'}\n");
        let found = check(&diagnosis);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, saltern_config::Severity::Error);
    }
}

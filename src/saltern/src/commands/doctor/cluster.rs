//! The cluster of masters: whether its database answers, one master is active, and another could follow.

use saltern_sql::{ClusterError, ClusterState, cluster_state};

use super::{Diagnosis, Finding, chain};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    let Some(cluster) = &config.saltern_cluster else {
        return Vec::new();
    };
    match cluster_state(cluster) {
        Ok(state) => findings(&state, &config.id),
        Err(error) => {
            let advice = match error {
                ClusterError::NotInitialised { .. } => "run \"saltern cluster init\"",
                _ => "look after the database: without it no job is published or stored",
            };
            vec![Finding::new(chain(&error), advice).error()]
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
    fn database_that_is_away_is_an_error() {
        let (_dir, diagnosis) =
            diagnosis("saltern_cluster: {postgres: 'host=/nowhere user=salt'}\n");
        let found = check(&diagnosis);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, saltern_config::Severity::Error);
    }
}

//! The alert rules on a real master with a real Prometheus: each fires for its cause and clears
//! when that is over. [`SHOWN`] says which test shows which alert, and each test answers for its
//! row. What the rules do at their real pace, with series that are made up, is in
//! `grafana/alerts_test.yml`.
//!
//! Every alert can be triggered here; those of a full disk need the right to mount one, and without
//! it their test fails, unless a variable excuses it.

mod cluster;
mod master;
mod minions;
mod overload;
mod queues;
mod returner;
mod storage;
mod syndic;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use saltern_tests::prometheus::{self, Prometheus, metrics_address};
use saltern_tests::site::SOON;
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};

const OURS: Server = Server::Saltern(Release::V3008);

/// Tests of the alerts: that they fire for their cause, and clear when it is over.
const SHOWN: &[(&str, &[&str])] = &[
    (
        "minions_and_their_jobs",
        &[
            "SalternKeysPending",
            "SalternMinionsAway",
            "SalternJobsIncomplete",
        ],
    ),
    (
        "the_master_itself",
        &[
            "SalternDown",
            "SalternCheckFailed",
            "SalternActorRestarts",
            "SalternConnectionsRefused",
            "SalternMaintenanceFails",
            "SalternEngineGivenUp",
        ],
    ),
    (
        "more_work_than_can_be_done",
        &[
            "SalternCommitsSlow",
            "SalternRequestsTurnedAway",
            "SalternJobCacheLags",
            "SalternAuthenticationStorm",
            "SalternWorkersBusy",
        ],
    ),
    (
        "queues_that_are_full",
        &[
            "SalternWorkRefused",
            "SalternDeliveriesDropped",
            "SalternEventsDropped",
            "SalternReactorDrops",
            "SalternFilesRunOut",
        ],
    ),
    ("a_database_that_is_away", &["SalternReturnerLags"]),
    (
        "a_master_above_that_is_away",
        &["SalternSyndicCutOff", "SalternSyndicDrops"],
    ),
    (
        "a_cluster_without_a_standby",
        &[
            "SalternClusterNoStandby",
            "SalternClusterKeysStale",
            "SalternClusterDataStale",
        ],
    ),
    (
        "a_disk_that_fills_up",
        &[
            "SalternDiskFillsUp",
            "SalternStoreReadOnly",
            "SalternCheckFailed",
        ],
    ),
    (
        "a_file_that_cannot_grow",
        &["SalternCommitsFail", "SalternCheckFailed"],
    ),
];

#[test]
fn every_alert_is_shown_by_a_test() -> TestResult {
    let shown = SHOWN.iter().flat_map(|(_, alerts)| *alerts);
    let shown: BTreeSet<String> = shown.map(|alert| (*alert).to_owned()).collect();
    let alerts = prometheus::alerts()?;
    let differ: Vec<_> = alerts.symmetric_difference(&shown).collect();
    if !differ.is_empty() {
        Err(anyhow::anyhow!(
            "without a test, or without a rule: {differ:?}"
        ))?;
    }
    Ok(())
}

/// A Prometheus that watches the site of one test, which answers for its row of [`SHOWN`].
struct Watch {
    prometheus: Prometheus,
    /// The alerts that have neither fired nor cleared, and those that have not cleared.
    to_fire: BTreeSet<&'static str>,
    to_clear: BTreeSet<&'static str>,
}

impl Watch {
    /// `test` is its name in the table.
    fn start(site: &mut Site, test: &str) -> Result<Self> {
        let row = SHOWN.iter().find(|(name, _)| *name == test);
        let (_, alerts) = row.with_context(|| format!("{test} is not in the table"))?;
        let target = site.config().get("saltern_metrics_address");
        let target = target.context("a metrics address")?.to_owned();
        Ok(Self {
            prometheus: Prometheus::start(&site.path("prometheus"), &target)?,
            to_fire: alerts.iter().copied().collect(),
            to_clear: alerts.iter().copied().collect(),
        })
    }

    /// Waits until none of these fires: what follows would not be its cause. A master that only just
    /// started on a busy machine may be slow for a while.
    fn expect_quiet(&self, alerts: &[&str]) -> Result<()> {
        let mut alerts = alerts.iter();
        alerts.try_for_each(|alert| self.prometheus.wait_quiet(alert))
    }

    /// Waits until the alert fires with these labels.
    fn fires(&mut self, alert: &str, labels: &[(&str, &str)]) -> Result<()> {
        self.fires_while(alert, labels, || Ok(()))
    }

    /// `cause` triggers it, and is repeated until it fires.
    fn fires_while(
        &mut self,
        alert: &str,
        labels: &[(&str, &str)],
        mut cause: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut last = Vec::new();
        let waited = wait_until(&format!("{alert} to fire"), 2 * SOON, || {
            if let Err(error) = cause() {
                return Some(Err(error));
            }
            last = self.prometheus.firing().ok()?;
            let fires = last.iter().any(|firing| firing.is(alert, labels));
            fires.then_some(Ok(()))
        });
        waited.with_context(|| format!("with {labels:?}; firing: {last:?}"))??;
        self.to_fire.remove(alert);
        Ok(())
    }

    fn clears(&mut self, alert: &str) -> Result<()> {
        self.prometheus.wait_quiet(alert)?;
        self.to_clear.remove(alert);
        Ok(())
    }

    /// Waits until all that has fired is over. Fails unless the test has shown what the table says.
    fn has_shown_all(mut self) -> Result<()> {
        ensure!(
            self.to_fire.is_empty(),
            "these have not fired: {:?}",
            self.to_fire
        );
        for alert in std::mem::take(&mut self.to_clear) {
            self.clears(alert)?;
        }
        Ok(())
    }
}

/// Common options of these sites: their metrics are scraped.
fn configure(config: &mut Config) {
    config.set("saltern_metrics_address", metrics_address());
}

//! Metrics of a member of a cluster. A master without a cluster has them, too, as zeros.

use std::sync::Arc;

use saltern_base::metrics::{Registry, counter, gauge_on_scrape};
use saltern_store::SharedState;
use saltern_store::shared_state::minion_data::{DataCounters, MinionDataSync};
use saltern_store::shared_state::minion_keys::{KeyCounters, MinionKeySync};

use super::membership::Membership;

/// Registers them.
///
/// # Panics
/// When the registry has them already.
pub fn register_cluster_metrics(
    registry: &Registry,
    membership: Option<&Arc<Membership>>,
    (state, keys, data): (&SharedState, &MinionKeySync, &MinionDataSync),
) {
    register_state_metrics(registry, state);
    register_key_metrics(registry, keys);
    register_data_metrics(registry, data);
    let figures = {
        let membership = membership.cloned();
        move || membership.as_ref().map(|membership| membership.figures())
    };
    let takeovers = counter(
        registry,
        "saltern_cluster_takeovers_total",
        "Leases that this process took although the active master before had not given them up.",
    );
    takeovers.inc_by(figures().map_or(0, |figures| figures.takeovers));
    let now = figures.clone();
    number(
        registry,
        "saltern_cluster_active",
        "Whether this master is the active one of its cluster; 0 without a cluster.",
        move || now().is_some_and(|figures| figures.is_active),
    );
    let now = figures.clone();
    number(
        registry,
        "saltern_cluster_epoch",
        "Epoch of the lease of the cluster, which each change of its owner raises.",
        move || now().map_or(0, |figures| figures.epoch),
    );
    let now = figures.clone();
    number(
        registry,
        "saltern_cluster_standbys",
        "Live masters of the cluster that stand by.",
        move || now().map_or(0, |figures| figures.standbys),
    );
    number(
        registry,
        "saltern_cluster_renewal_age_seconds",
        "Time since the last renewal of the lease that was granted; 0 without one.",
        move || {
            let age = figures().and_then(|figures| figures.since_renewal);
            age.unwrap_or_default()
        },
    );
}

/// Registers a gauge without labels, which is asked for when it is scraped.
fn number<T: TryInto<i64>>(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    now: impl Fn() -> T + Send + Sync + 'static,
) {
    gauge_on_scrape(registry, name, help, &[], move |gauges| {
        let value = now().try_into().unwrap_or(i64::MAX);
        gauges.with_label_values::<&str>(&[]).set(value);
    });
}

fn register_state_metrics(registry: &Registry, state: &SharedState) {
    let now = state.clone();
    number(
        registry,
        "saltern_cluster_state_pending",
        "Changes of keys of sessions and tokens that the other masters of the cluster do not have yet.",
        move || now.figures().pending,
    );
    state.count_in(
        counter(
            registry,
            "saltern_cluster_state_written_total",
            "Changes of keys of sessions and tokens that this process wrote for the other masters.",
        ),
        counter(
            registry,
            "saltern_cluster_state_dropped_total",
            "Changes of keys of sessions and tokens for which the queue had no room: after a takeover \
             their minions authenticate, and their users log in.",
        ),
    );
}

fn register_key_metrics(registry: &Registry, keys: &MinionKeySync) {
    let now = keys.clone();
    number(
        registry,
        "saltern_cluster_keys_pending",
        "Minions whose keys were changed on this machine, and which the other masters of the cluster do not have yet.",
        move || now.figures().pending,
    );
    let now = keys.clone();
    number(
        registry,
        "saltern_cluster_keys_demoted",
        "Minions that were accepted on this machine only when it joined its cluster, and are pending since.",
        move || now.figures().demoted,
    );
    let now = keys.clone();
    number(
        registry,
        "saltern_cluster_keys_age_seconds",
        "Time since the keys of minions on this machine were compared with those of the cluster; 0 without one.",
        move || now.figures().age,
    );
    keys.count_in(KeyCounters {
        published: counter(
            registry,
            "saltern_cluster_keys_published_total",
            "Changes of keys of minions on this machine that the other masters of the cluster have or get.",
        ),
        applied: counter(
            registry,
            "saltern_cluster_keys_applied_total",
            "Changes of keys of minions of other masters of the cluster that were made here, too.",
        ),
        conflicts: counter(
            registry,
            "saltern_cluster_keys_conflicts_total",
            "Keys of minions that were changed on two masters of the cluster at once.",
        ),
        refused: counter(
            registry,
            "saltern_cluster_keys_refused_total",
            "Rows of keys of minions that are not used: not authentic, or older than what was there.",
        ),
    });
}

fn register_data_metrics(registry: &Registry, data: &MinionDataSync) {
    let now = data.clone();
    number(
        registry,
        "saltern_cluster_data_pending",
        "Grains and mines of minions on this machine that are to be compared with what the other masters of the cluster \
         have; a changed one is written once a minute at most.",
        move || now.figures().pending,
    );
    let now = data.clone();
    number(
        registry,
        "saltern_cluster_data_age_seconds",
        "Time since grains and mines of minions on this machine were compared with those of the cluster; 0 without one.",
        move || now.figures().age,
    );
    data.count_in(DataCounters {
        written: counter(
            registry,
            "saltern_cluster_data_written_total",
            "Changes of grains and mines of minions that this process wrote for the other masters of the cluster.",
        ),
        applied: counter(
            registry,
            "saltern_cluster_data_applied_total",
            "Changes of grains and mines of minions by other masters of the cluster that were made here, too.",
        ),
        refused: counter(
            registry,
            "saltern_cluster_data_refused_total",
            "Rows of grains and mines of minions that are not used: not authentic, or older than what was there.",
        ),
        too_large: counter(
            registry,
            "saltern_cluster_data_too_large_total",
            "Changes of grains and mines of minions that are too large for the other masters of the cluster to have.",
        ),
        damaged: counter(
            registry,
            "saltern_cluster_data_damaged_total",
            "Files of grains and mines of minions that are damaged, and that what the cluster has replaces.",
        ),
    });
}

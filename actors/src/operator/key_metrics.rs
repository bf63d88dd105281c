//! Gauges of minion keys by state, counted at scrape time.

use std::sync::Arc;

use saltern_base::metrics::{Registry, gauge_on_scrape};
use saltern_model::KeyState;
use saltern_store::PkiTree;

/// Registers the gauges.
///
/// # Panics
/// When the registry has them already.
pub(crate) fn register(registry: &Registry, pki: Arc<PkiTree>) {
    gauge_on_scrape(
        registry,
        "saltern_keys",
        "Keys of minions, by state.",
        &["state"],
        move |gauges| {
            for state in KeyState::ALL {
                // A directory that cannot be read fails /readyz; here the last count stays.
                if let Ok(count) = pki.count(state) {
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    gauges.with_label_values(&[state.to_string()]).set(count);
                }
            }
        },
    );
}

//! A fleet that is nowhere but in the master's files: accepted keys and cached grains and pillars
//! for so many minions, and targets that mean about ten of them.
//!
//! Written before the master starts, with the store's own writers and so in the layout of
//! `salt_compat`; a stock master of that version reads the same files. Nobody answers for these
//! minions: how long the master thinks about a target is all that is asked of them.

use std::path::Path;

use saltern_base::clock::Clock;
use saltern_channel::{KeyError, MinionKeys};
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_store::{MinionDataStore, PkiTree, StoreError};
use saltern_wire::msgpack::Value;

use super::server::{DOMAIN, IN_RACK, Server, rack_name};

/// The nodegroups that the master of a fleet must have, for its configuration file: front is in
/// canary.
pub(crate) const NODEGROUPS: [(&str, &str); 2] = [
    ("front", "web* and I@app:role:web"),
    ("canary", r"N@front and P@rack:^rack-0000[0-2]$"),
];

/// Why a fleet cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("cannot write the key \"{path}\"")]
    Key {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("\"{0}\" is no minion id")]
    Id(String),
}

/// The id of the fleet's minion with this number.
pub(crate) fn id(number: usize) -> String {
    format!("{}.{}", Server(number).host(), DOMAIN.to_lowercase())
}

fn pillar(number: usize, minions: usize) -> Value {
    let server = Server(number);
    let app = [
        ("role", Value::from(server.role())),
        ("shard", shard(number, minions).into()),
        ("port", 8_080_i64.into()),
    ];
    let tls = [("issuer", "internal"), ("days", "90")];
    Value::map([("app", Value::map(app)), ("tls", Value::map(tls))])
}

/// A part of the data that fifteen minions have, wherever they stand.
fn shard(number: usize, minions: usize) -> usize {
    number % shards(minions)
}

fn shards(minions: usize) -> usize {
    let about = (minions / 15).max(1);
    // Without a common factor with the number of roles and systems: every shard has some of each.
    (about..)
        .find(|shards| shards % 2 == 1 && shards % 3 != 0)
        .unwrap_or(1)
}

/// Writes keys, grains and pillars of `minions` minions to where this configuration's master will
/// look for them.
pub(crate) fn write(config: &MasterConfig, minions: usize) -> Result<(), FleetError> {
    let pki = PkiTree::open(config, Clock::system())?;
    let data = MinionDataStore::open(config);
    let keys = MinionKeys::generate(2048)?;
    let accepted = config.pki_dir.join("minions");
    for number in 0..minions {
        let name = id(number);
        let parsed = MinionId::parse(&name).map_err(|_| FleetError::Id(name.clone()))?;
        match number {
            0 => pki.accept(&parsed, &keys.public_pem)?,
            // As `accept` writes it, but without waiting for the disk a hundred thousand times.
            _ => write_key(&accepted.join(&name), &keys.public_pem)?,
        }
        let grains = Server(number).grains(&name);
        data.store_grains_and_pillar(&parsed, &grains, &pillar(number, minions))?;
    }
    Ok(())
}

fn write_key(path: &Path, pem: &str) -> Result<(), FleetError> {
    std::fs::write(path, pem).map_err(|source| FleetError::Key {
        path: path.to_owned(),
        source,
    })
}

/// A compound target and the minions that match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompoundTarget {
    pub(crate) target: String,
    /// In ascending order.
    pub(crate) minions: Vec<String>,
}

/// The kinds of targets that [`question`] asks in turn.
pub(crate) const KINDS: usize = 5;

/// The target of this round: each kind in turn, each time about other minions, so that a master
/// gains nothing from remembering the last one.
pub(crate) fn question(round: usize, minions: usize) -> CompoundTarget {
    let racks = (minions / IN_RACK).max(1);
    // A prime step visits all racks before it comes back to the first.
    let rack = round / KINDS * 7_919 % racks;
    let other = (rack + 1) % racks;
    let in_racks = |server: Server| server.rack() == rack || server.rack() == other;
    let (target, is_meant): (String, Box<dyn Fn(Server) -> bool>) = match round % KINDS {
        0 => (
            format!("G@rack:{} and web*", rack_name(rack)),
            Box::new(move |server| server.rack() == rack && server.role() == "web"),
        ),
        1 => (
            format!(
                "P@rack:^({}|{})$ and I@app:role:db and not G@os:Rocky",
                rack_name(rack),
                rack_name(other)
            ),
            Box::new(move |server| {
                in_racks(server) && server.role() == "db" && server.os() != "Rocky"
            }),
        ),
        2 => {
            let os = Server(round / KINDS).os();
            (
                format!("N@canary and G@os:{os}"),
                Box::new(move |server| {
                    server.role() == "web" && server.rack() < 3 && server.os() == os
                }),
            )
        }
        3 => {
            let first = rack * IN_RACK / 16 * 16;
            (
                format!("S@{}/28 and not cache*", Server(first).address()),
                Box::new(move |server| server.0 / 16 * 16 == first && server.role() != "cache"),
            )
        }
        _ => {
            let wanted = rack % shards(minions);
            (
                format!("( G@os:Debian or G@os:Ubuntu ) and I@app:shard:{wanted}"),
                Box::new(move |server| {
                    server.os() != "Rocky" && shard(server.0, minions) == wanted
                }),
            )
        }
    };
    let mut meant: Vec<String> = (0..minions)
        .filter(|number| is_meant(Server(*number)))
        .map(id)
        .collect();
    meant.sort_unstable();
    CompoundTarget {
        target,
        minions: meant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compound_targets_match_about_ten_minions_and_rotate() {
        for minions in [10_000, 100_000] {
            let asked: Vec<CompoundTarget> =
                (0..100).map(|round| question(round, minions)).collect();
            for question in &asked {
                let found = question.minions.len();
                assert!((6..=16).contains(&found), "{question:?}");
            }
            let different: std::collections::BTreeSet<&str> = asked
                .iter()
                .map(|question| question.target.as_str())
                .collect();
            // All but those of the nodegroup, which has three systems.
            assert_eq!(different.len(), 80 + 3, "{minions} minions");
        }
    }

    #[test]
    fn targets_of_a_small_fleet_match_existing_minions() {
        for round in 0..2 * KINDS {
            let asked = question(round, 200);
            assert!(!asked.minions.is_empty(), "{asked:?}");
        }
    }
}

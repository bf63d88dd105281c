//! The same questions to stock's `CkMinions` and to us: random targets over random fleets.
//!
//! `tests/vectors/targets.json` holds stock's answers for fixed seeds, made by
//! `tests/vectors/make_targets.py`. The second test asks the stock Salt of this machine afresh
//! (what `tests/install-stock.sh` installed) with other seeds, in all
//! three versions. `SALTERN_TARGETS_JSON` names another file of answers for the first, for a longer
//! run with more seeds. The script leaves out what the documentation of [`crate::matching`] lists as
//! different; there is no other exception here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use saltern_config::yaml;
use saltern_model::{Changed, Compat, DataChanges, MinionId, Target, TargetType};
use saltern_wire::msgpack::{Limits, Value, decode_exact};
use serde_json::Value as Json;

use super::{MatchOptions, MinionData, Nodegroups, Site};
use crate::target::{Candidates, Targeting};

struct Fleet {
    accepted: Vec<MinionId>,
}

impl Candidates for Fleet {
    fn ids(&self) -> &[MinionId] {
        &self.accepted
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        self.accepted.iter().find(|known| known.as_str() == id)
    }
}

/// Cached data that never changes.
struct Cached {
    entries: BTreeMap<MinionId, Value>,
}

impl Cached {
    fn part(&self, id: &MinionId, name: &str) -> Option<Arc<Value>> {
        self.entries.get(id)?.get(name).cloned().map(Arc::new)
    }
}

impl MinionData for Cached {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.part(id, "grains")
    }

    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.part(id, "pillar")
    }

    fn known(&self) -> Arc<[MinionId]> {
        self.entries.keys().cloned().collect()
    }

    fn changes(&self, _since: Option<u64>) -> DataChanges {
        DataChanges {
            generation: 1,
            changed: Changed::Everything,
        }
    }
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap()
}

fn ids(json: &Json) -> Vec<MinionId> {
    let names = json.as_array().unwrap().iter();
    names
        .map(|name| MinionId::parse(text(name)).unwrap())
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
        .collect()
}

fn site(fleet: &Json, compat: Compat) -> Site {
    // JSON is YAML.
    let groups = fleet["nodegroups"].to_string();
    let groups = yaml::parse(&groups, "nodegroups", &yaml::Limits::DEFAULT).unwrap();
    let data = decode_exact(&unhex(text(&fleet["data"])), &Limits::WIRE).unwrap();
    let entries = data.as_map().unwrap().iter().map(|(name, entry)| {
        let id = MinionId::parse(name.as_str().unwrap()).unwrap();
        (id, entry.clone())
    });
    let data = Cached {
        entries: entries.collect(),
    };
    Site::new(compat, Nodegroups::from_node(&groups), Some(Arc::new(data)))
}

/// Compares every answer and gives the number of questions and the differences.
fn compare(answers: &Json) -> (usize, Vec<String>) {
    let compat = match text(&answers["version"]) {
        version if version.starts_with("3006") => Compat::V3006,
        version if version.starts_with("3007") => Compat::V3007,
        _ => Compat::V3008,
    };
    let (mut count, mut differences) = (0, Vec::new());
    for fleet in answers["fleets"].as_array().unwrap() {
        let accepted = Fleet {
            accepted: ids(&fleet["accepted"]),
        };
        let targeting = Targeting::of(site(fleet, compat));
        for question in fleet["questions"].as_array().unwrap() {
            count += 1;
            let (kind, exact_pillar) = match text(&question[0]) {
                "compound_pillar_exact" => (TargetType::Compound, true),
                kind => (TargetType::from_wire(kind).unwrap(), false),
            };
            let target = Target::Expression(kind, text(&question[1]).to_owned());
            let options = MatchOptions {
                delimiter: text(&question[2]),
                greedy: question[3].as_bool().unwrap(),
                exact_pillar,
                ..MatchOptions::default()
            };
            let resolved = targeting.resolve_with(&target, &accepted, &options);
            let error = resolved.as_ref().err().map(ToString::to_string);
            let resolved = resolved.unwrap_or_default();
            let mut minions = resolved.minions;
            minions.sort();
            let numbers = question[4].as_array().unwrap().iter();
            let expected: Vec<MinionId> = numbers
                .map(|number| accepted.accepted[number.as_u64().unwrap() as usize].clone())
                .collect();
            let mut missing = resolved.missing;
            missing.sort();
            missing.dedup();
            let expected_missing = question[5].as_array().unwrap().iter();
            let expected_missing: Vec<&str> = expected_missing.map(text).collect();
            if minions != expected || missing != expected_missing {
                let shown = |ids: &[MinionId]| {
                    ids.iter()
                        .map(MinionId::as_str)
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                differences.push(format!(
                    "seed {}: {question}\n  stock: {} | {expected_missing:?}\n  ours:  {} | \
                     {missing:?} {error:?}",
                    fleet["seed"],
                    shown(&expected),
                    shown(&minions),
                ));
            }
        }
    }
    (count, differences)
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

#[test]
fn recorded_answers_of_stock_are_ours() {
    let file = std::env::var_os("SALTERN_TARGETS_JSON").map(PathBuf::from);
    let file = file.unwrap_or_else(|| vectors().join("targets.json"));
    let recorded = std::fs::read_to_string(file).unwrap();
    let (count, differences) = compare(&serde_json::from_str(&recorded).unwrap());
    assert!(count >= 2_000, "{count}");
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn stock_of_three_versions_answers_as_we_do() {
    for (seed, version) in [(101, "3006.28"), (102, "3007.15"), (103, "3008.3")] {
        let answers = Command::new(saltern_stock::python(version))
            .arg(vectors().join("make_targets.py"))
            .args([
                "--out",
                "-",
                "--questions",
                "2000",
                "--seed",
                &seed.to_string(),
            ])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&answers.stderr);
        assert!(answers.status.success(), "{errors}");
        let (count, differences) = compare(&serde_json::from_slice(&answers.stdout).unwrap());
        assert_eq!(count, 2_000);
        assert!(
            differences.is_empty(),
            "{version}: {} differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
    }
}

//! How long targets take: `cargo run --release -p saltern-policy --example matching`.
//!
//! A fleet of 10,000 and one of 100,000 minions with 60 grains each, of which 15 are different for
//! every minion. Compound targets of two to four words, each new or seen before, while minions
//! change their grains. Times are those of the processor, so that a busy machine counts little.

#![allow(clippy::print_stdout, reason = "a measurement for people")]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_model::{Changed, Compat, DataChanges, MinionId, Target, TargetType};
use saltern_policy::matching::{MinionData, Nodegroups, Site};
use saltern_policy::target::{Candidates, Targeting};
use saltern_wire::msgpack::Value;

struct Fleet(Vec<MinionId>);

impl Candidates for Fleet {
    fn ids(&self) -> &[MinionId] {
        &self.0
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        let at = self
            .0
            .binary_search_by(|known| known.as_str().cmp(id))
            .ok()?;
        self.0.get(at)
    }
}

struct Data {
    ids: Arc<[MinionId]>,
    numbers: HashMap<MinionId, usize>,
    /// How often each minion has changed, and who did last.
    state: Mutex<(HashMap<MinionId, usize>, u64, Vec<MinionId>)>,
}

impl MinionData for Data {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        let number = *self.numbers.get(id)?;
        let changes = self.state.lock().0.get(id).copied().unwrap_or(0);
        let mut grains: Vec<(Value, Value)> = (0..45)
            .map(|grain| {
                let text = format!("value {}", number % (grain + 2));
                (
                    format!("common{grain}").as_str().into(),
                    text.as_str().into(),
                )
            })
            .collect();
        grains.extend((0..13).map(|grain| {
            let text = format!("own value {grain} of {number}");
            (format!("own{grain}").as_str().into(), text.as_str().into())
        }));
        let os = ["Debian", "Ubuntu", "RedHat"]
            .get(number % 3)
            .copied()
            .unwrap_or("x");
        grains.push(("os".into(), os.into()));
        grains.push(("uptime".into(), (changes as i64).into()));
        let address = format!(
            "10.{}.{}.{}",
            number >> 16,
            (number >> 8) & 255,
            number & 255
        );
        grains.push(("ipv4".into(), vec![Value::from(address.as_str())].into()));
        Some(Arc::new(Value::Map(grains)))
    }

    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>> {
        let role = ["web", "db", "app", "cache"]
            .get(self.numbers.get(id)? % 4)
            .copied();
        let app = Value::map([("role", Value::from(role)), ("port", 80_i64.into())]);
        Some(Arc::new(Value::map([("app", app)])))
    }

    fn known(&self) -> Arc<[MinionId]> {
        Arc::clone(&self.ids)
    }

    fn changes(&self, since: Option<u64>) -> DataChanges {
        let state = self.state.lock();
        DataChanges {
            generation: state.1,
            changed: match since {
                Some(_) => Changed::These(state.2.clone()),
                None => Changed::Everything,
            },
        }
    }
}

/// How long this thread has run, in milliseconds, as Linux counts it.
fn processor_millis() -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = line
        .split(' ')
        .next()
        .and_then(|field| field.parse().ok())
        .unwrap_or(0.0);
    nanos / 1e6
}

fn main() {
    for size in [10_000_usize, 100_000] {
        let mut ids: Vec<MinionId> = (0..size)
            .map(|number| {
                MinionId::parse(&format!("minion-{number:06}.example.com")).expect("an id")
            })
            .collect();
        ids.sort();
        let data = Arc::new(Data {
            ids: ids.clone().into(),
            numbers: ids
                .iter()
                .cloned()
                .enumerate()
                .map(|(at, id)| (id, at))
                .collect(),
            state: Mutex::new((HashMap::new(), 1, Vec::new())),
        });
        let site = Site::new(
            Compat::V3008,
            Nodegroups::default(),
            Some(Arc::clone(&data) as Arc<dyn MinionData>),
        );
        let (targeting, fleet) = (Targeting::of(site), Fleet(ids.clone()));
        let ask = |text: &str| {
            let target = Target::Expression(TargetType::Compound, text.to_owned());
            let start = processor_millis();
            let found = targeting
                .resolve(&target, &fleet)
                .map_or(0, |found| found.minions.len());
            (processor_millis() - start, found)
        };
        println!(
            "{size} minions: first target, reads everything: {:.0} ms",
            ask("G@os:Debian").0
        );
        let mut times = Vec::new();
        for round in 0..600_usize {
            if round % 3 == 0 {
                // Ten minions come back with other grains.
                let mut state = data.state.lock();
                let changed: Vec<MinionId> =
                    ids.iter().skip(round).step_by(size / 10).cloned().collect();
                for id in &changed {
                    *state.0.entry(id.clone()).or_default() += 1;
                }
                state.1 += 1;
                state.2 = changed;
            }
            let text = match round % 6 {
                0 => format!(
                    "G@common{}:value?{} and not I@app:role:web",
                    round % 45,
                    round % 7
                ),
                1 => format!(
                    "( G@os:Deb* or G@os:RedHat ) and S@10.0.{}.0/24",
                    round % 40
                ),
                2 => format!(
                    "P@own{}:own.value.*7{} or I@app:role:db",
                    round % 13,
                    round % 10
                ),
                3 => format!(
                    "minion-0*{}.example.com and not G@own3:*{}",
                    round % 9,
                    round % 10
                ),
                4 => format!(
                    "J@app:role:(web|db) and E@minion-.*{}\\.ex and not L@a,b",
                    round % 10
                ),
                _ => format!(
                    "G@os:Ubuntu and G@common7:value?1 and not minion-00{}*",
                    round % 10
                ),
            };
            times.push((ask(&text), text));
        }
        times.sort_by(|one, other| one.0.0.total_cmp(&other.0.0));
        for (name, at) in [("p50", 300), ("p90", 540), ("p99", 594), ("max", 599)] {
            if let Some(((time, found), text)) = times.get(at) {
                println!("  {name}: {time:7.2} ms   {text} ({found} minions)");
            }
        }
    }
}

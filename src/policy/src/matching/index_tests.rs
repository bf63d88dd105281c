//! An index that has lived through changes answers as one that was made today.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use saltern_model::{Compat, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

use super::{Changed, Changes, MatchOptions, MinionData, Nodegroups, Site};
use crate::target::{Candidates, Targeting};

#[derive(Default)]
struct State {
    grains: BTreeMap<MinionId, Value>,
    changed: Vec<MinionId>,
}

#[derive(Default)]
struct Data(Mutex<State>);

impl MinionData for Data {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.0.lock().grains.get(id).cloned().map(Arc::new)
    }

    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.grains(id)
    }

    fn known(&self) -> Arc<[MinionId]> {
        self.0.lock().grains.keys().cloned().collect()
    }

    fn changes(&self, since: Option<u64>) -> Changes {
        let state = self.0.lock();
        let newer = since.and_then(|since| state.changed.get(since as usize..));
        Changes {
            generation: state.changed.len() as u64,
            changed: match newer {
                Some(ids) => Changed::These(ids.to_vec()),
                None => Changed::Everything,
            },
        }
    }
}

struct Fleet(Vec<MinionId>);

impl Candidates for Fleet {
    fn ids(&self) -> &[MinionId] {
        &self.0
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        self.0.iter().find(|known| known.as_str() == id)
    }
}

fn id(number: u8) -> MinionId {
    MinionId::parse(&format!("m{number}")).unwrap()
}

fn site(data: &Arc<Data>) -> Targeting {
    let data: Arc<dyn MinionData> = Arc::clone(data) as Arc<dyn MinionData>;
    Targeting::of(Site::new(Compat::V3008, Nodegroups::default(), Some(data)))
}

/// What happens to a minion: it goes, or comes with these grains.
fn change() -> impl Strategy<Value = (u8, Option<(u8, u8, bool)>)> {
    (
        0_u8..10,
        prop::option::weighted(0.8, (0_u8..4, 0_u8..3, any::<bool>())),
    )
}

proptest! {
    // Every step asks every question twice.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn changes_are_taken_over(
        steps in prop::collection::vec((change(), 0_u8..12), 1..60),
    ) {
        const QUESTIONS: [&str; 6] = [
            "G@os:a*", "G@1:x", "not I@os:b", "S@10.0.0.1", "G@*:a1", "P@os:a|b and not S@10.0.0.0/31",
        ];
        let data = Arc::new(Data::default());
        let lasting = site(&data);
        for ((minion, grains), candidates) in steps {
            {
                let mut state = data.0.lock();
                match grains {
                    None => state.grains.remove(&id(minion)),
                    Some((os, address, odd)) => {
                        let mut grains = vec![
                            ("os".into(), format!("{}1", ["a", "b", "c", "a"][os as usize]).as_str().into()),
                            ("ipv4".into(), vec![Value::from(format!("10.0.0.{address}").as_str())].into()),
                        ];
                        if odd {
                            grains.push((Value::Int(1), "x".into()));
                        }
                        state.grains.insert(id(minion), Value::Map(grains))
                    }
                };
                state.changed.push(id(minion));
            }
            let fleet = Fleet((0..10).filter(|number| *number != candidates).map(id).collect());
            for text in QUESTIONS {
                let target = Target::Expression(TargetType::Compound, text.to_owned());
                let options = MatchOptions::default();
                prop_assert_eq!(
                    lasting.resolve_with(&target, &fleet, &options),
                    site(&data).resolve_with(&target, &fleet, &options),
                    "{}", text
                );
            }
        }
    }
}

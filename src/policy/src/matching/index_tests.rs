//! Tests of the index: after changes it answers like one built anew.
//!
//! Longer than 500 lines because it is a list: a test for each thing that is kept, with its bound.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use saltern_model::{Changed, Compat, DataChanges, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

use super::bits::Bits;
use super::budget::Allowance;
use super::index::{Fresh, Index, Kind, Order, QueryKey};
use super::subdict::{MatchKind, Subdict};
use super::view::{Test, View};
use super::{BeingIndexed, MatchOptions, MinionData, Nodegroups, Site};
use crate::expression::PatternCache;
use crate::target::testing::Fleet;
use crate::target::{TargetError, Targeting};

#[derive(Default)]
struct State {
    grains: BTreeMap<MinionId, Value>,
    changed: Vec<MinionId>,
}

/// Grains that tests change; the pillar of a minion is the same.
#[derive(Default)]
pub(super) struct Data(Mutex<State>);

impl Data {
    /// The grains of one minion.
    pub(super) fn of_one(id: &str, grains: Value) -> Self {
        let id = MinionId::parse(id).unwrap();
        let data = Self::default();
        data.0.lock().grains.insert(id, grains);
        data
    }
}

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

    fn changes(&self, since: Option<u64>) -> DataChanges {
        let state = self.0.lock();
        let newer = since.and_then(|since| state.changed.get(since as usize..));
        DataChanges {
            generation: state.changed.len() as u64,
            changed: match newer {
                Some(ids) => Changed::These(ids.to_vec()),
                None => Changed::Everything,
            },
        }
    }
}

fn id(number: u8) -> MinionId {
    MinionId::parse(&format!("m{number}")).unwrap()
}

fn site(data: &Arc<Data>) -> Targeting {
    let data: Arc<dyn MinionData> = Arc::clone(data) as Arc<dyn MinionData>;
    Targeting::of(Site::new(Compat::V3008, Nodegroups::default(), Some(data)))
}

impl Data {
    fn set(&self, minion: u8, grains: Option<Value>) {
        let mut state = self.0.lock();
        match grains {
            Some(grains) => state.grains.insert(id(minion), grains),
            None => state.grains.remove(&id(minion)),
        };
        state.changed.push(id(minion));
    }
}

fn question(text: &str, how: MatchKind) -> QueryKey<'_> {
    QueryKey {
        text,
        delimiter: ":",
        how,
    }
}

fn compiled(text: &str, how: MatchKind) -> Test {
    Test::Subdict(Subdict::compile(text, ":", how, &PatternCache::default()).unwrap())
}

fn slots(view: &View, test: &Test) -> Vec<usize> {
    view.matching(Some(test), &Allowance::of_search(false))
        .iter()
        .collect()
}

#[test]
fn view_and_its_answer_are_a_snapshot() {
    let (data, mut index) = (Data::default(), Index::default());
    for minion in 0..3 {
        data.set(minion, Some(Value::map([("os", "a")])));
    }
    index.refresh(&data);
    let (ask, test) = (
        question("os:a", MatchKind::Glob),
        compiled("os:a", MatchKind::Glob),
    );
    let earlier = index.view(Kind::Grains, &ask, Some(&test));
    data.set(1, None);
    data.set(3, Some(Value::map([("os", "b")])));
    data.set(4, Some(Value::map([("os", "a")])));
    index.refresh(&data);
    let later = index.view(Kind::Grains, &ask, Some(&test));
    assert_eq!(slots(&earlier, &test), [0, 1, 2]);
    // m3 has got the slot of m1.
    assert_eq!(slots(&later, &test), [0, 2, 3]);
    let bits = |view: &View| Arc::new(view.matching(Some(&test), &Allowance::of_search(false)));
    index.remember(Kind::Grains, &ask, bits(&later), later.at);
    index.remember(Kind::Grains, &ask, bits(&earlier), earlier.at);
    let kept = index.answer(Kind::Grains, &ask).unwrap();
    assert_eq!(kept.iter().collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn expensive_expression_uses_up_only_its_own_budget() {
    let (data, mut index) = (Data::default(), Index::default());
    let bombs = vec![Value::from("a".repeat(60).as_str()); 20_000];
    data.set(0, Some(Value::map([("x", bombs)])));
    data.set(1, Some(Value::map([("x", "aab")])));
    index.refresh(&data);
    let text = r"x:(?=a)(a|a)*\1b";
    let (ask, test) = (
        question(text, MatchKind::Regex),
        compiled(text, MatchKind::Regex),
    );
    let view = index.view(Kind::Grains, &ask, Some(&test));
    let few = Allowance::of_steps(1_000);
    view.matching(Some(&test), &few);
    assert!(few.is_exhausted());
    // One value does not use up the budget of the others.
    let enough = Allowance::of_steps(40_000);
    let found = view.matching(Some(&test), &enough);
    assert!(!enough.is_exhausted());
    assert_eq!(found.iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn truncated_match_is_marked_also_from_the_cache() {
    let data = Data::default();
    data.set(
        0,
        Some(Value::map([("x", "a".repeat(200).as_str()), ("y", "aa")])),
    );
    data.set(1, Some(Value::map([("x", "ab")])));
    let long = "x".repeat(17 << 10);
    data.set(2, Some(Value::map([("long", long.as_str())])));
    let data = Arc::new(data);
    let fleet = Fleet(data.known().to_vec());
    let site = site(&data);
    let many_parts = format!("x:{}", "b:".repeat(200));
    for (kind, text, may_mean_more) in [
        (TargetType::GrainPcre, r"x:(?=a)(a|a)*\1b", true),
        (TargetType::GrainPcre, r"y:(?=a)(a|a)*\1b", false),
        (TargetType::GrainPcre, "long:x*", true),
        (TargetType::Grain, "long:x*", false),
        // Python may know it; one that no value is held against does not count.
        (TargetType::GrainPcre, "x:(?P<", true),
        (TargetType::GrainPcre, "none:(?P<", false),
        (TargetType::Grain, many_parts.as_str(), true),
        (TargetType::Grain, "none", false),
        (TargetType::Compound, r"m1 or P@x:(?=a)(a|a)*\1b", true),
        (TargetType::Compound, "m1 or G@x:ab", false),
    ] {
        let target = Target::Expression(kind, text.to_owned());
        for _ in 0..2 {
            let found = site.resolve_with(&target, &fleet, &MatchOptions::default());
            let found = found.unwrap();
            assert_eq!(found.may_mean_more, may_mean_more, "{kind} {text}");
        }
    }
}

/// Users and minions choose the expressions, and all share the index.
#[test]
fn name_with_a_zero_byte_is_a_name_of_its_own() {
    let data = Arc::new(Data::default());
    data.set(0, Some(Value::Map(vec![(Value::Int(1), "a".into())])));
    let fleet = Fleet(data.known().to_vec());
    for order in [["1\0loaded:a", "1:a"], ["1:a", "1\0loaded:a"]] {
        let site = site(&data);
        for text in order {
            let target = Target::Expression(TargetType::Grain, text.to_owned());
            let found = site.resolve_with(&target, &fleet, &MatchOptions::default());
            assert_eq!(found.unwrap().minions.len(), usize::from(text == "1:a"));
        }
    }
}

#[test]
fn changes_of_at_most_64_minions_are_read_ahead() {
    let data = Data::default();
    for minion in 0..64 {
        data.set(minion, None);
    }
    assert!(Fresh::read(&data, Some(0)).is_some());
    assert!(Fresh::read(&data, Some(64)).is_none(), "nothing is new");
    assert!(Fresh::read(&data, None).is_none(), "everything is");
    data.set(64, None);
    assert!(Fresh::read(&data, Some(0)).is_none());
    assert!(Fresh::read(&data, Some(1)).is_some());
}

/// Too many changes to be read ahead are read before an answer of old is given.
#[test]
fn answer_after_many_changes_is_a_new_one() {
    let data = Arc::new(Data::default());
    let site = site(&data);
    let target = Target::Expression(TargetType::Grain, "os:a".to_owned());
    for (os, expected) in [("a", 70), ("b", 0), ("a", 70)] {
        for minion in 0..70 {
            data.set(minion, Some(Value::map([("os", os)])));
        }
        let fleet = Fleet(data.known().to_vec());
        for _ in 0..2 {
            let found = site.resolve_with(&target, &fleet, &MatchOptions::default());
            assert_eq!(found.unwrap().minions.len(), expected, "{os}");
        }
    }
}

#[test]
fn order_is_kept_for_the_same_minions_until_one_comes_or_goes() {
    let (data, mut index) = (Data::default(), Index::default());
    let grains = || Some(Value::map([("os", "a")]));
    data.set(0, grains());
    index.refresh(&data);
    let candidates = [id(0), id(1)];
    let known = |order: &Order| order.standing(|_| true).iter().collect::<Vec<_>>();
    let order = index.arrange(&candidates, None);
    assert_eq!(known(&order), [0]);
    // Equal ids, as another text in memory.
    for last in [None, Some(&order)] {
        let again = index.arrange(&[id(0), id(1)], last);
        assert!(Arc::ptr_eq(&order, &again));
    }
    for (others, expected) in [
        (vec![id(1), id(0)], vec![1]),
        (vec![id(1)], vec![]),
        (vec![id(0)], vec![0]),
    ] {
        assert_eq!(known(&index.arrange(&others, None)), expected);
        index.arrange(&candidates, None);
    }
    let order = index.arrange(&candidates, None);
    data.set(0, None);
    index.refresh(&data);
    for last in [None, Some(&order)] {
        assert_eq!(known(&index.arrange(&candidates, last)), [0; 0]);
    }
    data.set(1, grains());
    index.refresh(&data);
    for last in [None, Some(&order)] {
        assert_eq!(known(&index.arrange(&candidates, last)), [1]);
    }
}

#[test]
fn grain_that_comes_twice_counts_with_its_last_value() {
    let (data, mut index) = (Data::default(), Index::default());
    let twice = ["a", "b"].map(|os| ("os".into(), os.into()));
    let more = [("x".into(), "y".into())];
    data.set(0, Some(Value::Map(more.into_iter().chain(twice).collect())));
    index.refresh(&data);
    for (text, expected) in [("os:a", vec![]), ("os:b", vec![0]), ("x:y", vec![0])] {
        let test = compiled(text, MatchKind::Glob);
        let ask = question(text, MatchKind::Glob);
        let view = index.view(Kind::Grains, &ask, Some(&test));
        assert_eq!(slots(&view, &test), expected, "{text}");
    }
}

#[test]
fn star_is_held_against_a_minion_with_many_grains() {
    let (data, mut index) = (Data::default(), Index::default());
    let names: Vec<String> = (0..100).map(|number| format!("g{number}")).collect();
    let grains = names.iter().map(|name| (name.as_str(), "v"));
    data.set(0, Some(Value::map(grains)));
    index.refresh(&data);
    for (text, expected) in [("*:v", vec![0]), ("*:g99", vec![0]), ("*:w", vec![])] {
        let test = compiled(text, MatchKind::Glob);
        let ask = question(text, MatchKind::Glob);
        let view = index.view(Kind::Grains, &ask, Some(&test));
        assert_eq!(slots(&view, &test), expected, "{text}");
        let steps = Allowance::of_steps(1_000);
        view.matching(Some(&test), &steps);
        assert!(!steps.is_exhausted(), "{text}");
    }
}

#[test]
fn search_with_nothing_left_finds_nobody() {
    let (data, mut index) = (Data::default(), Index::default());
    data.set(0, Some(Value::map([("net", Value::map([("a", "b")]))])));
    index.refresh(&data);
    let (text, how) = ("net:*", MatchKind::Glob);
    let test = compiled(text, how);
    let view = index.view(Kind::Grains, &question(text, how), Some(&test));
    assert_eq!(slots(&view, &test), [0]);
    let found = view.matching(Some(&test), &Allowance::of_steps(0));
    assert_eq!(found.iter().count(), 0);
}

/// Only so many changes are remembered one by one; an answer from before them is given no more.
#[test]
fn answer_is_outdated_by_each_change() {
    let (data, mut index) = (Data::default(), Index::default());
    let (ask, test) = (
        question("os:a", MatchKind::Glob),
        compiled("os:a", MatchKind::Glob),
    );
    let set = |index: &mut Index, os: &str| {
        data.set(0, Some(Value::map([("os", os)])));
        index.refresh(&data);
    };
    set(&mut index, "a");
    let first = index.view(Kind::Grains, &ask, Some(&test));
    let bits = Arc::new(first.matching(Some(&test), &Allowance::of_search(false)));
    index.remember(Kind::Grains, &ask, bits, first.at);
    assert!(index.answer(Kind::Grains, &ask).is_some());
    for change in 1..=4_100_u64 {
        set(&mut index, ["a", "b"][usize::from(change % 2 == 1)]);
        assert!(index.answer(Kind::Grains, &ask).is_none(), "{change}");
        if matches!(change, 1 | 2 | 4_000 | 4_100) {
            let view = index.view(Kind::Grains, &ask, Some(&test));
            assert_eq!(view.at, first.at + change);
            assert_eq!(view.outdated.is_some(), change < 4_100, "{change}");
            let expected = if change % 2 == 1 { vec![] } else { vec![0] };
            assert_eq!(slots(&view, &test), expected, "{change}");
        }
    }
}

#[test]
fn columns_that_are_used_stay() {
    let (data, mut index) = (Data::default(), Index::default());
    data.set(0, Some(Value::map([("a", "b")])));
    index.refresh(&data);
    let used = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let columns = used.map(|name| index.grain_column(name));
    for number in 1..500 {
        let column = index.grain_column(&format!("g{number}"));
        for (name, column) in used.iter().zip(&columns) {
            assert!(Arc::ptr_eq(column, &index.grain_column(name)), "{number}");
        }
        let again = index.grain_column(&format!("g{number}"));
        assert!(Arc::ptr_eq(&column, &again));
    }
    let last = index.grain_column("g1");
    assert!(Arc::ptr_eq(&last, &index.grain_column("g1")));
}

/// Bytes of an answer that is kept, beside its texts and its bits.
const KEPT: usize = size_of::<(Arc<Bits>, u64)>() + size_of::<(String, String, MatchKind)>();

#[test]
fn kept_answers_are_weighed_with_their_texts() {
    let delimiter = "d".repeat(500);
    let texts: Vec<String> = (0..17_000).map(|n| format!("{n:0500}")).collect();
    let mut index = Index::default();
    let ask = |text| QueryKey {
        text,
        delimiter: &delimiter,
        how: MatchKind::Glob,
    };
    let bits = Arc::new(Bits::none(0));
    let is_lost = texts.iter().position(|text| {
        index.remember(Kind::Grains, &ask(text), Arc::clone(&bits), 0);
        index.answer(Kind::Grains, &ask(&texts[0])).is_none()
    });
    assert_eq!(is_lost, Some((16 << 20) / (1_000 + KEPT)));
}

#[test]
fn kept_answers_fill_their_room() {
    // With its texts, half of the room.
    let half = || Arc::new(Bits::none(((8 << 20) - 8 - KEPT) * 8));
    let whole = || Arc::new(Bits::none(((16 << 20) - 8 - KEPT) * 8));
    let [a, b, c] = ["os:aaaa", "os:bbbb", "os:cccc"].map(|text| question(text, MatchKind::Glob));
    let mut index = Index::default();
    let keep = |index: &mut Index, ask: &QueryKey<'_>, bits: Arc<Bits>| {
        index.remember(Kind::Grains, ask, bits, 0);
        [a, b, c].map(|ask| index.answer(Kind::Grains, &ask).is_some())
    };
    assert_eq!(keep(&mut index, &a, half()), [true, false, false]);
    // In place of the first, as often as it comes.
    for _ in 0..3 {
        assert_eq!(keep(&mut index, &a, half()), [true, false, false]);
    }
    assert_eq!(keep(&mut index, &b, half()), [true, true, false]);
    let less_than_half = Arc::new(Bits::none(((8 << 20) - 16 - KEPT) * 8));
    assert_eq!(keep(&mut index, &c, less_than_half), [false, false, true]);
    assert_eq!(keep(&mut index, &a, whole()), [true, false, false]);
    let larger = Arc::new(Bits::none(((16 << 20) - KEPT) * 8));
    assert_eq!(keep(&mut index, &b, larger), [true, false, false]);
    // A later answer of the same moment counts.
    let one = Arc::new(Bits::all(1));
    index.remember(Kind::Pillar, &a, Arc::new(Bits::none(1)), 0);
    index.remember(Kind::Pillar, &a, Arc::clone(&one), 0);
    assert_eq!(index.answer(Kind::Pillar, &a), Some(one));
}

#[test]
fn answer_to_a_long_expression_is_not_kept() {
    let (text, bits) = ("x".repeat(1_000), Arc::new(Bits::none(1)));
    let mut index = Index::default();
    for (length, is_kept) in [(24, true), (25, false)] {
        let delimiter = ":".repeat(length);
        let ask = QueryKey {
            text: &text,
            delimiter: &delimiter,
            how: MatchKind::Glob,
        };
        index.remember(Kind::Grains, &ask, Arc::clone(&bits), 0);
        let answer = index.answer(Kind::Grains, &ask);
        assert_eq!(answer.is_some(), is_kept, "{length}");
    }
}

#[test]
fn cached_matches_are_bounded_in_bytes() {
    let mut index = Index::default();
    let bits = Arc::new(Bits::all(8 << 20));
    let texts: Vec<String> = (0..64).map(|number| format!("os:{number}")).collect();
    let mut most = 0;
    for text in &texts {
        index.remember(
            Kind::Grains,
            &question(text, MatchKind::Glob),
            Arc::clone(&bits),
            0,
        );
        let is_kept = |text: &&String| {
            index
                .answer(Kind::Grains, &question(text, MatchKind::Glob))
                .is_some()
        };
        most = most.max(texts.iter().filter(is_kept).count());
    }
    assert!((8..=16).contains(&most), "{most}");
    let long = format!("os:{}", "x".repeat(1024));
    index.remember(Kind::Grains, &question(&long, MatchKind::Glob), bits, 0);
    assert!(
        index
            .answer(Kind::Grains, &question(&long, MatchKind::Glob))
            .is_none()
    );
}

#[test]
fn target_length_is_bounded_except_for_lists() {
    let data = Arc::new(Data::default());
    let (site, fleet) = (site(&data), Fleet((0..3).map(id).collect()));
    let resolve = |target: Target| {
        let found = site.resolve_with(&target, &fleet, &MatchOptions::default());
        found.map(|found| (found.minions.len(), found.missing.len()))
    };
    let expression = |kind, text: &str| Target::Expression(kind, text.to_owned());
    let long = "x".repeat(65_537);
    for kind in [
        TargetType::Glob,
        TargetType::Pcre,
        TargetType::Grain,
        TargetType::Ipcidr,
        TargetType::Range,
        TargetType::Nodegroup,
        TargetType::Compound,
    ] {
        assert_eq!(
            resolve(expression(kind, &long)),
            Err(TargetError::TooLong),
            "{kind}"
        );
    }
    assert_eq!(
        resolve(Target::Words(vec![long.clone()])),
        Err(TargetError::TooLong)
    );
    let names: Vec<String> = (0..100_000).map(|number| format!("m{number}")).collect();
    let found = Ok((3, 99_997));
    assert_eq!(
        resolve(expression(TargetType::List, &names.join(","))),
        found
    );
    assert_eq!(resolve(Target::List(names.clone())), found);
    let word = format!("L@{}", names.join(","));
    assert_eq!(resolve(expression(TargetType::Compound, &word)), found);
    assert_eq!(resolve(Target::Words(vec![word])), found);
    let target = expression(TargetType::Grain, "os:a");
    let options = MatchOptions {
        delimiter: &long,
        ..MatchOptions::default()
    };
    assert_eq!(
        site.resolve_with(&target, &fleet, &options),
        Err(TargetError::TooLong)
    );
}

#[test]
fn at_most_three_problems_of_a_target_are_kept() {
    let data = Arc::new(Data::default());
    let (site, fleet) = (site(&data), Fleet((0..3).map(id).collect()));
    let text = "S@x or ".repeat(1_000) + &"N@none ".repeat(1_000) + "m1";
    let target = Target::Expression(TargetType::Compound, text);
    let found = site.resolve_with(&target, &fleet, &MatchOptions::default());
    let found = found.unwrap();
    assert_eq!(found.minions, [id(1)]);
    let problems = found.problems.to_string();
    assert_eq!(problems.matches("\"x\" is neither").count(), 3);
    assert!(!problems.contains("none"));
    let target = Target::Expression(TargetType::Nodegroup, "n".repeat(60_000));
    let problems = match site.resolve_with(&target, &fleet, &MatchOptions::default()) {
        Ok(found) => found.problems.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(problems.len() < 200, "{problems}");
}

/// Change of a minion: it goes, or comes with these grains.
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
    fn index_after_changes_equals_a_new_one(
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

/// Data that takes notice of whether the index is free while it is read.
#[derive(Default)]
struct Watched {
    data: Data,
    site: OnceLock<Weak<Targeting>>,
    while_locked: AtomicUsize,
    reads: AtomicUsize,
}

impl MinionData for Watched {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let targeting = self.site.get().and_then(Weak::upgrade);
        let site = targeting
            .as_ref()
            .and_then(|targeting| targeting.site.as_ref());
        if site.is_some_and(|site| site.index.is_locked()) {
            self.while_locked.fetch_add(1, Ordering::SeqCst);
        }
        self.data.grains(id)
    }

    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>> {
        self.data.pillar(id)
    }

    fn known(&self) -> Arc<[MinionId]> {
        self.data.known()
    }

    fn changes(&self, since: Option<u64>) -> DataChanges {
        self.data.changes(since)
    }
}

#[test]
fn changed_data_is_read_without_the_index_lock() {
    let data = Arc::new(Watched::default());
    let os = |os: &str| Some(Value::map([("os", os)]));
    data.data.set(0, os("a"));
    let shared: Arc<dyn MinionData> = Arc::clone(&data) as Arc<dyn MinionData>;
    let site = Site::new(Compat::V3008, Nodegroups::default(), Some(shared));
    let targeting = Arc::new(Targeting::of(site));
    data.site.set(Arc::downgrade(&targeting)).unwrap();
    let fleet = Fleet((0..3).map(id).collect());
    let found = |os: &str| {
        let target = Target::Expression(TargetType::Grain, format!("os:{os}"));
        let options = MatchOptions::default();
        targeting
            .resolve_with(&target, &fleet, &options)
            .unwrap()
            .minions
    };
    // The first look reads everything, under the lock.
    assert_eq!(found("a"), [id(0)]);
    data.while_locked.store(0, Ordering::SeqCst);
    data.data.set(1, os("a"));
    data.data.set(2, os("b"));
    assert_eq!(found("a"), [id(0), id(1)]);
    data.data.set(0, None);
    data.data.set(1, os("b"));
    targeting.refresh();
    let reads = data.reads.load(Ordering::SeqCst);
    assert_eq!(found("b"), [id(1), id(2)]);
    assert_eq!(
        data.reads.load(Ordering::SeqCst),
        reads,
        "nothing was left to the asker"
    );
    assert_eq!(data.while_locked.load(Ordering::SeqCst), 0);
}

#[test]
fn wait_for_an_index_that_another_reads_ends_with_the_progress() {
    let data = Arc::new(Data::default());
    data.set(0, Some(Value::map([("os", "a")])));
    data.set(1, Some(Value::map([("os", "b")])));
    let targeting = site(&data);
    let brief = Duration::from_millis(1);
    assert_eq!(targeting.wait_for_index(brief), Ok(()));
    targeting.refresh();
    let lock = targeting.site.as_ref().map(|site| site.index.lock());
    let refused = targeting.wait_for_index(brief);
    drop(lock);
    assert_eq!(
        refused,
        Err(BeingIndexed {
            read: 2,
            minions: 2
        })
    );
    assert_eq!(targeting.wait_for_index(brief), Ok(()));
}

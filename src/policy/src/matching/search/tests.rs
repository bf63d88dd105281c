//! Tests of what decides a search: its options, and its budget.

use super::*;
use crate::matching::index_tests::Data;
use crate::matching::{MinionData, NoData, Nodegroups};
use saltern_wire::msgpack::Value;

/// The grains and the pillar of m1, and no other minion's.
fn one_minion() -> Data {
    Data::of_one("m1", Value::map([("os", "Debian"), ("ipv4", "10.0.0.1")]))
}

fn site(compat: Compat, data: impl MinionData + 'static) -> Site {
    Site::new(compat, Nodegroups::default(), Some(Arc::new(data)))
}

fn ids(count: usize) -> Vec<MinionId> {
    let mut ids: Vec<_> = (0..count)
        .map(|number| MinionId::parse(&format!("m{number}")).unwrap())
        .collect();
    ids.sort();
    ids
}

#[test]
fn options_of_a_search_decide_what_it_finds() {
    use TargetType::{Glob, Ipcidr, Pillar, PillarExact, PillarPcre};
    let (exact, greedy) = (
        MatchOptions {
            exact_pillar: true,
            ..MatchOptions::default()
        },
        MatchOptions::default(),
    );
    let not_greedy = MatchOptions {
        greedy: false,
        ..greedy
    };
    let table = [
        (Compat::V3008, greedy, Pillar, "os:deb*", "m1"),
        (Compat::V3008, greedy, PillarPcre, "os:deb.an", "m1"),
        (Compat::V3008, greedy, PillarExact, "os:deb*", ""),
        // A minion could find out pillars of others with a pattern.
        (Compat::V3008, exact, Pillar, "os:deb*", ""),
        (Compat::V3008, exact, PillarPcre, "os:deb.an", ""),
        (Compat::V3008, exact, Pillar, "os:debian", "m1"),
        // Commas are a list in 3008 alone.
        (Compat::V3008, greedy, Glob, "m0,m1", "m0 m1"),
        (Compat::V3007, greedy, Glob, "m0,m1", ""),
        (Compat::V3007, greedy, Glob, "m1*", "m1 m10 m11"),
        (Compat::V3008, greedy, Glob, "m1*", "m1 m10 m11"),
        (Compat::V3008, greedy, Glob, "m1*,m2", "m1 m10 m11 m2"),
        // A minion without data may have any address.
        (
            Compat::V3008,
            greedy,
            Ipcidr,
            "10.0.0.0/8",
            "m0 m1 m10 m11 m2 m3 m4 m5 m6 m7 m8 m9",
        ),
        (
            Compat::V3008,
            greedy,
            Ipcidr,
            "11.0.0.0/8",
            "m0 m10 m11 m2 m3 m4 m5 m6 m7 m8 m9",
        ),
        (Compat::V3008, not_greedy, Ipcidr, "10.0.0.0/8", "m1"),
        (Compat::V3008, not_greedy, Ipcidr, "11.0.0.0/8", ""),
    ];
    let (ids, patterns) = (ids(12), PatternCache::default());
    for (compat, options, kind, text, expected) in table {
        let site = site(compat, one_minion());
        let search = Search::new(&site, &patterns, &ids, None, options);
        let found = search.simple(kind, text, ":").unwrap();
        let found: Vec<_> = found.iter().map(|at| ids[at].as_str()).collect();
        assert_eq!(found.join(" "), expected, "{kind} {text}");
    }
}

/// Each word has a set of a bit for each minion, and an expression is held against each id.
#[test]
fn words_and_ids_cost_steps() {
    let site = site(Compat::V3008, NoData);
    let (ids, patterns) = (ids(128), PatternCache::default());
    let search = |steps| {
        let mut search = Search::new(&site, &patterns, &ids, None, MatchOptions::default());
        search.allowance = Allowance::of_steps(steps);
        search
    };
    let word = |steps| search(steps).compound(vec!["L@m1".to_owned()]);
    assert!(word(4).is_ok());
    assert_eq!(word(3), Err(TargetError::TooMuchWork));
    let regex = |steps| search(steps).simple(TargetType::Pcre, "m.*", ":");
    assert!(regex(1_000_000).is_ok());
    assert_eq!(regex(10), Err(TargetError::TooMuchWork));
    let glob = |steps| search(steps).simple(TargetType::Glob, "m*", ":");
    assert!(glob(129).is_ok());
    assert_eq!(glob(128), Err(TargetError::TooMuchWork));
}

//! Tests of paths and patterns, and of the bounds on every expression.

use super::super::budget::Allowance;
use super::*;
use proptest::prelude::*;

fn data() -> Value {
    Value::map([
        ("os", Value::from("Debian")),
        ("cpus", Value::from(4_i64)),
        ("virtual", Value::from(true)),
        ("none", Value::Nil),
        ("empty", Value::Map(Vec::new())),
        (
            "roles",
            Value::from(vec![Value::from("web"), Value::from("DB")]),
        ),
        (
            "net",
            Value::map([
                ("eth0", Value::map([("mac", "aa:bb"), ("state", "up")])),
                ("lo", Value::map([("state", "down")])),
            ]),
        ),
        (
            "disks",
            Value::from(vec![
                Value::map([("name", "sda")]),
                Value::map([("size", 5_i64)]),
            ]),
        ),
        (
            "ports",
            Value::Map(vec![(Value::Int(80), Value::from("http"))]),
        ),
    ])
}

fn matches(text: &str, delimiter: &str, how: MatchKind) -> bool {
    let patterns = PatternCache::default();
    Subdict::compile(text, delimiter, how, &patterns)
        .is_some_and(|subdict| subdict.matches(&data(), &Budget::of(&Allowance::of_search(false))))
}

#[test]
fn paths_and_patterns_mean_what_they_mean_in_stock() {
    let table = [
        ("os:Debian", true),
        ("os:deb*", true),
        ("os:Deb", false),
        ("os", false),
        ("cpus:4", true),
        ("virtual:true", true),
        ("none:None", true),
        ("empty:*", false),
        ("roles:db", true),
        ("roles:0:web", true),
        ("roles:-1:db", true),
        ("roles:7:db", false),
        ("net:eth0", true),
        ("net:eth*", true),
        ("net:eth0:mac:aa:bb", true),
        ("net:eth0:mac:aa:*", true),
        ("net:*:up", false),
        ("net:*:state", true),
        ("*:*:state", true),
        ("net:*:state:down", true),
        ("net:*:state:gone", false),
        ("*:debian", true),
        ("*:web", true),
        ("*:eth0:state:up", true),
        ("disks:name:sda", true),
        ("disks:0:name:sda", true),
        ("disks:size:5", true),
        ("ports:80:http", true),
        ("ports:81:http", false),
        ("*:*", true),
    ];
    for (text, expected) in table {
        assert_eq!(matches(text, ":", MatchKind::Glob), expected, "{text}");
    }
}

#[test]
fn regex_exact_and_other_delimiters_match() {
    assert!(matches("os:^deb.an$", ":", MatchKind::Regex));
    assert!(!matches("os:^ebian", ":", MatchKind::Regex));
    assert!(!matches("os:(", ":", MatchKind::Regex));
    assert!(matches("os:DEBIAN", ":", MatchKind::Exact));
    assert!(!matches("os:deb*", ":", MatchKind::Exact));
    assert!(matches("net|eth0|mac|aa:bb", "|", MatchKind::Glob));
    assert!(!matches("net|eth0", ":", MatchKind::Glob));
}

/// Compiles, matches and drops on a thread whose stack is small.
fn ends_on_a_small_stack(text: String, delimiter: &'static str, how: MatchKind) -> bool {
    let run = move || {
        let patterns = PatternCache::default();
        let subdict = Subdict::compile(&text, delimiter, how, &patterns);
        let matched = subdict
            .as_ref()
            .map(|s| s.matches(&data(), &Budget::of(&Allowance::of_search(false))));
        matched.is_some()
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    let thread = thread.spawn(run).expect("a thread can be started");
    thread.join().expect("the stack suffices")
}

#[test]
fn chains_of_stars_are_bounded_whatever_the_delimiter() {
    for delimiter in ["|", ":", "*", "*:", "@"] {
        for how in [MatchKind::Glob, MatchKind::Regex, MatchKind::Exact] {
            let chain = format!("G{delimiter}x{delimiter}{}a", "*:".repeat(10_000));
            assert!(!ends_on_a_small_stack(chain, delimiter, how), "{delimiter}");
            let most = format!("x{delimiter}{}a", "*:".repeat(60));
            assert!(ends_on_a_small_stack(most, delimiter, how), "{delimiter}");
        }
    }
    let long = format!("os:{}", "x".repeat(MAX_BYTES));
    assert!(!ends_on_a_small_stack(long, ":", MatchKind::Glob));
}

#[test]
fn expression_at_a_bound_is_compiled_and_beyond_it_is_not() {
    let patterns = PatternCache::default();
    let is_compiled = |text: &str, delimiter: &str| {
        Subdict::compile(text, delimiter, MatchKind::Exact, &patterns).is_some()
    };
    for (more, expected) in [(0, true), (1, false)] {
        let long = format!("os:{}", "x".repeat((16 << 10) - 3 + more));
        assert_eq!(is_compiled(&long, ":"), expected, "{more} bytes");
        let parts = vec!["a"; 128 + more].join("|");
        assert_eq!(is_compiled(&parts, "|"), expected, "{more} parts");
    }
}

/// The pattern is a part of as many texts as the path has parts, and the last counts here.
#[test]
fn four_heavy_patterns_of_an_expression_are_tried() {
    for (depth, expected) in [(4, true), (5, false)] {
        let (mut data, mut text) = (Value::from("x".repeat(40).as_str()), String::new());
        for _ in 0..depth {
            data = Value::map([("a", data)]);
            text += "a:";
        }
        text += r"\w{40}";
        let patterns = PatternCache::default();
        let search = Allowance::of_search(false);
        let subdict = Subdict::compile(&text, ":", MatchKind::Regex, &patterns).unwrap();
        let is_match = subdict.matches(&data, &Budget::of(&search));
        assert_eq!(
            (is_match, search.is_cut()),
            (expected, !expected),
            "{depth}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn stars_and_delimiters_match_in_bounded_steps(
        pieces in prop::collection::vec(
            (prop::sample::select(vec!["*:", "*", ":", "|", "a", "net", "?", "["]), 1_usize..200),
            1..20,
        ),
        delimiter in prop::sample::select(vec!["|", ":", "*", "*:"]),
        how in prop::sample::select(vec![MatchKind::Glob, MatchKind::Regex, MatchKind::Exact]),
    ) {
        let text: String = pieces.iter().map(|(piece, count)| piece.repeat(*count)).collect();
        let has_few_parts = text.matches(':').count() < MAX_PARTS
            && (2..=MAX_PARTS).contains(&text.split(delimiter).count());
        prop_assert_eq!(ends_on_a_small_stack(text, delimiter, how), has_few_parts);
    }
}

#[test]
fn exponential_expression_ends() {
    let mut deep = Value::from("x");
    for _ in 0..60 {
        deep = Value::map([("a", deep)]);
    }
    let text = vec!["a"; 60].join(":") + ":b";
    let patterns = PatternCache::default();
    let subdict = Subdict::compile(&text, ":", MatchKind::Glob, &patterns).unwrap();
    assert!(!subdict.matches(&deep, &Budget::of(&Allowance::of_search(false))));
}

//! Access rules of mines, and the bounds on an answer.

use super::*;
use saltern_config::yaml::{Limits, parse};

fn id(text: &str) -> MinionId {
    MinionId::parse(text).unwrap()
}

fn guarded(data: &str, allow: &str) -> Value {
    Value::map([
        (ACL_MARK, Value::from(1_i64)),
        (ACL_DATA, Value::from(data)),
        ("allow_tgt", Value::from(allow)),
    ])
}

fn ask(asker: &str, fun: impl Into<Value>, access: &MineAccess) -> Value {
    let load = Value::map([("tgt", Value::from("*")), ("fun", fun.into())]);
    let request = MineRequest::read(&id(asker), &load).unwrap();
    let resolve = |target: &Target, options: &MatchOptions<'_>| {
        assert!(!options.greedy);
        // Of its own target a minion chooses the pillars; `allow_tgt` is the choice of the other.
        assert_eq!(options.exact_pillar, !options.is_brief);
        match target {
            Target::Expression(_, text) if text == "*" => vec![id("a"), id("b")],
            Target::Expression(_, text) => text.split(',').map(id).collect(),
            Target::List(_) | Target::Words(_) => Vec::new(),
        }
    };
    let mine = |minion: &MinionId| {
        let mine = match minion.as_str() {
            "a" => Value::map([("open", Value::from("a1")), ("shut", guarded("a2", "web"))]),
            _ => Value::map([("open", Value::from("b1"))]),
        };
        Some(Arc::new(mine))
    };
    let answer = request.answer(access, resolve, mine);
    answer.expect("the mines of this test are small")
}

#[test]
fn mine_entries_are_given_to_allowed_minions_only() {
    let open = MineAccess::default();
    assert_eq!(
        ask("x", "open", &open),
        Value::map([("a", "a1"), ("b", "b1")])
    );
    assert_eq!(ask("x", "shut", &open), Value::Map(Vec::new()));
    assert_eq!(ask("web", "shut", &open), Value::map([("a", "a2")]));
    let both = Value::map([
        ("open", Value::map([("a", "a1"), ("b", "b1")])),
        ("shut", Value::map([("a", "a2")])),
    ]);
    assert_eq!(ask("web", "shut,open", &open), both);
    let one = vec![Value::from("shut")];
    assert_eq!(
        ask("web", one, &open),
        Value::map([("shut", Value::map([("a", "a2")]))])
    );
}

#[test]
fn similar_mine_permissions_are_cached_separately() {
    let text = "G@role:web or db*";
    let entry = |allow: Value| {
        Value::map([
            (ACL_MARK, Value::from(1_i64)),
            (ACL_DATA, Value::from("secret")),
            ("allow_tgt", allow),
            ("allow_tgt_type", Value::from("compound")),
        ])
    };
    let as_word = entry(vec![Value::from(text)].into());
    let as_text = entry(Value::from(text));
    let asker = id("db1");
    let allowance = Allowance::of_answer();
    let resolve = |target: &Target, _: &MatchOptions<'_>| match target {
        Target::Expression(..) => vec![id("db1")],
        // One word: a grain `role` whose value would be `web or db*`.
        _ => Vec::new(),
    };
    for entries in [[&as_text, &as_word], [&as_word, &as_text]] {
        let mut permissions = Permissions::new(&asker, &resolve, &allowance);
        let opened = entries.map(|entry| permissions.open(entry).unwrap().is_some());
        assert_eq!(opened, entries.map(|entry| *entry == as_text));
    }
}

#[test]
fn mine_answer_is_bounded() {
    let large = Arc::new(Value::map([("f", "x".repeat(1 << 20).as_str())]));
    let load = Value::map([("tgt", "*"), ("fun", "f")]);
    let request = MineRequest::read(&id("m"), &load).unwrap();
    let answer = |minions: usize| {
        let fleet: Vec<MinionId> = (0..minions).map(|n| id(&format!("m{n}"))).collect();
        let resolve = |_: &Target, _: &MatchOptions<'_>| fleet.clone();
        let mine = |_: &MinionId| Some(Arc::clone(&large));
        request.answer(&MineAccess::default(), resolve, mine)
    };
    assert!(answer(100).is_ok());
    assert_eq!(answer(300), Err(MineError::TooLarge));
}

#[test]
fn value_weighs_what_its_parts_do() {
    let own = size_of::<Value>();
    let (text, bytes) = (Value::from("abc"), Value::Bin(b"ab".to_vec().into()));
    let list = Value::from(vec![text.clone(), bytes.clone()]);
    let map = Value::map([("a", text.clone()), ("b", bytes.clone())]);
    for (value, expected) in [
        (Value::Nil, own),
        (text, own + 3),
        (bytes, own + 2),
        (list, 3 * own + 5),
        (map, 5 * own + 7),
    ] {
        assert_eq!(weight(&value), expected, "{value:?}");
    }
}

/// Stock finds nobody for another kind.
#[test]
fn target_of_a_load_is_a_text_or_a_list_of_its_kind() {
    let list = |items: &[Value]| Value::from(items.to_vec());
    let names = || list(&["a".into(), "b".into()]);
    let owned = || vec!["a".to_owned(), "b".to_owned()];
    let text = |kind, text: &str| Some(Target::Expression(kind, text.to_owned()));
    for (value, kind, expected) in [
        ("a".into(), "glob", text(TargetType::Glob, "a")),
        (Value::Nil, "pcre", text(TargetType::Pcre, "")),
        (names(), "list", Some(Target::List(owned()))),
        (names(), "compound", Some(Target::Words(owned()))),
        (list(&["a".into(), Value::Nil]), "compound", None),
        (names(), "glob", None),
        (Value::Int(1), "list", None),
    ] {
        assert_eq!(target(&value, kind), expected, "{value:?} {kind}");
    }
}

#[test]
fn mine_request_functions_are_bounded() {
    let read = |fun: Value| {
        let load = Value::map([("tgt", Value::from("*")), ("fun", fun)]);
        MineRequest::read(&id("m"), &load).map(|request| request.functions.len())
    };
    let list = |count: usize| Value::from(vec![Value::from("f"); count]);
    assert_eq!(read(list(MAX_FUNCTIONS)), Ok(MAX_FUNCTIONS));
    let too_many = Err(MineError::TooManyFunctions);
    assert_eq!(read(list(MAX_FUNCTIONS + 1)), too_many);
    assert_eq!(read("f,".repeat(900_000).as_str().into()), too_many);
}

#[test]
fn repeated_mine_function_is_read_once() {
    let names = vec![Value::from("open"); MAX_FUNCTIONS];
    let once = Value::map([("open", Value::map([("a", "a1"), ("b", "b1")]))]);
    assert_eq!(ask("x", names, &MineAccess::default()), once);
}

#[test]
fn mine_answer_needs_a_bounded_number_of_searches() {
    let load = Value::map([("tgt", "*"), ("fun", "f")]);
    let request = MineRequest::read(&id("m"), &load).unwrap();
    let answer = |minions: usize, different: usize| {
        let fleet: Vec<MinionId> = (0..minions).map(|n| id(&format!("m{n}"))).collect();
        let searches = std::cell::Cell::new(0);
        let resolve = |target: &Target, options: &MatchOptions<'_>| {
            searches.set(searches.get() + usize::from(options.is_brief));
            match target.to_string() == "*" {
                true => fleet.clone(),
                false => Vec::new(),
            }
        };
        let mine = |minion: &MinionId| {
            let number: usize = minion.as_str()[1..].parse().unwrap();
            let entry = guarded("x", &format!("web{}", number % different));
            Some(Arc::new(Value::map([("f", entry)])))
        };
        let answer = request.answer(&MineAccess::default(), resolve, mine);
        (answer.is_ok(), searches.get())
    };
    assert_eq!(answer(11_000, 10), (true, 10));
    assert_eq!(answer(11_000, 11_000), (false, MAX_PERMISSIONS));
}

#[test]
fn mine_get_option_decides_which_minions_may_ask() {
    let access =
        |text: &str| MineAccess::from_option(Some(&parse(text, "test", &Limits::DEFAULT).unwrap()));
    let rules = access("{'web.*': [op.*], 'db(': [.*], db: not-a-list}");
    assert!(rules.allows(&id("web1"), "open"));
    assert!(!rules.allows(&id("web1"), "shut"));
    assert!(!rules.allows(&id("db"), "open"));
    assert!(!access("[]").allows(&id("web1"), "open"));
    assert_eq!(ask("web1", "shut", &rules), Value::Map(Vec::new()));
}

#[test]
fn mine_request_by_pillar_is_compared_exactly() {
    let kind = |kind: &str| {
        let load = Value::map([("tgt", "a:b"), ("fun", "f"), ("tgt_type", kind)]);
        let request = MineRequest::read(&id("x"), &load).ok();
        request.map(|request| request.target.kind())
    };
    assert_eq!(kind("pillar"), Some(TargetType::PillarExact));
    assert_eq!(kind("PILLAR"), Some(TargetType::PillarExact));
    assert_eq!(kind("pillar_pcre"), Some(TargetType::PillarExact));
    assert_eq!(kind("compound"), Some(TargetType::Compound));
    assert_eq!(kind("COMPOUND"), Some(TargetType::Compound));
    assert_eq!(kind("compound_pillar_exact"), Some(TargetType::Compound));
    assert_eq!(kind("nonsense"), None);
    // As minions of old called it; with nothing in it, it is not there.
    let old = |kind: Value| {
        let load = [
            ("tgt", "a".into()),
            ("fun", "f".into()),
            ("expr_form", kind),
        ];
        let request = MineRequest::read(&id("x"), &Value::map(load));
        request.map(|request| request.target.kind())
    };
    assert_eq!(old("pcre".into()), Ok(TargetType::Pcre));
    assert_eq!(old(Value::Nil), Ok(TargetType::Glob));
    assert_eq!(old(Value::Int(1)), Err(MineError::Incomplete));
}

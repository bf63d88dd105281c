use proptest::prelude::*;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::*;

fn list(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|item| Value::from(*item)).collect())
}

fn one(name: &str, value: Value) -> Value {
    Value::map([(name, value)])
}

fn rules(items: Vec<Value>) -> Rules {
    Rules::of(&Value::Array(items))
}

fn ids(names: &[&str]) -> Vec<MinionId> {
    let ids = names.iter().map(|name| MinionId::parse(name));
    ids.collect::<Result<_, _>>().expect("valid ids")
}

/// A site of three minions; the only compound targets are their names and a wildcard.
fn minions_of(target: &str) -> Vec<MinionId> {
    let all = ["db1", "web1", "web2"];
    let prefix = target.strip_suffix('*').unwrap_or(target);
    let found = all.iter().filter(|name| match target.ends_with('*') {
        true => name.starts_with(prefix),
        false => **name == target,
    });
    ids(&found.copied().collect::<Vec<_>>())
}

struct Asked<'a> {
    functions: &'a [&'a str],
    arguments: Value,
    minions: &'a [&'a str],
}

fn allows(rules: &Rules, asked: &Asked<'_>) -> bool {
    let functions: Vec<String> = asked.functions.iter().map(|f| (*f).to_owned()).collect();
    let job = AskedJob {
        functions: &functions,
        in_list: functions.len() != 1,
        arguments: &asked.arguments,
        minions: Whom::These(&ids(asked.minions)),
    };
    Acl::default().allows_job(rules, &job, minions_of)
}

#[test]
fn list_of_one_function_has_a_list_of_arguments() {
    let wanted = one("args", list(&["^.*uptime"]));
    let rules = rules(vec![one("*", list(&[])), one("*", one("cmd.run", wanted))]);
    let nested = |argument: &str| Value::Array(vec![list(&[argument, "uptime"])]);
    let table = [
        (true, nested("uptime"), true),
        // As one text it would match.
        (true, nested("id"), false),
        (true, list(&["uptime"]), false),
        (true, Value::Nil, false),
        (false, list(&["uptime"]), true),
    ];
    for (in_list, arguments, expected) in table {
        let job = AskedJob {
            functions: &["cmd.run".to_owned()],
            in_list,
            arguments: &arguments,
            minions: Whom::These(&ids(&["web1"])),
        };
        let found = Acl::default().allows_job(&rules, &job, minions_of);
        assert_eq!(found, expected, "{in_list} {arguments:?}");
    }
}

#[test]
fn unresolvable_target_needs_a_rule_for_all_minions() {
    let rules = rules(vec![
        "test.*".into(),
        one("*", list(&["grains.*"])),
        one("web*", list(&["state.*"])),
    ]);
    let allows = |function: &str, minions| {
        let job = AskedJob {
            functions: &[function.to_owned()],
            in_list: false,
            arguments: &list(&[]),
            minions,
        };
        Acl::default().allows_job(&rules, &job, minions_of)
    };
    for (function, is_for_all) in [
        ("test.ping", true),
        ("grains.items", true),
        ("saltutil.find_job", true),
        ("state.apply", false),
    ] {
        assert!(allows(function, Whom::These(&[])), "{function}");
        assert_eq!(allows(function, Whom::Anybody), is_for_all, "{function}");
    }
}

#[test]
fn peer_has_the_rights_of_its_rules_alone() {
    let job = |function: &str, rules: &Rules| {
        let job = AskedJob {
            functions: &[function.to_owned()],
            in_list: false,
            arguments: &list(&[]),
            minions: Whom::These(&ids(&["web1"])),
        };
        Acl::default().allows_peer(rules, &job, minions_of)
    };
    let rules = rules(vec!["test.*".into()]);
    assert!(job("test.ping", &rules));
    assert!(!job("saltutil.find_job", &rules), "that is for users");
    assert!(!job("test.ping", &Rules::default()));
}

#[test]
fn rule_for_pattern_covers_narrower_target_pattern_alone() {
    let rules = rules(vec![
        one("web*", list(&["test.*"])),
        one("@runner", list(&[".*"])),
        one("db1", list(&["test.*"])),
    ]);
    for (target, expected) in [
        ("web1*", true),
        ("web*", true),
        ("w*", false),
        ("db?", false),
    ] {
        let pattern = PlainWildcard::parse(target).unwrap();
        let job = AskedJob {
            functions: &["test.ping".to_owned()],
            in_list: false,
            arguments: &list(&[]),
            minions: Whom::Matching(&pattern),
        };
        let found = Acl::default().allows_job(&rules, &job, minions_of);
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn condition_on_arguments_holds_for_its_function_alone() {
    let on_arguments = |function: &str| one(function, one("args", list(&["ok"])));
    let rules = rules(vec![one("*", list(&[])), one("*", on_arguments("my.fun"))]);
    for (functions, argument, expected) in [
        (["my.fun"], "ok", true),
        (["my.fun"], "bad", false),
        (["cmd.run"], "ok", false),
    ] {
        let asked = Asked {
            functions: &functions,
            arguments: list(&[argument]),
            minions: &["web1"],
        };
        assert_eq!(allows(&rules, &asked), expected, "{functions:?} {argument}");
    }
    let master = super::Rules::of(&Value::Array(vec![one("@jobs", on_arguments("list_jobs"))]));
    for (function, expected) in [
        ("jobs.list_jobs", Verdict::Allowed),
        ("jobs.active", Verdict::Refused),
    ] {
        let arguments = CallArguments {
            positional: vec!["ok".into()],
            named: Vec::new(),
        };
        let found = Acl::default().allows_call(&master, Form::Runner, function, &arguments);
        assert_eq!(found, expected, "{function}");
    }
}

#[test]
fn entry_of_configuration_is_a_list_or_one_rule_or_nothing() {
    let added = |entry: Value| {
        let mut rules = Rules::default();
        rules.add(&entry);
        rules.to_value()
    };
    assert_eq!(added(list(&["a", "b"])), list(&["a", "b"]));
    assert_eq!(added("a".into()), list(&["a"]));
    assert_eq!(added(Value::Nil), list(&[]));
    assert!(PublisherAcl::new([]).is_empty());
    assert!(!PublisherAcl::new([("ana", Value::Nil)]).is_empty());
}

fn ping(minions: &[&str]) -> bool {
    let rules = rules(vec![
        one("web*", list(&["test.ping"])),
        one("db1", list(&["state.*"])),
    ]);
    allows(
        &rules,
        &Asked {
            functions: &["test.ping"],
            arguments: list(&[]),
            minions,
        },
    )
}

#[test]
fn rule_for_minions_must_cover_all_minions_of_the_job() {
    assert!(ping(&["web1"]));
    assert!(ping(&["web1", "web2"]));
    assert!(!ping(&["web1", "db1"]), "one of two is not enough");
    assert!(!ping(&["db1"]));
}

#[test]
fn acl_functions_are_expressions_anchored_at_the_start() {
    let rules = rules(vec!["test.*".into(), one("web1", "cmd.run".into())]);
    let table: [(&[&str], &[&str], bool); 8] = [
        (&["test.ping"], &["db1"], true),
        (&["xtest.ping"], &["db1"], false),
        (&["cmd.run"], &["web1"], true),
        (&["cmd.run_all"], &["web1"], true),
        (&["cmd.run"], &["web2"], false),
        (&["saltutil.find_job"], &["web2"], true),
        (&["saltutil.find_job_x"], &["web2"], false),
        (&[], &["web1"], false),
    ];
    for (functions, minions, expected) in table {
        let asked = Asked {
            functions,
            arguments: list(&[]),
            minions,
        };
        assert_eq!(allows(&rules, &asked), expected, "{functions:?}");
    }
}

/// Stock lets a job through when any of its functions is allowed (CVE-2013-4435 was its like).
#[test]
fn job_needs_every_function_allowed() {
    let rules = rules(vec!["test.*".into()]);
    let table: [(&[&str], bool); 5] = [
        (&["test.ping", "test.version"], true),
        (&["test.ping", "cmd.run"], false),
        (&["cmd.run", "test.ping"], false),
        (&["saltutil.find_job", "cmd.run"], false),
        (&["saltutil.find_job", "test.ping"], true),
    ];
    for (functions, expected) in table {
        let asked = Asked {
            functions,
            arguments: Value::Array(vec![list(&[]); functions.len()]),
            minions: &["web1"],
        };
        assert_eq!(allows(&rules, &asked), expected, "{functions:?}");
    }
}

fn kwargs(entries: &[(&str, &str)]) -> Value {
    let mark = (KWARG_MARK, Value::from(true));
    let entries = entries.iter().map(|(name, value)| (*name, (*value).into()));
    Value::map(std::iter::once(mark).chain(entries))
}

#[test]
fn arguments_are_checked_as_the_minion_binds_them() {
    let wanted = Value::map([
        ("args", Value::Array(vec![Value::Nil, "^safe$".into()])),
        ("kwargs", one("mode", "^(ro|r)$".into())),
    ]);
    let rules = rules(vec![one("*", Value::Array(vec![one("my.fun", wanted)]))]);
    let text = |text: &str| Value::from(text);
    let table = [
        (
            "as wanted",
            vec![text("a"), text("safe"), kwargs(&[("mode", "ro")])],
            true,
        ),
        (
            "more of them",
            vec![
                text("a"),
                text("safe"),
                text("b"),
                kwargs(&[("mode", "r"), ("x", "y")]),
            ],
            true,
        ),
        (
            "a text that is named",
            vec![text("a"), text("safe"), text("mode=ro")],
            true,
        ),
        (
            "another value",
            vec![text("a"), text("unsafe"), kwargs(&[("mode", "ro")])],
            false,
        ),
        (
            "too few",
            vec![text("safe"), kwargs(&[("mode", "ro")])],
            false,
        ),
        ("no name", vec![text("a"), text("safe")], false),
        (
            "another mode",
            vec![text("a"), text("safe"), kwargs(&[("mode", "rw")])],
            false,
        ),
        (
            "a place taken by a name",
            vec![text("b=evil"), text("safe"), kwargs(&[("mode", "ro")])],
            false,
        ),
        (
            "a name in the middle",
            vec![
                kwargs(&[("mode", "rw")]),
                text("a"),
                text("safe"),
                kwargs(&[("mode", "ro")]),
            ],
            true,
        ),
        (
            "the last of two counts",
            vec![
                text("a"),
                text("safe"),
                kwargs(&[("mode", "ro")]),
                text("mode=rw"),
            ],
            false,
        ),
        (
            "a name in letters of others",
            vec![
                text("a"),
                text("safe"),
                text("größe=1"),
                kwargs(&[("mode", "ro")]),
            ],
            false,
        ),
        (
            "a map that is no arguments",
            vec![text("a"), text("safe"), one("mode", "ro".into())],
            false,
        ),
    ];
    for (what, arguments, expected) in table {
        let asked = Asked {
            functions: &["my.fun"],
            arguments: Value::Array(arguments),
            minions: &["web1"],
        };
        assert_eq!(allows(&rules, &asked), expected, "{what}");
    }
}

#[test]
fn texts_are_named_arguments_as_for_a_minion() {
    use TextArgument::*;
    let table = [
        ("a=b", Named("a", "b")),
        ("a.b-c_1=", Named("a.b-c_1", "")),
        ("_=x\n", Named("_", "x\n")),
        ("a==b", Positional),
        ("1a=b", Positional),
        ("a b=c", Positional),
        ("=b", Positional),
        ("a=b\nc", Positional),
        ("ab", Positional),
        ("ä=b", Uncertain),
    ];
    for (text, expected) in table {
        assert_eq!(text_argument(text), expected, "{text:?}");
    }
}

#[test]
fn functions_of_the_master_need_a_rule_that_names_them() {
    let argument = |value: &str| CallArguments {
        positional: vec![value.into()],
        named: Vec::new(),
    };
    let list_jobs = one("list_jobs", one("args", list(&["ok"])));
    let table = [
        (
            vec!["@runner".into()],
            Form::Runner,
            "jobs.active",
            Verdict::Allowed,
        ),
        (
            vec!["@runners".into()],
            Form::Runner,
            "jobs.active",
            Verdict::Allowed,
        ),
        (
            vec!["@wheel".into()],
            Form::Runner,
            "jobs.active",
            Verdict::Refused,
        ),
        (
            vec!["@jobs".into()],
            Form::Runner,
            "jobs.active",
            Verdict::Allowed,
        ),
        (
            vec!["@jobs".into()],
            Form::Runner,
            "manage.up",
            Verdict::Refused,
        ),
        (
            vec!["@key".into()],
            Form::Wheel,
            "key.accept",
            Verdict::Allowed,
        ),
        (
            vec![".*".into(), "jobs.*".into()],
            Form::Runner,
            "jobs.active",
            Verdict::Refused,
        ),
        (
            vec![one("@jobs", list(&["list_.*"]))],
            Form::Runner,
            "jobs.list_jobs",
            Verdict::Allowed,
        ),
        (
            vec![one("@jobs", list(&["list_.*"]))],
            Form::Runner,
            "jobs.active",
            Verdict::Refused,
        ),
        (
            vec![one("@runner", list(&["jobs.active"]))],
            Form::Runner,
            "jobs.active",
            Verdict::Allowed,
        ),
        (
            vec![one("@runner", list(&["active"]))],
            Form::Runner,
            "jobs.active",
            Verdict::Refused,
        ),
        (
            vec![one("@jobs", list_jobs)],
            Form::Runner,
            "jobs.list_jobs",
            Verdict::Allowed,
        ),
        (
            vec![one("web*", list(&["jobs.active"]))],
            Form::Runner,
            "jobs.active",
            Verdict::Refused,
        ),
        (
            vec!["@runner".into()],
            Form::Runner,
            "salt.cmd.run",
            Verdict::NoFunction,
        ),
        (
            vec!["@runner".into()],
            Form::Runner,
            "jobs",
            Verdict::NoFunction,
        ),
        (vec![], Form::Runner, "a.b.c", Verdict::Refused),
    ];
    for (given, form, function, expected) in table {
        let rules = rules(given);
        let verdict = Acl::default().allows_call(&rules, form, function, &argument("ok"));
        assert_eq!(verdict, expected, "{rules:?} {function}");
        if expected == Verdict::Allowed && format!("{rules:?}").contains("args") {
            let other = Acl::default().allows_call(&rules, form, function, &argument("bad"));
            assert_eq!(other, Verdict::Refused);
        }
    }
}

#[test]
fn rules_of_a_user_are_those_of_all_names_that_match() {
    let acl = PublisherAcl::new([
        ("ana", list(&["test.*"])),
        ("an?", list(&["cmd.run"])),
        ("b.*", Value::from("grains.*")),
    ]);
    assert_eq!(
        acl.rules_of("ana"),
        rules(vec!["test.*".into(), "cmd.run".into()])
    );
    assert_eq!(acl.rules_of("bob"), rules(vec!["grains.*".into()]));
    assert!(acl.rules_of("carl").is_empty());
}

proptest! {
    /// Whatever stands in the rules and the load: an answer, and none of it allows what no
    /// expression names.
    #[test]
    fn malformed_rules_allow_nothing(noise in proptest::collection::vec("[a-z@*%{}()=]{0,8}", 0..6)) {
        let items: Vec<Value> = noise
            .iter()
            .flat_map(|text| [
                one(text, Value::Nil),
                one(text, one("f", list(&[]))),
                Value::Array(vec![text.as_str().into()]),
                Value::map([(text.as_str(), Value::Nil), ("second", list(&[".*"]))]),
            ])
            .chain([Value::Nil, Value::Int(1), Value::Map(Vec::new())])
            .collect();
        let asked = Asked {
            functions: &["cmd.run"],
            arguments: Value::Array(noise.iter().map(|text| text.as_str().into()).collect()),
            minions: &["web1"],
        };
        prop_assert!(!allows(&rules(items), &asked));
    }
}

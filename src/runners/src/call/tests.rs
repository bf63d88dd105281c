use super::*;

const LOOKUP: Function = Function {
    name: "lookup",
    parameters: &[
        Parameter::Needed("jid"),
        Parameter::Optional("source"),
        Parameter::Optional("flag"),
    ],
    run: |_, _, _| Ok(Value::Nil),
};

fn arguments(positional: &[&str], named: &[(&str, &str)]) -> Arguments {
    Arguments {
        positional: positional.iter().map(|text| Value::from(*text)).collect(),
        named: named
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Value::from(*text)))
            .collect(),
    }
}

#[test]
fn wrong_arguments_are_refused_in_the_words_of_python() {
    let table = [
        (
            arguments(&[], &[]),
            "lookup() missing 1 required positional argument: 'jid'",
        ),
        (
            arguments(&["1", "2", "3", "4"], &[]),
            "lookup() takes from 1 to 3 positional arguments but 4 were given",
        ),
        (
            arguments(&["1"], &[("jid", "2")]),
            "lookup() got multiple values for argument 'jid'",
        ),
        (
            arguments(&["1"], &[("other", "2")]),
            "lookup() got an unexpected keyword argument 'other'",
        ),
    ];
    for (arguments, expected) in table {
        match LOOKUP.bind(&arguments) {
            Err(RunnerError::Arguments { problem, usage }) => {
                assert_eq!(problem, expected);
                assert_eq!(usage, "lookup(jid, [source], [flag])");
            }
            _ => panic!("{arguments:?} were taken"),
        }
    }
}

#[test]
fn arguments_find_their_parameters() {
    let given = arguments(&["1"], &[("flag", "x")]);
    let bound = LOOKUP.bind(&given).unwrap();
    assert_eq!(bound.text("jid").unwrap().as_deref(), Some("1"));
    assert!(bound.flag("flag", false));
    assert!(bound.flag("source", true));
    assert!(bound.count("flag").is_err());
    assert_eq!(bound.count("jid").unwrap(), Some(1));
}

#[test]
fn load_arguments_are_read_in_both_forms() {
    let split = Value::map([
        ("arg", Value::Array(vec!["1".into()])),
        ("kwarg", Value::map([("flag", "x")])),
    ]);
    assert_eq!(
        Arguments::of_load(&split),
        arguments(&["1"], &[("flag", "x")])
    );
    let plain = Value::map([("jid", "1"), ("client", "runner")]);
    assert_eq!(Arguments::of_load(&plain), arguments(&[], &[("jid", "1")]));
}

#[test]
fn password_is_masked_in_fun_args() {
    let given = arguments(&["a"], &[("username", "ana"), ("password", "secret")]);
    let shown = Value::map([("username", "ana"), ("password", "**********")]);
    assert_eq!(given.to_value(), Value::Array(vec!["a".into(), shown]));
}

#[test]
fn wheel_credentials_are_no_arguments() {
    let with_key = Value::map([("match", "m1"), ("key", "secret"), ("user", "root")]);
    let named = arguments(&[], &[("match", "m1")]);
    assert_eq!(Arguments::of_wheel(&with_key), named);
    let with_token = Value::map([("key", "timeout"), ("value", "5"), ("token", "secret")]);
    let named = arguments(&[], &[("key", "timeout"), ("value", "5")]);
    assert_eq!(Arguments::of_wheel(&with_token), named);
}

#[test]
fn surplus_arguments_go_to_variadic_parameters() {
    const ANY: Function = function(
        "any",
        &[
            Parameter::Needed("one"),
            Parameter::Rest,
            Parameter::Keywords,
        ],
        |_, _, _| Ok(Value::Nil),
    );
    let given = arguments(&["1", "2"], &[("x", "3"), ("__y", "4")]);
    let bound = ANY.bind(&given).unwrap();
    assert_eq!(bound.text("one").unwrap().as_deref(), Some("1"));
    assert_eq!(bound.rest(), [Value::from("2")]);
    assert_eq!(bound.keywords().len(), 2);
    assert_eq!(
        bound.own_keywords().collect::<Vec<_>>(),
        [("x", &"3".into())]
    );
    // As in stock, `match` is dropped without an error where the function has no such parameter.
    assert!(LOOKUP.bind(&arguments(&["1"], &[("match", "x")])).is_ok());
}

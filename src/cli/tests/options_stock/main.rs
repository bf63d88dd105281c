//! A thousand command lines of chance: our parser accepts and refuses as stock's does in each
//! release, with the same words, exit codes and values.

use std::io::Cursor;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use saltern_cli::options::{
    Call, CommandOptions, CopyCommand, CopyOptions, Ending, Grammar, KeyCommand, KeyOptions,
    MasterOptions, OptionValue, Origin, Parsed, RunCommand, RunOptions, SaltCommand, SaltOptions,
    TargetText, read_by,
};
use serde_json::{Map, Value, json};

const LINES: usize = 1_000;

const WORDS: &[&str] = &[
    "*",
    "web1",
    "web1,web2",
    "a b",
    "test.ping",
    "sys.doc",
    "test.arg,test.ping",
    ",",
    "x,y",
    "",
    "-",
    "--",
    "1",
    "-1",
    "007",
    "08",
    "0x1f",
    "0b",
    "1.5",
    "1e3",
    "nan",
    "acc",
    "all",
    "unaccepted",
    "some",
    "warning",
    "quiet",
    "2048",
    "9999999",
    "k=v",
    "20261121070622637714",
    "pam",
    "é",
    "'",
    "/tmp/x/y",
];

#[test]
fn random_command_lines_are_read_as_by_stock() {
    let lines = lines();
    for release in ["3006.28", "3007.15", "3008.3"] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/options_stock/ask.py");
        let answer = saltern_stock::answer(release, script, &json!(lines).to_string());
        let answer: Value = serde_json::from_slice(&answer).expect("stock's answer is JSON");
        let answers = answer["answers"].as_array().expect("answers");
        assert_eq!(answers.len(), lines.len());
        let mut accepted = 0;
        for ((program, words), stock) in lines.iter().zip(answers) {
            let ours = ours(program, words, release, &answer["defaults"][program]);
            accepted += usize::from(ours.get("values").is_some());
            assert_eq!(&ours, stock, "{program} {words:?} in {release}");
        }
        assert!(
            (100..LINES - 100).contains(&accepted),
            "{accepted} accepted"
        );
    }
}

fn lines() -> Vec<(&'static str, Vec<String>)> {
    let mut runner = TestRunner::deterministic();
    let grammars = [
        ("salt", names(&SaltOptions::grammar())),
        ("salt-key", names(&KeyOptions::grammar())),
        ("salt-run", names(&RunOptions::grammar())),
        ("salt-cp", names(&CopyOptions::grammar())),
        ("salt-master", names(&MasterOptions::grammar())),
    ];
    (0..LINES)
        .map(|index| {
            let (program, names) = &grammars[index % grammars.len()];
            let tree = line(names).new_tree(&mut runner).expect("a command line");
            (*program, tree.current())
        })
        .collect()
}

/// The names of stock's options: long ones, and letters.
type Names = (Vec<&'static str>, Vec<char>);

fn names<T>(grammar: &Grammar<T>) -> Names {
    let options = || {
        grammar
            .definitions()
            .filter(|option| option.origin != Origin::Own)
    };
    let long = options().flat_map(|option| option.long.iter().copied());
    let short = options().flat_map(|option| option.short.iter().copied());
    (long.collect(), short.collect())
}

fn line((long, short): &Names) -> impl Strategy<Value = Vec<String>> + use<> {
    let words = || proptest::sample::select(WORDS).prop_map(str::to_owned);
    let exact = proptest::sample::select(long.clone()).prop_map(str::to_owned);
    let cut = (proptest::sample::select(long.clone()), 3_usize..16)
        .prop_map(|(name, length)| name.chars().take(length).collect::<String>());
    let long = prop_oneof![3 => exact, 2 => cut].boxed();
    let valued = (long.clone(), words()).prop_map(|(name, value)| format!("{name}={value}"));
    let mut letters = short.clone();
    letters.push('Z');
    let short = proptest::collection::vec(proptest::sample::select(letters), 1..3)
        .prop_map(|letters| format!("-{}", letters.into_iter().collect::<String>()));
    let glued = (short.clone(), words()).prop_map(|(letters, value)| format!("{letters}{value}"));
    let word = prop_oneof![8 => words(), 3 => long, 2 => valued, 2 => short, 1 => glued];
    proptest::collection::vec(word, 0..7)
}

fn ours(program: &str, words: &[String], release: &str, defaults: &Value) -> Value {
    match program {
        "salt" => outcome::<SaltOptions>(words, release, defaults, |parsed| {
            salt_given(&SaltCommand::check(parsed)?)
        }),
        "salt-key" => outcome::<KeyOptions>(words, release, defaults, |parsed| {
            KeyCommand::check(parsed).map(|_| json!({}))
        }),
        "salt-run" => outcome::<RunOptions>(words, release, defaults, |parsed| {
            let command = RunCommand::check(parsed)?;
            let function = command.function.unwrap_or_default();
            Ok(json!({"fun": function, "arg": command.arguments}))
        }),
        "salt-master" => outcome::<MasterOptions>(words, release, defaults, |_| Ok(json!({}))),
        _ => outcome::<CopyOptions>(words, release, defaults, |parsed| {
            let command = CopyCommand::check(parsed)?;
            Ok(json!({"tgt": target(&command.target), "dest": command.destination}))
        }),
    }
}

fn salt_given(command: &SaltCommand) -> Result<Value, Ending> {
    let (function, arguments) = match &command.call {
        Call::One(function, arguments) => (json!(function), json!(arguments)),
        Call::Several(functions, lists) => (json!(functions), json!(lists)),
        Call::ConfigDump(help) => return Err(Ending::ok(help.clone())),
    };
    Ok(json!({"tgt": target(&command.target), "fun": function, "arg": arguments}))
}

fn target(target: &TargetText) -> Value {
    match target {
        TargetText::Text(text) => json!(text),
        TargetText::List(ids) => json!(ids),
    }
}

/// The same that stock's side writes, from our parser with the options of one release.
fn outcome<T: CommandOptions + Clone>(
    words: &[String],
    release: &str,
    defaults: &Value,
    check: impl Fn(Parsed<T>) -> Result<Value, Ending>,
) -> Value {
    let mut grammar = T::grammar();
    for group in &mut grammar.groups {
        let is_known = |origin| origin != Origin::Since3008 || release.starts_with("3008");
        group.options.retain(|option| is_known(option.origin));
    }
    let parsed = match read_by(&grammar, words.iter().cloned(), Cursor::new("")) {
        Ok(parsed) => parsed,
        Err(ending) => return ended(&ending),
    };
    let arguments = parsed.arguments.clone();
    let mut options = parsed.options.clone();
    let given = match check(parsed) {
        Ok(given) => given,
        Err(ending) => return ended(&ending),
    };
    let values = grammar.values(&mut options).into_iter();
    let values = values.map(|(dest, value)| (dest.to_owned(), plain(dest, value)));
    let values: Map<String, Value> = values
        .filter(|(dest, value)| defaults.get(dest) != Some(value))
        .collect();
    json!({"values": values, "args": arguments, "given": given})
}

fn ended(ending: &Ending) -> Value {
    let helped = ending.stdout.starts_with("Usage: ");
    json!({"code": ending.code, "stderr": ending.stderr, "helped": helped})
}

/// A value as stock keeps it.
fn plain(dest: &str, value: OptionValue) -> Value {
    match value {
        // A bare name is one in the current directory.
        OptionValue::Text(file) if dest.ends_with("log_file") || dest == "key_logfile" => {
            let is_bare = !file.contains('/');
            json!(if is_bare { format!("./{file}") } else { file })
        }
        OptionValue::Flag(flag) => json!(flag),
        OptionValue::Text(text) => json!(text),
        OptionValue::Integer(number) => json!(number),
        OptionValue::Float(number) => json!(number),
    }
}

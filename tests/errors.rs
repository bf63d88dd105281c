//! Keeps errors typed: outside of tests no function may fail with a bare `String`.
//!
//! An error that is a text cannot be matched, and nothing says what it is about. One `thiserror` enum a
//! crate or module, whose `Display` is the text that is shown.

use super::words::sources;

const RESULT: &str = "Result<";

#[test]
fn errors_are_no_bare_texts() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs"]) {
        let is_test = name.starts_with("tests/") || name.contains("/tests/");
        if is_test || name.ends_with("tests.rs") {
            continue;
        }
        let places = text_errors(without_tests(&text));
        found.extend(places.iter().map(|line| format!("{name}:{line}")));
    }
    assert!(
        found.is_empty(),
        "an error that is a text:\n{}",
        found.join("\n")
    );
}

/// `std::thread::spawn` and `Scope::spawn` panic where the system starts no thread, so a program uses
/// `thread::Builder`. Clippy would forbid them in tests, too, and with what allows that there all other methods.
#[test]
fn threads_are_started_by_calls_that_can_fail() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs"]) {
        let is_test = name.contains("tests/") || name.contains("simulation");
        // Only test builds have its threads.
        let is_test = is_test || name == "src/base/src/fail_point.rs";
        if is_test || name.ends_with("tests.rs") || name.starts_with("src/lab/") {
            continue;
        }
        let calls = thread_starts(without_tests(&text));
        found.extend(calls.iter().map(|call| format!("{name}: {call}")));
    }
    assert!(
        found.is_empty(),
        "a thread whose absence is a panic:\n{}",
        found.join("\n")
    );
}

/// The calls and imports by which a code starts threads, whatever a scope is named and wherever lines end.
fn thread_starts(text: &str) -> Vec<String> {
    let code = text.lines().map(str::trim);
    let code: String = code.filter(|line| !line.starts_with("//")).collect();
    let code: String = code.split_whitespace().collect();
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let behind = |text: &str| {
        code.match_indices(text)
            .map(|(at, _)| at + text.len())
            .collect()
    };
    let mut found = Vec::new();

    let of_module: Vec<usize> = behind("thread::spawn");
    let calls = of_module
        .iter()
        .filter(|at| !code[**at..].starts_with(is_word));
    found.extend(calls.map(|_| "thread::spawn".to_owned()));
    let lists: Vec<usize> = behind("thread::{");
    let imports = lists.iter().flat_map(|at| {
        let list = code[*at..].split('}').next().unwrap_or_default();
        list.split(',')
            .filter(|item| *item == "spawn" || item.starts_with("spawnas"))
    });
    found.extend(imports.map(|item| format!("thread::{{{item}}}")));

    let closures = ["thread::scope(|", "thread::scope(move|"];
    let closures = closures.iter().flat_map(|call| behind(call));
    let mut scopes: Vec<&str> = closures
        .filter_map(|at| code[at..].split(['|', ':']).next())
        .collect();
    scopes.extend(code.match_indices("Scope<").filter_map(|(at, _)| {
        let before = code[..at].rsplit([',', '(', '|']).next()?;
        let (name, kind) = before.split_once(':')?;
        kind.starts_with('&').then_some(name)
    }));
    scopes.sort_unstable();
    scopes.dedup();
    for scope in scopes {
        let call = format!("{scope}.spawn(");
        let calls = code.match_indices(&call);
        let calls = calls.filter(|(at, _)| !code[..*at].ends_with(is_word));
        found.extend(calls.map(|_| call.clone()));
    }
    found
}

#[test]
fn calls_that_start_threads_are_found() {
    let table = [
        (
            "let a = std::thread::spawn(move || {",
            vec!["thread::spawn"],
        ),
        ("all.map(thread::spawn)", vec!["thread::spawn"]),
        ("use std::thread::spawn;", vec!["thread::spawn"]),
        ("use std::thread::{self, spawn};", vec!["thread::{spawn}"]),
        (
            "thread::scope(|all| {\n    all\n        .spawn(read);\n})",
            vec!["all.spawn("],
        ),
        (
            "fn read<'s>(s: &'s Scope<'s, '_>) {\n    s.spawn(read);\n}",
            vec!["s.spawn("],
        ),
        ("thread::scope(|s| builder.spawn_scoped(s, read))", vec![]),
        ("thread::scope(|s| tasks.spawn(read))", vec![]),
        ("// thread::spawn(read)\nthread::spawner()", vec![]),
        ("thread::Builder::new().spawn(read)", vec![]),
    ];
    for (code, expected) in table {
        assert_eq!(thread_starts(code), expected, "{code}");
    }
}

#[test]
fn text_errors_are_found_over_lines_and_in_other_types() {
    let table = [
        ("fn a() -> Result<(), String> {", vec![1]),
        ("fn a() -> Result<Vec<(String, String)>, String>;", vec![1]),
        (
            "\nfn a()\n-> Result<\n    Option<Value>,\n    String,\n>",
            vec![3],
        ),
        ("Box<dyn Fn(&str) -> Result<(), String>>", vec![1]),
        ("Result<Result<(), String>, Halt>", vec![1]),
        ("Result<HashMap<String, String>, Error>", vec![]),
        ("Result<String>", vec![]),
        ("Result<Fn() -> (), Error>", vec![]),
    ];
    for (text, lines) in table {
        assert_eq!(text_errors(text), lines, "{text}");
    }
}

/// A file without the module of its own tests, which stands last.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The lines of types `Result<_, String>`.
fn text_errors(text: &str) -> Vec<usize> {
    text.match_indices(RESULT)
        .filter(|(at, _)| second_argument(&text[at + RESULT.len()..]).trim() == "String")
        .map(|(at, _)| text[..at].matches('\n').count() + 1)
        .collect()
}

/// The second type in a list of types that an angle bracket ends; empty if there is none.
fn second_argument(list: &str) -> &str {
    let mut depth = 0;
    let mut start = None;
    let mut before = ' ';
    for (at, letter) in list.char_indices() {
        match letter {
            ',' if depth == 0 => match start {
                None => start = Some(at + 1),
                Some(start) => return &list[start..at],
            },
            '<' | '(' | '[' => depth += 1,
            // The arrow of a function ends no list.
            '>' if before == '-' => {}
            '>' if depth == 0 => return start.map_or("", |start| &list[start..at]),
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        before = letter;
    }
    ""
}

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
/// `thread::Builder`. Clippy would forbid them in tests, too.
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
        let lines = without_tests(&text).lines().enumerate();
        let lines = lines.filter(|(_, line)| starts_thread(line));
        found.extend(lines.map(|(at, _)| format!("{name}:{}", at + 1)));
    }
    assert!(
        found.is_empty(),
        "a thread whose absence is a panic:\n{}",
        found.join("\n")
    );
}

fn starts_thread(line: &str) -> bool {
    ["thread::spawn(", "scope.spawn("]
        .iter()
        .any(|call| line.contains(call))
}

#[test]
fn calls_that_start_threads_are_found() {
    assert!(starts_thread("    let a = std::thread::spawn(move || {"));
    assert!(starts_thread("    let a = scope.spawn(|| ());"));
    assert!(!starts_thread(
        "    thread::Builder::new().spawn_scoped(scope, read)"
    ));
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

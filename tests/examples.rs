//! Examples in the documentation of a crate are run, and only for a crate that has some does `cargo test
//! --doc` start rustdoc, which reads the whole crate: `doctest = false` in the manifests of the others.

use std::path::Path;

use crate::words::sources;

/// Marks of a code block with which rustdoc leaves it alone.
const NO_EXAMPLE: [&str; 1] = ["text"];

/// Where in this text rustdoc finds an example: the number of the line.
fn example(text: &str) -> Option<usize> {
    let mut is_open = false;
    let mut before = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or(line.strip_prefix("///"));
        let content = comment.unwrap_or_default();
        let is_indented = before == Some("") && content.starts_with("     ");
        match content.trim_start().strip_prefix("```") {
            Some(mark) if !is_open && !NO_EXAMPLE.contains(&mark) => return Some(number + 1),
            Some(_) => is_open = !is_open,
            None if is_indented && !is_open => return Some(number + 1),
            None => {}
        }
        is_open &= comment.is_some();
        before = comment;
    }
    None
}

#[test]
fn crates_with_examples_run_them() {
    let files = sources(&["rs"]);
    let mut libraries = 0;
    let mut wrong = Vec::new();
    for (manifest, text) in sources(&["toml"]) {
        let Some(directory) = manifest.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let below = format!("{directory}/src/");
        let own = || files.iter().filter(|(name, _)| name.starts_with(&below));
        if !own().any(|(name, _)| Path::new(name) == Path::new(&below).join("lib.rs")) {
            continue;
        }
        libraries += 1;
        let found = own().find_map(|(name, text)| Some((name, example(text)?)));
        match (text.contains("doctest = false"), found) {
            (true, Some((name, line))) => wrong.push(format!(
                "{name}:{line} is an example, and {manifest} has `doctest = false`"
            )),
            (false, None) => wrong.push(format!(
                "{manifest}: no example is there, so `[lib]` is to have `doctest = false`"
            )),
            _ => {}
        }
    }
    assert!(libraries > 20, "only {libraries} crates were looked at");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn examples_are_what_rustdoc_runs() {
    for (text, line) in [
        ("//! Text.\n//!\n//! ```\n//! f();\n//! ```\n", Some(3)),
        ("/// ```should_panic\n/// f();\n/// ```\n", Some(1)),
        ("    /// Text.\n    ///\n    ///     f();\n", Some(3)),
        ("/// ```text\n/// f\n///\n///     g\n/// ```\n", None),
        ("/// ```text\n/// ```\n/// ```\n/// f();\n", Some(3)),
        ("/// - one\n///   and more\n///     of it\n", None),
        ("// ```\n// f\n", None),
    ] {
        assert_eq!(example(text), line, "{text:?}");
    }
}

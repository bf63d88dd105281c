//! Hostile documents: each is refused, at once, with a place, and nothing panics.

use proptest::prelude::*;
use saltern_config::yaml::{Limits, parse, parse_bytes};

/// The message for a document that must be refused.
fn refused(document: &str) -> String {
    parse(document, "f", &Limits::DEFAULT)
        .expect_err("the document must be refused")
        .to_string()
}

#[test]
fn yaml_alias_bomb_is_refused_before_allocating() {
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} [{inner}]"));
    }
    assert!(refused(&lines.join("\n")).contains("more than 2000000 values"));
}

#[test]
fn a_merge_bomb_is_refused() {
    let mut lines = vec!["a0: &a0 {x: 1}".to_owned()];
    for level in 1..30 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} {{<<: [{inner}]}}"));
    }
    // Already the first level gives a key twice; with different keys the count is the bound.
    assert!(refused(&lines.join("\n")).contains("stands already"));
    let mut lines = vec!["a0: &a0 {x: 1}".to_owned()];
    for level in 1..40 {
        let before = level - 1;
        lines.push(format!(
            "a{level}: &a{level} {{<<: [{{<<: *a{before}, y{level}: 1}}, {{<<: *a{before}}}]}}"
        ));
    }
    refused(&lines.join("\n"));
}

#[test]
fn yaml_cycles_and_depth_are_refused() {
    assert_eq!(
        refused("a: &x\n  b: *x"),
        "f:1:4: this collection contains itself"
    );
    assert_eq!(
        refused("a: &x\n  <<: *x"),
        "f:1:4: this mapping merges itself"
    );
    for opening in ["[", "{a: ", "- ", "? "] {
        assert!(
            refused(&opening.repeat(50_000)).contains("nested deeper than 200"),
            "{opening}"
        );
    }
    // Shallow as written, deep as meant.
    let mut lines = vec!["a0: &a0 [x]".to_owned()];
    lines.extend((1..250).map(|level| format!("a{level}: &a{level} [*a{}]", level - 1)));
    assert!(refused(&lines.join("\n")).contains("nested deeper than 200"));
}

#[test]
fn large_and_odd_documents_are_read_in_bounded_time() {
    let odd = [
        "&a ".repeat(50_000),
        "\"".repeat(100_001),
        ":".repeat(100_000),
        format!("[{}]", "a,".repeat(100_000)),
        "a".repeat(1_000_000),
        "'".repeat(100_001),
        "#".repeat(100_000),
        " ".repeat(100_000),
        "a:\n".repeat(2),
    ];
    for document in odd {
        let _ = parse(&document, "f", &Limits::DEFAULT);
    }
    let small = Limits {
        bytes: 10,
        ..Limits::DEFAULT
    };
    assert!(parse("a: 0123456789", "f", &small).is_err());
}

#[test]
fn yaml_errors_have_line_and_column() {
    let table = [
        (
            "a: 1\nb: 2\na: 3\n",
            "f:3:1: the key \"a\" stands already in line 1",
        ),
        ("a: 1\nb: [1, 2\n", "f:3:1: "),
        ("a: 1\n\tb: 2\n", "f:2:1: "),
        (
            "a: \u{1}",
            "f:1:4: the control character U+0001 is not allowed",
        ),
        (
            "a: 1\n---\nb: 2",
            "f:2:1: a second document starts here, one is allowed",
        ),
        ("a: !foo 1", "f:1:4: the tag \"!foo\" is not known here"),
        (
            "x: &x 1\ny: &x 2",
            "f:2:4: the anchor \"x\" stands here again",
        ),
    ];
    for (document, message) in table {
        let found = refused(document);
        assert!(found.starts_with(message), "{document:?} gave {found}");
    }
    let error = parse_bytes(b"a: 1\nb: \xff\n", "f", &Limits::DEFAULT).expect_err("not UTF-8");
    assert_eq!(error.to_string(), "f:2:4: the file is not UTF-8 text");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ab01:?{}\\[\\],&*!|>'\"%@`#\n \t~<=.é_-]{0,40}") {
        let _ = parse(&text, "f", &Limits::DEFAULT);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = parse_bytes(&bytes, "f", &Limits::DEFAULT);
    }
}

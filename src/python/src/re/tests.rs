//! Single expressions; `tests/differential/patterns.rs` compares many with CPython.

use super::*;

fn read(text: &str) -> Result<String, Refused> {
    translate(text, Tail::Open, Flags::default()).map(|translation| translation.regex)
}

#[test]
fn common_regex_syntax_is_unchanged() {
    for text in [
        "web1",
        "web(1|2)",
        "(?:a|b)*c+?",
        "w{2,3}",
        "a[b-d_]",
        "x-y z",
    ] {
        assert_eq!(read(text).as_deref(), Ok(text), "{text}");
    }
}

#[test]
fn python_regex_differences_are_translated() {
    let table = [
        ("db[+--x]1", r"db[\x{2b}-\x{2d}x]1"),
        ("[[ab]c]", r"[\x{5b}ab]c\x{5d}"),
        ("[]a[]", r"[\x{5d}a\x{5b}]"),
        ("[^][]", r"[^\x{5d}\x{5b}]"),
        ("[a&&b]&&", r"[a\x{26}\x{26}b]\x{26}\x{26}"),
        ("(?i)in", "(?i)[iIıİ]n"),
        ("(?i)[a-k]", "(?i)[a-kiIıİ]"),
        ("a$", r"a(?:\n?\z)"),
        ("(a$)", r"(a(?=\n?\z))"),
        (r"a\Z", r"a\z"),
        ("a{,2}{", r"a{0,2}\x{7b}"),
        ("a{}", r"a\x{7b}\x{7d}"),
        ("(?x) a b # c\n d", "abd"),
        ("a(?#no)*", "a*"),
        (r"(a)\1", r"(a)(?:\1)"),
        (r"\x41\101\u00e9", "AAé"),
        ("(?P<n>a)(?P=n)", r"(a)(?:\1)"),
    ];
    for (text, expected) in table {
        assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
    }
    let whole = translate("a$", Tail::End, Flags::default()).expect("an expression");
    assert_eq!(whole.regex, r"a(?=\n?\z)");
}

#[test]
fn invalid_or_ambiguous_python_regex_is_refused() {
    let table = [
        "(",
        ")",
        "a)",
        "[a",
        "[]",
        "*",
        "a**",
        "^*",
        r"\b+",
        "a{2,1}",
        r"\q",
        r"\p{L}",
        r"\z",
        r"\h",
        r"\",
        r"\1",
        r"(a)\11",
        r"(a\1)",
        r"(?<=(a)\1)",
        "(?<=a*)b",
        "(?P<a>x)(?P<a>y)",
        "(?P=a)",
        "(?z)",
        "(?L)a",
        "(?-i)a",
        "a(?i)b",
        "[b-a]",
        r"[\d-z]",
        r"[\8]",
        r"\400",
        r"\xz",
        r"\ud800",
        r"\N{HYPHEN-MINUS}",
        "(?>a)",
        "a*+",
        "(a)(?(1)b|c)",
        r"(?i)(a)\1",
        "(?#",
        "(?i-i:a)",
        "(?",
        "(?<a>b)",
    ];
    for text in table {
        assert!(read(text).is_err(), "{text}: {:?}", read(text));
    }
    assert!(read(&"(".repeat(60_000)).is_err());
}

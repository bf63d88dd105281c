//! Wildcards that every interpreter reads alike: letters and digits of ASCII, `.`, `_`, `-`, `*` and
//! `?`, and nothing else.
//!
//! No class (`[…]`), in which engines differ; nothing that begins another kind of target in a
//! compound one (`@`, blanks, brackets); no comma, at which 3008's master and its minions differ. What
//! is left to differ is case: Python on Windows ignores it (`os.path.normcase` in `fnmatch`).

use std::fmt;

use saltern_python::fnmatch::Glob;

/// The most bytes of a plain wildcard: as many as a minion's id has.
const MAX_BYTES: usize = 255;

/// A character that no plain wildcard has.
const FOREIGN: &str = "\0";

/// A wildcard pattern of plain characters, with at least one `*` or `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainWildcard {
    text: String,
    glob: Glob,
    /// The same in lower case.
    lower: Glob,
}

impl PlainWildcard {
    /// `None` for every other text, one without a wildcard included.
    pub fn parse(text: &str) -> Option<Self> {
        let is_wild = |c: u8| matches!(c, b'*' | b'?');
        let is_plain = |c: u8| is_wild(c) || matches!(c, b'.' | b'_' | b'-');
        let mut bytes = text.bytes();
        let is_one = text.len() <= MAX_BYTES
            && text.bytes().any(is_wild)
            && bytes.all(|c| is_plain(c) || c.is_ascii_alphanumeric());
        is_one.then(|| Self {
            text: text.to_owned(),
            glob: Glob::new(text),
            lower: Glob::new(&text.to_ascii_lowercase()),
        })
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a minion of this id reads the pattern as this master does, whatever it runs on:
    /// Windows ignores case. An id of other letters than ASCII's counts as one that does not: which
    /// case they have is a question of tables.
    pub fn is_read_alike_by(&self, id: &str) -> bool {
        let matches_in_any_case = || self.lower.matches(&id.to_ascii_lowercase());
        id.is_ascii() && self.glob.matches(id) == matches_in_any_case()
    }

    /// Whether this pattern certainly matches whatever the narrower one matches: ids that do not exist
    /// yet as well. `false` where that takes more than a look at both texts.
    pub fn contains(&self, narrower: &Self) -> bool {
        // A `*` of the narrower one is more than a `?` takes.
        let any_but_star = format!("[!{FOREIGN}]");
        let pattern = Glob::new(&self.text.replace('?', &any_but_star));
        pattern.matches(&narrower.text.replace('*', FOREIGN))
    }
}

impl fmt::Display for PlainWildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> PlainWildcard {
        PlainWildcard::parse(text).unwrap()
    }

    #[test]
    fn what_engines_may_read_differently_is_not_plain() {
        for text in ["*", "web*", "db-?.example.org", "??_*"] {
            assert!(PlainWildcard::parse(text).is_some(), "{text}");
        }
        for text in [
            "", "web1", "web[12]*", "web*,db*", "L@web*", "web* db*", "(*)", "größe*", "a\n*",
            "!*", "a/*", "a\\*",
        ] {
            assert_eq!(PlainWildcard::parse(text), None, "{text}");
        }
    }

    #[test]
    fn plain_wildcard_is_bounded_and_shown_as_its_text() {
        let longest = "*".repeat(MAX_BYTES);
        let kept = plain(&longest);
        assert_eq!(kept.as_str(), longest);
        assert_eq!(kept.to_string(), longest);
        assert_eq!(PlainWildcard::parse(&format!("{longest}*")), None);
    }

    #[test]
    fn narrower_pattern_is_contained() {
        let table = [
            ("*", "*", true),
            ("web*", "web*", true),
            ("web*", "web1*", true),
            ("web*", "web??", true),
            ("w?b*", "web-*", true),
            ("*.org", "db*.example.org", true),
            ("web?", "web*", false),
            ("web*", "*", false),
            ("web*", "we*", false),
            ("web*", "db*", false),
            ("web1*", "web*", false),
            ("*a*", "*b*", false),
            ("w?b*", "w*b*", false),
        ];
        for (wide, narrow, expected) in table {
            assert_eq!(
                plain(wide).contains(&plain(narrow)),
                expected,
                "{wide} {narrow}"
            );
        }
    }

    #[test]
    fn id_of_another_case_or_alphabet_is_not_read_alike() {
        let web = plain("web*");
        for (id, alike) in [
            ("web1", true),
            ("db1", true),
            ("WEB1", false),
            ("Web-x", false),
            ("DB1", true),
            ("webß", false),
            ("db\u{212a}", false),
        ] {
            assert_eq!(web.is_read_alike_by(id), alike, "{id}");
        }
    }

    const PATTERN: &str = "[abAB1.*?_-]{0,8}[*?][abAB1.*?_-]{0,8}";
    const ID: &str = "[abAB1._*?k-]{1,10}";

    proptest! {
        #[test]
        fn what_a_contained_pattern_matches_its_container_matches(
            wide in PATTERN, narrow in PATTERN, id in ID
        ) {
            let (wide, narrow) = (plain(&wide), plain(&narrow));
            if wide.contains(&narrow) && narrow.glob.matches(&id) {
                prop_assert!(wide.glob.matches(&id));
            }
        }
    }

    /// Three readings by CPython: as on Linux, as on Windows, and as a compound target, of which the
    /// words and the kind of each are found first.
    const PYTHON: &str = r#"
import fnmatch, json, ntpath, re, sys
def windows(pattern, text):
    return fnmatch.fnmatchcase(ntpath.normcase(text), ntpath.normcase(pattern))
json.dump([
    [
        [fnmatch.fnmatchcase(text, pattern), windows(pattern, text)] for text in texts
    ] if pattern.split() == [pattern] and "@" not in pattern else None
    for pattern, texts in json.loads(sys.argv[1])
], sys.stdout)
"#;

    #[test]
    fn id_that_is_read_alike_is_read_so_by_cpython_on_linux_and_windows() {
        use proptest::strategy::ValueTree;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let cases = prop::collection::vec((PATTERN, prop::collection::vec(ID, 20)), 300);
        let cases = cases.new_tree(&mut runner).unwrap().current();
        let asked = serde_json::to_string(&cases).unwrap();
        let output = Command::new("python3")
            .args(["-c", PYTHON, &asked])
            .output();
        let output = output.expect("python3 is on every machine that runs tests");
        let answers: Vec<Vec<[bool; 2]>> = serde_json::from_slice(&output.stdout).unwrap();
        let mut alike = 0;
        for ((pattern, ids), answers) in cases.iter().zip(&answers) {
            let pattern = plain(pattern);
            for (id, [linux, windows]) in ids.iter().zip(answers) {
                assert_eq!(pattern.glob.matches(id), *linux, "{pattern} {id}");
                assert_eq!(
                    pattern.is_read_alike_by(id),
                    linux == windows,
                    "{pattern} {id}"
                );
                alike += usize::from(linux == windows);
            }
        }
        assert!(alike > 1_000, "{alike}");
    }
}

//! Wildcards that every interpreter reads alike: letters and digits of ASCII, `.`, `_`, `-`, `*` and
//! `?`, and nothing else.
//!
//! No class (`[…]`), in which engines differ; nothing that begins another kind of target in a
//! compound one (`@`, blanks, brackets); no comma, at which 3008's master and its minions differ. What
//! is left to differ is case: Python on Windows ignores it (`os.path.normcase` in `fnmatch`).

use std::fmt;

/// The most bytes of a plain wildcard: as many as a minion's id has.
const MAX_BYTES: usize = 255;

/// A wildcard pattern of plain characters, with at least one `*` or `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainWildcard(String);

impl PlainWildcard {
    /// `None` for every other text, one without a wildcard included.
    pub fn parse(text: &str) -> Option<Self> {
        let is_wild = |c: u8| matches!(c, b'*' | b'?');
        let is_plain = |c: u8| is_wild(c) || matches!(c, b'.' | b'_' | b'-');
        let mut bytes = text.bytes();
        let is_one = text.len() <= MAX_BYTES
            && text.bytes().any(is_wild)
            && bytes.all(|c| is_plain(c) || c.is_ascii_alphanumeric());
        is_one.then(|| Self(text.to_owned()))
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches this text, of ASCII; each byte as it is.
    fn matches(&self, text: &str) -> bool {
        walk(self.0.as_bytes(), text.as_bytes(), |wanted, given| {
            wanted == b'?' || wanted == given
        })
    }

    /// The same with case ignored, as on Windows.
    fn matches_in_any_case(&self, text: &str) -> bool {
        walk(self.0.as_bytes(), text.as_bytes(), |wanted, given| {
            wanted == b'?' || wanted.eq_ignore_ascii_case(&given)
        })
    }

    /// Whether a minion of this id reads the pattern as this master does, whatever it runs on. An id
    /// of other letters than ASCII's counts as one that does not: which case they have is a question
    /// of tables.
    pub fn is_read_alike_by(&self, id: &str) -> bool {
        id.is_ascii() && self.matches(id) == self.matches_in_any_case(id)
    }

    /// Whether this pattern certainly matches whatever the narrower one matches: ids that do not exist
    /// yet as well. `false` where that takes more than a look at both texts.
    pub fn contains(&self, narrower: &Self) -> bool {
        walk(
            self.0.as_bytes(),
            narrower.0.as_bytes(),
            |wanted, given| match wanted {
                b'?' => given != b'*',
                literal => literal == given,
            },
        )
    }
}

impl fmt::Display for PlainWildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the pattern takes the whole text; `takes` says which byte a byte other than `*` takes.
/// Each mismatch lets the last `*` take one byte more, so the steps are bounded by both lengths.
fn walk(pattern: &[u8], text: &[u8], takes: impl Fn(u8, u8) -> bool) -> bool {
    let (mut at, mut on) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&given) = text.get(on) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, on));
            }
            Some(&wanted) if takes(wanted, given) => {
                at += 1;
                on += 1;
            }
            _ => {
                let Some((behind, taken)) = retry else {
                    return false;
                };
                (at, on) = (behind, taken + 1);
                retry = Some((behind, on));
            }
        }
    }
    let mut rest = pattern.iter().skip(at);
    rest.all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::expression::Pattern;

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
        fn plain_wildcard_matches_as_this_masters_interpreter(pattern in PATTERN, id in ID) {
            let general = Pattern::glob(&pattern).unwrap();
            prop_assert_eq!(plain(&pattern).matches(&id), general.matches(&id));
        }

        #[test]
        fn what_a_contained_pattern_matches_its_container_matches(
            wide in PATTERN, narrow in PATTERN, id in ID
        ) {
            let (wide, narrow) = (plain(&wide), plain(&narrow));
            if wide.contains(&narrow) && narrow.matches(&id) {
                prop_assert!(wide.matches(&id));
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
                assert_eq!(pattern.matches(id), *linux, "{pattern} {id}");
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

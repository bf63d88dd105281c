//! Keeps words out of the sources that a stranger would have to learn: names of our own for what the
//! field has a word for, and documentation that documents nothing. The glossary is in ARCHITECTURE.md.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Banned words, each with its replacement.
const BANNED: &[(&str, &str)] = &[
    ("See the module.", "a sentence that says what the item is"),
    ("Seldom", "LogThrottle"),
    ("COMPLAINT", "LOG_INTERVAL"),
    ("Doorkeeper", "LoginWorker"),
    ("looked_up", "gauge_on_scrape"),
    ("told_to_come_again", "retry_later"),
    ("told to come again", "answered \"retry later\""),
    ("LogFolder", "JobCheckpointer"),
    ("JobEnds", "JobCompletions"),
    ("OtherNames", "MetricAliases"),
    ("PeerDesk", "PeerCalls"),
    ("hears_everything", "receives_all"),
    ("Surroundings", "PresenceView"),
    ("const MOST:", "MAX_ and what is bounded"),
    ("const LONGEST:", "MAX_ and what is bounded, with its unit"),
    ("const DEEPEST:", "MAX_ and what is bounded"),
    ("const MOST_", "MAX_ and what is bounded"),
    ("const LONGEST_", "MAX_ and what is bounded, with its unit"),
    ("const LARGEST_", "MAX_ and what is bounded, with its unit"),
    ("const LEAST_", "MIN_ and what is bounded"),
    ("const TOLD", "MAX_ and what is bounded"),
    ("_and_tell(", "_and_notify("),
    ("epitaph", "exit_report"),
    ("LAST_WORDS", "a grace period, with its unit"),
    ("fn tell(", "notify, report, send"),
    ("fn told(", "what it returns"),
    ("is told to be lost", "is reported lost"),
    ("is told of", "is notified of, receives"),
    ("are told of", "are notified of, receive"),
    ("is complained of", "is logged"),
];

/// Files in which the words are looked for: all that git knows, of these kinds.
const KINDS: [&str; 7] = ["rs", "md", "py", "sh", "yml", "toml", "json"];

/// This file, and what keeps history.
const LEFT_OUT: [&str; 2] = ["tests/words.rs", "CHANGELOG.md"];

/// The files of these kinds that git knows, each with its text.
pub(crate) fn sources(kinds: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(&root)
        .output()
        .expect("git lists the files");
    assert!(listed.status.success(), "git lists the files");
    let names = String::from_utf8(listed.stdout).expect("names of files are text");
    let of_kind = |name: &&str| kinds.iter().any(|kind| name.ends_with(&format!(".{kind}")));
    let files = names.split('\0').filter(of_kind);
    // A file may be deleted and not yet committed so.
    let text = |name: &str| fs::read_to_string(root.join(name)).ok();
    files
        .filter_map(|name| Some((name.to_owned(), text(name)?)))
        .collect()
}

#[test]
fn banned_words_stand_nowhere() {
    let mut found = Vec::new();
    let mut count = 0;
    let files = sources(&KINDS).into_iter();
    for (name, text) in files.filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())) {
        count += 1;
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                found.push(format!(
                    "{name}:{}: \"{word}\": write {instead}",
                    number + 1
                ));
            }
        }
    }
    assert!(count > 500, "only {count} files were read");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Words with which a comment begins that does not name its item.
const HEADLESS: [&str; 6] = ["What", "Who", "Whoever", "Whom", "Whose", "Which one."];

/// The lines of comments that document an item, and begin without naming it.
fn headless(source: &str) -> Vec<(usize, &str)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("//!")
    };
    let mut found = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(source.lines()) {
        let is_first = comment(line) && !is_inside;
        is_inside = comment(line);
        let text = line.trim_start().get(3..).unwrap_or_default().trim();
        let begins = |word: &str| {
            let rest = text.strip_prefix(word);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        if is_first && HEADLESS.iter().any(|word| begins(word)) {
            found.push((number, text));
        }
    }
    found
}

#[test]
fn comments_begin_with_what_an_item_is() {
    let mut found = Vec::new();
    for (name, text) in &sources(&["rs"]) {
        let lines = headless(text).into_iter();
        found.extend(lines.map(|(number, line)| format!("{name}:{number}: {line}")));
    }
    assert!(
        found.is_empty(),
        "a noun phrase or an imperative first:\n{}",
        found.join("\n")
    );
}

#[test]
fn only_the_first_line_of_a_comment_is_judged() {
    let source = [
        "//! What it is",
        "",
        "/// A thing.",
        "/// What follows is fine.",
        "fn a() {}",
        "/// Whose it is.",
        "fn b() {}",
        "/// Which one.",
        "/// Whatever.",
        "// What.",
    ];
    let lines: Vec<usize> = headless(&source.join("\n"))
        .iter()
        .map(|(line, _)| *line)
        .collect();
    assert_eq!(lines, [1, 6, 8]);
}

//! Holds the pages for readers of the code against the tree: what they link to and the files that they
//! name are there.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories below which a file that a page names may stand, seen from the root: pages leave out
/// what is clear.
const BASES: [&str; 3] = ["", "src", "actors/src"];

/// Ends of the names that are taken for files.
const FILES: [&str; 6] = [".rs", ".py", ".sh", ".list", ".yml", ".md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages at the root and everything in `docs`.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .to_vec();
    markdown(&root.join("docs"), &mut pages);
    pages
}

fn markdown(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).expect("the directory of pages can be read");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            markdown(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// The texts between two marks of a line.
fn between<'a>(line: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    let parts = line.split(open).skip(1);
    parts.filter_map(move |part| part.split_once(close).map(|(text, _)| text))
}

fn is_linked(page: &Path, target: &str) -> bool {
    let file = target.split_once('#').map_or(target, |(file, _)| file);
    let is_elsewhere = file.is_empty() || file.starts_with("http");
    is_elsewhere || page.parent().is_some_and(|dir| dir.join(file).exists())
}

/// Whether a name in backticks that looks like the path of one file is one. `src/x.rs` may stand below
/// any crate (`wire/src/port` for `src/wire/src/port`), or be named from its actor's folder.
fn is_there(name: &str) -> bool {
    let is_file = name.contains('/') && FILES.iter().any(|end| name.ends_with(end));
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if !is_file || !is_plain || name.starts_with(['/', '.']) {
        return true;
    }
    let mut bases: Vec<PathBuf> = BASES.iter().map(|base| root().join(base)).collect();
    for dir in ["src", "actors/src"].map(|dir| root().join(dir)) {
        let entries = fs::read_dir(dir).expect("the directory of the crates can be read");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            bases.extend([path.join("src"), path]);
        }
    }
    bases.iter().any(|base| base.join(name).exists())
}

#[test]
fn links_and_files_that_pages_name_exist() {
    let mut missing = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page is text");
        for (number, line) in text.lines().enumerate() {
            let links = between(line, "](", ')').filter(|target| !is_linked(&page, target));
            let quoted = line.split('`').skip(1).step_by(2);
            count += line.split('`').count() / 2;
            let files = quoted.filter(|name| !is_there(name));
            for name in links.chain(files) {
                missing.push(format!("{}:{}: {name}", page.display(), number + 1));
            }
        }
    }
    assert!(count > 300, "only {count} names were looked at");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn guarantees_name_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/guarantees.md")).expect("the page is text");
    let mut missing = Vec::new();
    let mut count = 0;
    for line in page.lines() {
        let mut source = None;
        for name in line.split('`').skip(1).step_by(2) {
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.ends_with(".rs") {
                source = fs::read_to_string(root().join(name)).ok();
                if source.is_none() {
                    missing.push(name.to_owned());
                }
            } else if let Some(source) = source.as_deref().filter(|_| name.chars().all(is_word)) {
                // Options stand in the last column, behind the tests.
                if name.starts_with("saltern_") || !name.contains('_') {
                    continue;
                }
                count += 1;
                if !source.contains(&format!("fn {name}(")) {
                    missing.push(name.to_owned());
                }
            }
        }
    }
    assert!(count > 30, "only {count} tests are named");
    assert!(
        missing.is_empty(),
        "docs/guarantees.md: no such tests: {missing:?}"
    );
}

//! Python's `glob.glob` for `include` and `default_include`, sorted as stock sorts it.
//!
//! `*`, `?` and `[…]` within one part of a path; no `**`, which stock does not ask for. A part
//! that does not start with a dot does not match hidden files.

use std::fs;
use std::path::{Path, PathBuf};

fn has_magic(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The existing paths that match, sorted. A directory that cannot be read matches nothing.
pub fn glob(pattern: &str) -> Vec<PathBuf> {
    let start = if pattern.starts_with('/') {
        PathBuf::from("/")
    } else {
        PathBuf::new()
    };
    let mut found = vec![start];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in &found {
            if has_magic(part) {
                next.extend(matches_in(base, part));
            } else {
                let path = base.join(part);
                if path.symlink_metadata().is_ok() {
                    next.push(path);
                }
            }
        }
        found = next;
    }
    found.sort();
    found
}

fn matches_in(base: &Path, part: &str) -> Vec<PathBuf> {
    let directory = if base.as_os_str().is_empty() {
        Path::new(".")
    } else {
        base
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let pattern: Vec<char> = part.chars().collect();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| part.starts_with('.') || !name.starts_with('.'))
        .filter(|name| matches(&pattern, &name.chars().collect::<Vec<char>>()))
        .map(|name| base.join(name))
        .collect()
}

/// Python's `fnmatch` for one name. Iterative with one point to return to, so that no pattern can
/// make it slow.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = name.get(here) {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, here));
                at += 1;
                continue;
            }
            Some('?') => Some(at + 1),
            Some('[') => match class(pattern, at, *letter) {
                Some((true, after)) => Some(after),
                Some((false, _)) => None,
                None => (*letter == '[').then_some(at + 1),
            },
            Some(same) if same == letter => Some(at + 1),
            _ => None,
        };
        match (step, star) {
            (Some(after), _) => {
                at = after;
                here += 1;
            }
            (None, Some((after_star, seen))) => {
                at = after_star;
                here = seen + 1;
                star = Some((after_star, here));
            }
            (None, None) => return false,
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

/// A `[…]` that opens at `at`: whether it holds the letter, and where it ends. `None` if it has no
/// end, and is then an ordinary bracket.
fn class(pattern: &[char], at: usize, letter: char) -> Option<(bool, usize)> {
    let mut place = at + 1;
    let negated = pattern.get(place) == Some(&'!');
    if negated {
        place += 1;
    }
    let first = place;
    let mut holds = false;
    loop {
        let low = *pattern.get(place)?;
        if low == ']' && place > first {
            return Some((holds != negated, place + 1));
        }
        match (pattern.get(place + 1), pattern.get(place + 2)) {
            (Some('-'), Some(high)) if *high != ']' => {
                holds |= (low..=*high).contains(&letter);
                place += 3;
            }
            _ => {
                holds |= low == letter;
                place += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_patterns_match_as_in_python() {
        let table = [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", true),
            ("*.conf", "a.conf.bak", false),
            ("?[0-9]*", "a1", true),
            ("?[0-9]*", "ab", false),
            ("[!a]*", "b", true),
            ("[!a]*", "a", false),
            ("[]]x", "]x", true),
            ("[ab", "[ab", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("", "", true),
        ];
        for (pattern, name, expected) in table {
            let pattern: Vec<char> = pattern.chars().collect();
            let name_chars: Vec<char> = name.chars().collect();
            assert_eq!(
                matches(&pattern, &name_chars),
                expected,
                "{pattern:?} {name}"
            );
        }
    }
}

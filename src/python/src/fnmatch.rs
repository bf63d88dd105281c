//! `fnmatch.fnmatchcase`: wildcards over the whole text, without a detour over a regular expression,
//! because a target is matched against every minion.

/// The most comparisons of one match, some 10 ms; only made-up patterns over long texts need more.
const MAX_COMPARISONS: usize = 4_000_000;

/// How many comparisons are one step of [`Glob::matches_counting`].
const COMPARISONS_OF_STEP: usize = 64;

/// A pattern that matches this text alone (`glob.escape`).
pub fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '*' | '?' | '[' => pattern.extend(['[', character, ']']),
            other => pattern.push(other),
        }
    }
    pattern
}

/// A compiled wildcard pattern: `*`, `?`, `[seq]` and `[!seq]`. A `[` that is never closed stands
/// for itself; only `!` negates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A pattern of stars alone.
    Everything,
    /// A pattern without a special character.
    Exactly(Box<str>),
    Stars(Stars),
    Tokens(Box<[Token]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// `*`.
    Any,
    /// `?`.
    One,
    Letter(char),
    Class(Class),
}

/// A class of characters: the ranges of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    is_negated: bool,
    members: Vec<(char, char)>,
}

/// Texts that must follow each other, with anything between them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stars {
    start: String,
    middle: Vec<String>,
    end: String,
}

impl Glob {
    /// Compiles a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        if !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*') {
            return Self(Kind::Everything);
        }
        if !pattern.contains(['*', '?', '[']) {
            return Self(Kind::Exactly(pattern.into()));
        }
        Self(match Stars::read(pattern) {
            Some(stars) => Kind::Stars(stars),
            None => Kind::Tokens(tokens(pattern)),
        })
    }

    /// Whether the whole text matches. A match that takes too many comparisons is none.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.matches_counting(text).0 == Some(true)
    }

    /// Whether the whole text matches, nothing where that takes too many comparisons to find out,
    /// and about how many steps it took.
    #[must_use]
    pub fn matches_counting(&self, text: &str) -> (Option<bool>, usize) {
        match &self.0 {
            Kind::Everything => (Some(true), 1),
            Kind::Exactly(exactly) => (Some(**exactly == *text), 1),
            Kind::Stars(stars) => (Some(stars.matches(text)), 1),
            Kind::Tokens(tokens) => {
                let (is_match, comparisons) = matches_tokens(tokens, text);
                (is_match, 1 + comparisons / COMPARISONS_OF_STEP)
            }
        }
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.0 {
            Kind::Everything => 0,
            Kind::Exactly(text) => text.len(),
            Kind::Stars(stars) => {
                let middle = stars.middle.iter();
                let middle: usize = middle.map(|text| text.len() + size_of::<String>()).sum();
                stars.start.len() + stars.end.len() + middle
            }
            Kind::Tokens(tokens) => {
                let members = tokens.iter().map(|token| match token {
                    Token::Class(class) => class.members.len(),
                    _ => 0,
                });
                size_of_val(&**tokens) + members.sum::<usize>() * size_of::<(char, char)>()
            }
        }
    }

    /// The only text that matches, if there is one.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match &self.0 {
            Kind::Exactly(text) => Some(text),
            _ => None,
        }
    }
}

impl Stars {
    /// Nothing when the pattern has no star, or more than stars.
    fn read(pattern: &str) -> Option<Self> {
        if pattern.contains(['?', '[']) {
            return None;
        }
        let (start, rest) = pattern.split_once('*')?;
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|text| !text.is_empty());
        Some(Self {
            start: start.to_owned(),
            middle: middle.map(str::to_owned).collect(),
            end: end.to_owned(),
        })
    }

    fn matches(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.start.as_str()) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(self.end.as_str()) else {
            return false;
        };
        // The first place is always the best: more is left for what follows.
        for wanted in &self.middle {
            match rest.split_once(wanted.as_str()) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        true
    }
}

fn matches_tokens(tokens: &[Token], text: &str) -> (Option<bool>, usize) {
    let mut comparisons = 0;
    let mut rest = text;
    let mut at = 0;
    // Behind the last star: the token, and the text from which it was tried.
    let mut retry: Option<(usize, &str)> = None;
    while let Some(letter) = rest.chars().next() {
        comparisons += 1;
        if comparisons > MAX_COMPARISONS {
            return (None, comparisons);
        }
        let is_match = match tokens.get(at) {
            Some(Token::Any) => {
                at += 1;
                retry = Some((at, rest));
                continue;
            }
            Some(Token::One) => true,
            Some(Token::Letter(wanted)) => *wanted == letter,
            Some(Token::Class(class)) => class.holds(letter),
            None => false,
        };
        if is_match {
            at += 1;
            rest = without_first(rest);
        } else if let Some((token, tried)) = retry {
            rest = without_first(tried);
            at = token;
            retry = Some((token, rest));
        } else {
            return (Some(false), comparisons);
        }
    }
    let left = tokens.get(at..).unwrap_or_default();
    let is_match = left.iter().all(|token| matches!(token, Token::Any));
    (Some(is_match), comparisons)
}

fn without_first(text: &str) -> &str {
    let mut letters = text.chars();
    letters.next();
    letters.as_str()
}

impl Class {
    fn holds(&self, letter: char) -> bool {
        let mut ranges = self.members.iter();
        ranges.any(|(low, high)| (*low..=*high).contains(&letter)) != self.is_negated
    }
}

fn tokens(pattern: &str) -> Box<[Token]> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        tokens.push(match c {
            '*' if matches!(tokens.last(), Some(Token::Any)) => continue,
            '*' => Token::Any,
            '?' => Token::One,
            '[' => match class_end(&chars, at) {
                Some(end) => {
                    let members = chars.get(at..end).unwrap_or_default();
                    at = end + 1;
                    Token::Class(class(members))
                }
                None => Token::Letter('['),
            },
            other => Token::Letter(other),
        });
    }
    tokens.into()
}

/// End of the class that begins at `start` (behind its `[`): the index of its `]`. A `]` in the
/// first place is a member of the class.
fn class_end(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    if chars.get(at) == Some(&'!') {
        at += 1;
    }
    if chars.get(at) == Some(&']') {
        at += 1;
    }
    let rest = chars.get(at..)?;
    rest.iter()
        .position(|c| *c == ']')
        .map(|offset| at + offset)
}

/// A character of a class: literal, or the hyphen of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Literal(char),
    Hyphen,
}

/// A class. What is left of it decides whether it is negated: where a range runs backwards, and so
/// is empty, a `!` behind it may come to stand in front. The hyphen behind such a `!` is a member.
fn class(members: &[char]) -> Class {
    let mut chunks = chunks(members);
    for at in (1..chunks.len()).rev() {
        let (Some(low), Some(high)) = (
            chunks.get(at - 1).and_then(|chunk| chunk.last()).copied(),
            chunks.get(at).and_then(|chunk| chunk.first()).copied(),
        ) else {
            continue;
        };
        if low > high {
            let behind = chunks.remove(at);
            if let Some(chunk) = chunks.get_mut(at - 1) {
                chunk.pop();
                chunk.extend(behind.into_iter().skip(1));
            }
        }
    }
    let mut parts = Vec::new();
    for (number, chunk) in chunks.into_iter().enumerate() {
        if number > 0 {
            parts.push(Part::Hyphen);
        }
        parts.extend(chunk.into_iter().map(Part::Literal));
    }
    let is_negated = parts.first() == Some(&Part::Literal('!'));
    Class {
        is_negated,
        members: ranges(parts.get(usize::from(is_negated)..).unwrap_or_default()),
    }
}

/// The members that the parts of a class make; a hyphen at either end is one.
fn ranges(parts: &[Part]) -> Vec<(char, char)> {
    let letter = |part: &Part| match part {
        Part::Literal(letter) => *letter,
        Part::Hyphen => '-',
    };
    let mut ranges = Vec::new();
    let mut rest = parts;
    loop {
        rest = match rest {
            [low, Part::Hyphen, high, behind @ ..] => {
                ranges.push((letter(low), letter(high)));
                behind
            }
            [one, behind @ ..] => {
                ranges.push((letter(one), letter(one)));
                behind
            }
            [] => return ranges,
        };
    }
}

/// The members of a class in pieces, between which its ranges are: a hyphen joins what is around it,
/// unless it is the first or last member or behind the end of another range.
fn chunks(members: &[char]) -> Vec<Vec<char>> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut from = if members.first() == Some(&'!') { 2 } else { 1 };
    let hyphen = |from: usize| {
        let rest = members.get(from..).unwrap_or_default();
        let found = rest.iter().position(|c| *c == '-');
        found.map(|offset| from + offset)
    };
    let part = |range: std::ops::Range<usize>| members.get(range).unwrap_or_default().to_vec();
    while let Some(at) = hyphen(from) {
        chunks.push(part(start..at));
        (start, from) = (at + 1, at + 3);
    }
    match (part(start..members.len()), chunks.last_mut()) {
        (rest, Some(last)) if rest.is_empty() => last.push('-'),
        (rest, _) => chunks.push(rest),
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comparisons_beyond_bound_leave_match_unknown() {
        let pattern = format!("*{}[b]", "a".repeat(5_000));
        let (is_match, steps) = Glob::new(&pattern).matches_counting(&"a".repeat(16_000));
        assert_eq!(is_match, None);
        assert!(steps > MAX_COMPARISONS / COMPARISONS_OF_STEP);
    }

    proptest! {
        #[test]
        fn escaped_text_is_matched_alone(text in "[*?a!\\[\\]]{0,8}", other in "[*?a!\\[\\]]{0,8}") {
            let matches = Glob::new(&escaped(&text)).matches(&other);
            prop_assert_eq!(matches, text == other);
        }

        #[test]
        fn stars_match_as_tokens_do(pattern in "[ab*ü]{0,8}", text in "[abü]{0,12}") {
            let by_tokens = matches_tokens(&tokens(&pattern), &text).0;
            prop_assert_eq!(Some(Glob::new(&pattern).matches(&text)), by_tokens);
        }

        #[test]
        fn text_without_wildcards_matches_itself(text in "[^*?\\[]{0,40}") {
            let glob = Glob::new(&text);
            prop_assert!(glob.matches(&text));
            prop_assert_eq!(glob.literal(), Some(text.as_str()));
        }
    }
}

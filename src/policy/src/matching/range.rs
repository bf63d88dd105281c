//! Range expressions: `node[01-10].example.com`, `web1..5,-web3`, `{db,app}1..4`.
//!
//! Stock asks a range server through `seco.range`, which no release of Salt installs, so in stock
//! such a target is an error nearly everywhere. What can be said without a server is understood
//! here: names, sequences, braces, parentheses and the set operators. Whatever needs a server
//! (clusters such as `%web`, groups such as `@dc1`, functions) is an error that says so.

use std::collections::HashSet;

/// The most names that one expression may stand for.
const MAX_NAMES: usize = 100_000;

/// How many bytes the names may take that are made on the way, each with [`NAME`].
const MAX_BYTES: usize = 64 << 20;

/// Bytes that a name takes beside its text.
const NAME: usize = 24;

/// The most digits of a number.
const MAX_DIGITS: usize = 64;

/// The deepest nesting of braces and parentheses.
const MAX_DEPTH: usize = 16;

/// Why a range expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Only a range server knows what this means.
    #[error("\"{0}\" can only be resolved by a range server, which this master does not ask")]
    NeedsServer(String),
    /// The expression does not parse.
    #[error("\"{0}\" is not a range expression")]
    Syntax(String),
    /// It stands for more names than are allowed.
    #[error("a range expression may stand for at most 100000 names")]
    TooMany,
    /// Its names are too long, or too many on the way.
    #[error("a range expression may take at most 64 MiB of names")]
    TooLarge,
}

/// How many bytes of names may still be made.
struct Room(usize);

impl Room {
    fn take(&mut self, names: usize, bytes: usize) -> Result<(), RangeError> {
        let wanted = names.saturating_mul(NAME).saturating_add(bytes);
        self.0 = self.0.checked_sub(wanted).ok_or(RangeError::TooLarge)?;
        Ok(())
    }
}

/// The names that an expression stands for; an error where only a range server is to be asked.
pub(super) fn expand_if(expands: bool, text: &str) -> Result<Vec<String>, RangeError> {
    match expands {
        true => expand(text),
        false => Err(RangeError::NeedsServer(shown(text))),
    }
}

/// The names that an expression stands for, in its order, each once.
fn expand(text: &str) -> Result<Vec<String>, RangeError> {
    union(text, 0, &mut Room(MAX_BYTES))
}

/// `term`, `term,term`, `term,-term`, `term,&term`, from left to right.
fn union(text: &str, depth: usize, room: &mut Room) -> Result<Vec<String>, RangeError> {
    if depth > MAX_DEPTH {
        return Err(syntax(text));
    }
    let mut names: Vec<String> = Vec::new();
    for (at, (is_intersection, term)) in terms(text)?.into_iter().enumerate() {
        let (is_difference, term) = match term.strip_prefix('-') {
            Some(term) => (true, term.trim_start()),
            None => (false, term),
        };
        if term.is_empty() || (at == 0 && (is_intersection || is_difference)) {
            return Err(syntax(text));
        }
        let other = expand_term(term, depth, room)?;
        if is_intersection || is_difference {
            let other: HashSet<String> = other.into_iter().collect();
            names.retain(|name| other.contains(name) == is_intersection);
        } else {
            names.extend(other);
        }
        if names.len() > MAX_NAMES {
            return Err(RangeError::TooMany);
        }
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// Splits at commas and ampersands outside brackets; the flag marks terms after an ampersand.
fn terms(text: &str) -> Result<Vec<(bool, &str)>, RangeError> {
    let mut terms = Vec::new();
    let mut open: Vec<char> = Vec::new();
    let (mut start, mut is_intersection, mut is_after_comma) = (0, false, true);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' | '[' => open.push(c),
            ')' | '}' | ']' => {
                let opening = open.pop();
                if !matches!(
                    (opening, c),
                    (Some('('), ')') | (Some('{'), '}') | (Some('['), ']')
                ) {
                    return Err(syntax(text));
                }
            }
            ',' | '&' if open.is_empty() => {
                let term = text.get(start..at).unwrap_or_default().trim();
                // In `a,&b` nothing stands between the comma and the ampersand.
                if !(c == '&' && is_after_comma && term.is_empty()) {
                    terms.push((is_intersection, term));
                }
                is_intersection = c == '&';
                is_after_comma = c == ',';
                start = at + 1;
                continue;
            }
            _ => {}
        }
        is_after_comma = is_after_comma && c.is_whitespace();
    }
    if !open.is_empty() {
        return Err(syntax(text));
    }
    let last = text.get(start..).unwrap_or_default().trim();
    terms.push((is_intersection, last));
    Ok(terms)
}

fn expand_term(term: &str, depth: usize, room: &mut Room) -> Result<Vec<String>, RangeError> {
    if let Some(inner) = term.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
        return union(inner, depth + 1, room);
    }
    if term.starts_with(['%', '@', '*', '^', '?', '!', '$', '/', '"', '\'']) || term.contains('(') {
        return Err(RangeError::NeedsServer(shown(term)));
    }
    let is_part = |c: char| c.is_alphanumeric() || "-_.:{}[],".contains(c);
    if !term.chars().all(is_part) {
        return Err(syntax(term));
    }
    let mut names = vec![String::new()];
    let mut rest = term;
    while let Some(at) = rest.find(['{', '[']) {
        let (before, bracket) = rest.split_at(at);
        let end = closing(bracket).ok_or_else(|| syntax(term))?;
        let inner = bracket.get(1..end).unwrap_or_default();
        let choices = match bracket.starts_with('{') {
            true => union(inner, depth + 1, room)?,
            false => numbers(inner, room)?.ok_or_else(|| syntax(term))?,
        };
        names = product(&names, before, &choices, room)?;
        rest = bracket.get(end + 1..).unwrap_or_default();
    }
    names = product(&names, rest, &[String::new()], room)?;
    let mut expanded = Vec::new();
    for name in names {
        sequence(&name, &mut expanded, room)?;
    }
    Ok(expanded)
}

/// Position at which the bracket that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

fn product(
    names: &[String],
    middle: &str,
    choices: &[String],
    room: &mut Room,
) -> Result<Vec<String>, RangeError> {
    let count = names.len().saturating_mul(choices.len());
    if count > MAX_NAMES {
        return Err(RangeError::TooMany);
    }
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let starts = bytes(names) + middle.len() * names.len();
    let ends = bytes(choices).saturating_mul(names.len());
    room.take(
        count,
        starts.saturating_mul(choices.len()).saturating_add(ends),
    )?;
    let with = |name: &String| {
        let start = format!("{name}{middle}");
        choices
            .iter()
            .map(move |choice| format!("{start}{choice}"))
            .collect::<Vec<_>>()
    };
    Ok(names.iter().flat_map(with).collect())
}

/// The inside of square brackets: `01-10`, `1,3,7-9`.
fn numbers(text: &str, room: &mut Room) -> Result<Option<Vec<String>>, RangeError> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let Some(numbers) = Numbers::read(first, last) else {
            return Ok(None);
        };
        numbers.write("", "", &mut all, room)?;
    }
    Ok(Some(all))
}

/// A name with `..` in it, as in `node01..10.example.com` or `node1..node5`, or without.
fn sequence(name: &str, into: &mut Vec<String>, room: &mut Room) -> Result<(), RangeError> {
    let Some((start, end)) = name.split_once("..") else {
        into.push(name.to_owned());
        return Ok(());
    };
    let prefix = start.trim_end_matches(|c: char| c.is_ascii_digit());
    let first = start.get(prefix.len()..).unwrap_or_default();
    let end = end.strip_prefix(prefix).unwrap_or(end);
    let digits = end.bytes().take_while(u8::is_ascii_digit).count();
    let (last, suffix) = end.split_at(digits);
    if !suffix.is_empty() && !suffix.starts_with('.') {
        return Err(syntax(name));
    }
    // `100..5` counts to 105.
    let missing = first.len().saturating_sub(last.len());
    let last = format!("{}{last}", first.get(..missing).unwrap_or_default());
    let numbers = Numbers::read(first, &last).ok_or_else(|| syntax(name))?;
    numbers.write(prefix, suffix, into, room)
}

/// Numbers that follow each other, with as many digits as the first has.
struct Numbers {
    low: u64,
    high: u64,
    width: usize,
}

impl Numbers {
    fn read(first: &str, last: &str) -> Option<Self> {
        let number = |text: &str| -> Option<u64> {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let is_short = text.len() <= MAX_DIGITS;
            (is_number && is_short).then(|| text.parse().ok()).flatten()
        };
        let (low, high, width) = (number(first)?, number(last)?, first.len());
        (low <= high).then_some(Self { low, high, width })
    }

    fn write(
        &self,
        prefix: &str,
        suffix: &str,
        into: &mut Vec<String>,
        room: &mut Room,
    ) -> Result<(), RangeError> {
        let Self { low, high, width } = *self;
        let count = usize::try_from(high - low).map_or(usize::MAX, |last| last.saturating_add(1));
        if into.len().saturating_add(count) > MAX_NAMES {
            return Err(RangeError::TooMany);
        }
        let longest = prefix.len() + width.max(u64::MAX.ilog10() as usize + 1) + suffix.len();
        room.take(count, longest.saturating_mul(count))?;
        let names = low..=high;
        into.extend(names.map(|number| format!("{prefix}{number:0width$}{suffix}")));
        Ok(())
    }
}

fn syntax(text: &str) -> RangeError {
    RangeError::Syntax(shown(text))
}

fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_expressions_expand() {
        let table = [
            ("web1", "web1"),
            ("web1,web2,web1", "web1 web2"),
            (
                "node[08-10].example.com",
                "node08.example.com node09.example.com node10.example.com",
            ),
            ("n[1,3-4]", "n1 n3 n4"),
            ("node08..10.a.b", "node08.a.b node09.a.b node10.a.b"),
            ("web1..web3", "web1 web2 web3"),
            ("web100..2", "web100 web101 web102"),
            ("{web,db}1..2.x", "web1.x web2.x db1.x db2.x"),
            ("web1..4,-web2..3", "web1 web4"),
            ("web1..4,&web3..6", "web3 web4"),
            ("web1..4 & web3..6", "web3 web4"),
            ("web1..4, & web3..6", "web3 web4"),
            ("web-1, db-1", "web-1 db-1"),
            ("(a,b),-(b,c)", "a"),
            ("a,-a", ""),
        ];
        for (text, names) in table {
            assert_eq!(
                expand(text).map(|names| names.join(" ")),
                Ok(names.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn range_expression_at_a_bound_is_expanded_and_beyond_it_is_not() {
        let names = |text: &str| expand(text).map(|names| names.len());
        for (text, count) in [
            ("a1..100000", 100_000),
            ("a1..50000,b1..50000", 100_000),
            ("[0-99]x[0-999]", 100_000),
        ] {
            assert_eq!(names(text), Ok(count), "{text}");
        }
        for text in ["a1..100001", "a1..50000,b1..50001", "[0-99]x[0-1000]"] {
            assert_eq!(names(text), Err(RangeError::TooMany), "{text}");
        }
        for (open, close) in [("(", ")"), ("{", "}")] {
            let nested = |depth| names(&(open.repeat(depth) + "a" + &close.repeat(depth)));
            assert_eq!(nested(16), Ok(1), "{open}");
            assert!(nested(17).is_err(), "{open}");
        }
        for form in ["x[Z1]", "xZ1..2", "xZ1..xZ1"] {
            let digits = |count: usize| names(&form.replace('Z', &"0".repeat(count - 1)));
            assert!(digits(64).is_ok(), "{form}");
            assert!(matches!(digits(65), Err(RangeError::Syntax(_))), "{form}");
        }
    }

    #[test]
    fn names_take_their_bytes_of_the_room_and_24_each() {
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        let (starts, ends) = (texts(&["a", "bcd"]), texts(&["x", "yz", ""]));
        let product = |room| product(&starts, "mid", &ends, &mut Room(room));
        let bytes = 3 * (4 + 6) + 2 * 3;
        assert_eq!(product(6 * 24 + bytes).unwrap().concat().len(), bytes);
        assert_eq!(product(6 * 24 + bytes - 1), Err(RangeError::TooLarge));
        // A number counts as the longest one.
        let numbers = Numbers {
            low: 1,
            high: 3,
            width: 2,
        };
        let write = |room| numbers.write("abc", "d", &mut Vec::new(), &mut Room(room));
        let bytes = 3 * (3 + 20 + 1);
        assert_eq!(write(3 * 24 + bytes), Ok(()));
        assert_eq!(write(3 * 24 + bytes - 1), Err(RangeError::TooLarge));
    }

    #[test]
    fn refused_range_expression_is_named_in_its_beginning() {
        let long = "a b".repeat(100);
        let shown = long.chars().take(200).collect();
        assert_eq!(expand(&long), Err(RangeError::Syntax(shown)));
        let kept = expand_if(false, "web1");
        assert_eq!(kept, Err(RangeError::NeedsServer("web1".to_owned())));
    }

    #[test]
    fn unsupported_range_expression_is_an_error() {
        for text in ["%web", "a,%web:key", "@dc1", "*a", "/web/", "clusters(a)"] {
            assert!(
                matches!(expand(text), Err(RangeError::NeedsServer(_))),
                "{text}"
            );
        }
        for text in [
            "", "a,", "-a", "&a", "a[1", "a]1", "a[x]", "a[3-1]", "a b", "{a", "a1..b2", "a,,b",
            "a&&b", "a& &b", "a&", "(a]", "{a)", "[1}",
        ] {
            assert!(matches!(expand(text), Err(RangeError::Syntax(_))), "{text}");
        }
        for text in ["a0..9999999", "[0-999][0-999]", "a[0-18446744073709551615]"] {
            assert_eq!(expand(text), Err(RangeError::TooMany), "{text}");
        }
        // Names that are long, made often, or with a number of many digits.
        let long = "x".repeat(5000) + "[1-99999]";
        assert_eq!(expand(&long), Err(RangeError::TooLarge));
        let often = "a1..99999,".repeat(100) + "&a1";
        assert!(matches!(
            expand(&often),
            Err(RangeError::TooMany | RangeError::TooLarge)
        ));
        let often = format!("a1{}", ",-b1..99999".repeat(100));
        assert_eq!(expand(&often), Err(RangeError::TooLarge));
        for wide in ["x[Z1-3]", "xZ1..Z3", "xZ1..3"] {
            let wide = wide.replace('Z', &"0".repeat(70_000));
            assert!(matches!(expand(&wide), Err(RangeError::Syntax(_))));
        }
        assert!(expand(&"(".repeat(5000)).is_err());
        assert!(expand(&("{".repeat(40) + &"}".repeat(40))).is_err());
    }
}

//! Python's wildcards as Python's regular expressions, just as `fnmatch.translate` writes them: what
//! they mean is then decided in one place.

/// The regular expression of a wildcard pattern, which is to match the whole text. A `[` that is
/// never closed stands for itself.
pub(super) fn to_python_regex(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut regex = String::from("(?s)");
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match class_end(&chars, at) {
                Some(end) => {
                    push_class(&mut regex, chars.get(at..end).unwrap_or_default());
                    at = end + 1;
                }
                None => regex.push_str(r"\["),
            },
            other => {
                if other.is_ascii() && !other.is_ascii_alphanumeric() {
                    regex.push('\\');
                }
                regex.push(other);
            }
        }
    }
    regex
}

/// Where the class that begins at `start` (behind its `[`) ends: the index of its `]`. A `]` in
/// the first place is a member of the class.
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

/// A class. What is left of it decides whether it is negated: where a range runs backwards, and so
/// is empty, a `!` behind it may come to stand in front.
fn push_class(regex: &mut String, members: &[char]) {
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
    let mut body = String::new();
    for (number, chunk) in chunks.iter().enumerate() {
        if number > 0 {
            body.push('-');
        }
        for c in chunk {
            if matches!(c, '\\' | '-' | '&' | '~' | '|') {
                body.push('\\');
            }
            body.push(*c);
        }
    }
    match (body.as_str(), body.strip_prefix('!')) {
        ("", _) => regex.push_str("(?!)"),
        ("!", _) => regex.push('.'),
        (_, Some(rest)) => regex.extend(["[^", rest, "]"]),
        (body, None) => {
            let is_special = body.starts_with(['^', '[']);
            regex.extend([if is_special { r"[\" } else { "[" }, body, "]"]);
        }
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

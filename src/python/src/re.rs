//! Python's regular expressions in the syntax of this engine.
//!
//! An expression is read as CPython's `re` reads it (`Lib/re/_parser.py`) and written anew, so that
//! nothing of it means one thing here and another on a minion. What Python takes for an error is
//! one, and so is what is not surely the same in both engines: `\N{…}`, conditional and atomic
//! groups, possessive repeats, flags behind the beginning, references without regard to case. `tests/differential/patterns.rs`
//! compares the two.
//!
//! Longer than most files because the grammar is one recursion, which is read in one piece.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::expression::ExpressionFlags;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 100;

/// The most repetitions that Python counts (`MAXREPEAT`).
const MAX_REPEAT: u64 = u32::MAX as u64;

/// Python's `\w` (`str.isalnum`, and the underscore), inside a class; the engine's own has
/// combining marks and lacks numbers such as `²`.
const WORD: &str = r"\p{L}\p{N}_";
const ASCII_WORD: &str = "0-9A-Za-z_";

/// Python's `\s` (`str.isspace`), inside a class; the engine's own lacks the separators.
const SPACE: &str = r"\s\x1c-\x1f";
const ASCII_SPACE: &str = r"\t-\r\x20";

/// Letters that Python takes for the same one without regard to case, and the engine for three.
const LETTERS_I: [char; 4] = ['i', 'I', 'ı', 'İ'];

/// Why an expression is refused.
type Refused = &'static str;

/// Text that follows the expression where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing, and how far the match reaches does not matter.
    Open,
    /// The end of the text; or how far the match reaches matters.
    End,
}

/// An expression in the syntax of this engine.
#[derive(Debug)]
pub(crate) struct Translation {
    pub(crate) regex: String,
    /// The numbers of the groups with a name: they have none in `regex`.
    pub(crate) names: HashMap<String, usize>,
}

/// The expression in the syntax of this engine.
///
/// # Errors
/// When Python knows no such expression, or may read it otherwise.
pub(crate) fn translate(text: &str, tail: Tail, flags: Flags) -> Result<Translation, Refused> {
    let mut parser = Parser {
        chars: text.chars().collect(),
        at: 0,
        out: String::with_capacity(text.len() + 16),
        groups: Vec::new(),
        names: HashMap::new(),
        before_look_behind: None,
        tail,
    };
    let mut flags = flags;
    parser.global_flags(&mut flags)?;
    if flags.ignores_case {
        parser.out.push_str("(?i)");
    }
    parser.alternatives(flags, 0)?;
    match parser.peek() {
        None => Ok(Translation {
            regex: parser.out,
            names: parser.names,
        }),
        Some(_) => Err("unbalanced parenthesis"),
    }
}

/// The flags of `re.compile` and of groups.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flags {
    /// `i`.
    ignores_case: bool,
    /// `m`.
    is_multiline: bool,
    /// `s`.
    dot_is_all: bool,
    /// `x`.
    is_verbose: bool,
    /// `a`.
    is_ascii: bool,
}

impl From<ExpressionFlags> for Flags {
    fn from(flags: ExpressionFlags) -> Self {
        Self {
            ignores_case: flags.ignores_case,
            is_multiline: flags.is_multiline,
            ..Self::default()
        }
    }
}

impl Flags {
    fn set(&mut self, letter: char, value: bool) -> Result<(), Refused> {
        match letter {
            'i' => self.ignores_case = value,
            'm' => self.is_multiline = value,
            's' => self.dot_is_all = value,
            'x' => self.is_verbose = value,
            'a' if value => self.is_ascii = true,
            'u' if value => self.is_ascii = false,
            _ => return Err("unknown flag"),
        }
        match self.is_ascii && self.ignores_case {
            true => Err("the flags \"a\" and \"i\" together are not supported"),
            false => Ok(()),
        }
    }

    fn word(self) -> &'static str {
        if self.is_ascii { ASCII_WORD } else { WORD }
    }
}

/// The lengths of what an item matches, in characters.
#[derive(Clone, Copy, Default)]
struct Width {
    least: u64,
    most: u64,
}

impl Width {
    const ONE: Self = Self { least: 1, most: 1 };
    const NONE: Self = Self { least: 0, most: 0 };

    fn then(self, next: Self) -> Self {
        Self {
            least: self.least.saturating_add(next.least),
            most: self.most.saturating_add(next.most),
        }
    }

    fn times(self, (least, most): (u64, u64)) -> Self {
        Self {
            least: self.least.saturating_mul(least),
            most: self.most.saturating_mul(most),
        }
    }
}

/// The item before a repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A place such as `^`, which cannot be repeated.
    Place,
    /// Something that is repeated already.
    Repeat,
    /// Anything else.
    Other,
}

struct Item {
    kind: Kind,
    width: Width,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    out: String,
    /// The width of each group; `None` while it is open.
    groups: Vec<Option<Width>>,
    names: HashMap<String, usize>,
    /// In a look-behind, how many groups there were before the outermost one: it may refer to those.
    before_look_behind: Option<usize>,
    tail: Tail,
}

/// One member of a class of characters.
enum Member {
    Range(char, char),
    Set(&'static str),
}

/// Escape behind a backslash.
enum Escape {
    Literal(char),
    Set(&'static str),
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let count = wanted.chars().count();
        let is_there = rest.len() >= count && wanted.chars().zip(rest).all(|(a, b)| a == *b);
        if is_there {
            self.at += count;
        }
        is_there
    }

    fn comment(&mut self) -> Result<(), Refused> {
        while let Some(next) = self.next() {
            if next == ')' {
                return Ok(());
            }
        }
        Err("a comment is not closed")
    }

    /// Flags for all of the expression, at its beginning.
    fn global_flags(&mut self, flags: &mut Flags) -> Result<(), Refused> {
        loop {
            let start = self.at;
            if self.takes("(?#") {
                self.comment()?;
                continue;
            }
            if flags.is_verbose && self.skip_verbose() {
                continue;
            }
            let is_flag = |c: char| "aiLmsux".contains(c);
            if !(self.takes("(?") && self.peek().is_some_and(is_flag)) {
                self.at = start;
                return Ok(());
            }
            let mut those = *flags;
            while let Some(letter) = self.peek().filter(|c| is_flag(*c)) {
                self.at += 1;
                those.set(letter, true)?;
            }
            if self.next() != Some(')') {
                // Flags of a group, or an error: read again there.
                self.at = start;
                return Ok(());
            }
            *flags = those;
        }
    }

    fn skip_verbose(&mut self) -> bool {
        match self.peek() {
            Some(' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}') => self.at += 1,
            Some('#') => while self.next().is_some_and(|c| c != '\n') {},
            _ => return false,
        }
        true
    }

    fn alternatives(&mut self, flags: Flags, depth: usize) -> Result<Width, Refused> {
        if depth > MAX_DEPTH {
            return Err("groups are nested too deeply");
        }
        let mut width: Option<Width> = None;
        loop {
            let branch = self.sequence(flags, depth)?;
            width = Some(width.map_or(branch, |width| Width {
                least: width.least.min(branch.least),
                most: width.most.max(branch.most),
            }));
            if !self.takes("|") {
                return Ok(width.unwrap_or_default());
            }
            self.out.push('|');
        }
    }

    fn sequence(&mut self, flags: Flags, depth: usize) -> Result<Width, Refused> {
        let mut width = Width::NONE;
        let mut last: Option<Item> = None;
        loop {
            if flags.is_verbose && self.skip_verbose() {
                continue;
            }
            if self.takes("(?#") {
                self.comment()?;
                continue;
            }
            let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) else {
                break;
            };
            if matches!(c, '*' | '+' | '?' | '{')
                && let Some(times) = self.repeat()?
            {
                let item = last.take().filter(|item| item.kind != Kind::Place);
                let item = item.ok_or("nothing to repeat")?;
                let repeated = self.repeated(&item, times)?;
                width = width.then(repeated.width);
                last = Some(repeated);
                continue;
            }
            if let Some(item) = last.take().filter(|item| item.kind != Kind::Repeat) {
                width = width.then(item.width);
            }
            let (kind, of_item) = self.item(flags, depth)?;
            last = Some(Item {
                kind,
                width: of_item,
            });
        }
        Ok(match last {
            Some(item) if item.kind != Kind::Repeat => width.then(item.width),
            _ => width,
        })
    }

    /// How often the item in front is to be repeated; nothing where a `{` stands for itself.
    fn repeat(&mut self) -> Result<Option<(u64, u64)>, Refused> {
        let start = self.at;
        let times = match self.next() {
            Some('*') => (0, MAX_REPEAT),
            Some('+') => (1, MAX_REPEAT),
            Some('?') => (0, 1),
            _ => {
                let has_none = self.peek() == Some('}');
                let least = self.number()?;
                let most = match self.takes(",") {
                    true => self.number()?,
                    false => least,
                };
                if has_none || !self.takes("}") {
                    self.at = start;
                    return Ok(None);
                }
                (least.unwrap_or(0), most.unwrap_or(MAX_REPEAT))
            }
        };
        match times.0 <= times.1 {
            true => Ok(Some(times)),
            false => Err("a repeat has its bounds the wrong way round"),
        }
    }

    fn number(&mut self) -> Result<Option<u64>, Refused> {
        let mut number: Option<u64> = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let more = number.unwrap_or(0).saturating_mul(10) + u64::from(digit);
            if more >= MAX_REPEAT {
                return Err("a repeat is too large");
            }
            number = Some(more);
        }
        Ok(number)
    }

    /// Writes the repeat behind the item that was written last.
    fn repeated(&mut self, item: &Item, (least, most): (u64, u64)) -> Result<Item, Refused> {
        if item.kind == Kind::Repeat {
            return Err("a repeat is repeated");
        }
        let _ = match (least, most) {
            (0, MAX_REPEAT) => write!(self.out, "*"),
            (1, MAX_REPEAT) => write!(self.out, "+"),
            (0, 1) => write!(self.out, "?"),
            (least, MAX_REPEAT) => write!(self.out, "{{{least},}}"),
            (least, most) => write!(self.out, "{{{least},{most}}}"),
        };
        if self.takes("+") {
            return Err("possessive repeats are not supported");
        }
        if self.takes("?") {
            self.out.push('?');
        }
        Ok(Item {
            kind: Kind::Repeat,
            width: item.width.times((least, most)),
        })
    }

    fn item(&mut self, flags: Flags, depth: usize) -> Result<(Kind, Width), Refused> {
        let is_outermost = depth == 0;
        match self.next() {
            Some('.') => {
                let dot = if flags.dot_is_all { "(?s:.)" } else { r"[^\n]" };
                self.out.push_str(dot);
            }
            Some('^') => {
                let start = if flags.is_multiline { "(?m:^)" } else { r"\A" };
                self.out.push_str(start);
                return Ok((Kind::Place, Width::NONE));
            }
            Some('$') => {
                // At the very end nothing can follow the line break, so it may be consumed: that
                // spares the engine a look-ahead.
                let is_last = is_outermost && matches!(self.peek(), None | Some('|'));
                self.out
                    .push_str(match (flags.is_multiline, is_last, self.tail) {
                        (true, _, _) => "(?m:$)",
                        (false, true, Tail::Open) => r"(?:\n?\z)",
                        (false, _, _) => r"(?=\n?\z)",
                    });
                return Ok((Kind::Place, Width::NONE));
            }
            Some('[') => self.class(flags)?,
            Some('(') => return Ok((Kind::Other, self.group(flags, depth)?)),
            Some('\\') => return self.escape(flags),
            Some(c) => self.literal(c, flags),
            None => {}
        }
        Ok((Kind::Other, Width::ONE))
    }

    fn literal(&mut self, c: char, flags: Flags) {
        if flags.ignores_case && LETTERS_I.contains(&c) {
            self.out.extend(['[']);
            self.out.extend(LETTERS_I);
            self.out.push(']');
        } else if c.is_alphanumeric() || "_-:/@,=;!\"'%<> ".contains(c) {
            self.out.push(c);
        } else {
            push_hex(&mut self.out, c);
        }
    }

    /// Escape behind a backslash, outside of a class.
    fn escape(&mut self, flags: Flags) -> Result<(Kind, Width), Refused> {
        let word = flags.word();
        let place = match self.peek().ok_or("a backslash stands at the end")? {
            'A' => r"\A".to_owned(),
            'Z' => r"\z".to_owned(),
            'b' => format!("(?:(?<=[{word}])(?![{word}])|(?<![{word}])(?=[{word}]))"),
            'B' => format!(r"(?:(?!\A\z)(?:(?<=[{word}])(?=[{word}])|(?<![{word}])(?![{word}])))"),
            c if c.is_ascii_digit() && c != '0' => return self.number_escape(flags),
            _ => {
                match self.common_escape(flags)? {
                    Escape::Literal(c) => self.literal(c, flags),
                    Escape::Set(set) => {
                        let _ = write!(self.out, "[{set}]");
                    }
                }
                return Ok((Kind::Other, Width::ONE));
            }
        };
        self.at += 1;
        self.out.push_str(&place);
        Ok((Kind::Place, Width::NONE))
    }

    /// `\1` to `\99` refer to a group, unless three octal digits make a character.
    fn number_escape(&mut self, flags: Flags) -> Result<(Kind, Width), Refused> {
        let digit = |parser: &Self, offset: usize, radix: u32| {
            let c = parser.chars.get(parser.at + offset).copied();
            c.filter(char::is_ascii).and_then(|c| c.to_digit(radix))
        };
        let octal = [0, 1, 2].map(|offset| digit(self, offset, 8));
        if let [Some(a), Some(b), Some(c)] = octal {
            self.at += 3;
            let code = a * 64 + b * 8 + c;
            let c = char::from_u32(code).filter(|_| code <= 0o377);
            self.literal(c.ok_or("an octal escape is too large")?, flags);
            return Ok((Kind::Other, Width::ONE));
        }
        let mut number = 0;
        for offset in 0..2 {
            let Some(digit) = digit(self, offset, 10) else {
                break;
            };
            number = number * 10 + digit as usize;
        }
        self.at += if number > 9 { 2 } else { 1 };
        self.reference(number, flags)
    }

    fn reference(&mut self, number: usize, flags: Flags) -> Result<(Kind, Width), Refused> {
        let group = number.checked_sub(1).and_then(|at| self.groups.get(at));
        let group = group.ok_or("a reference to no group")?;
        let width = group.ok_or("a reference to an open group")?;
        if self
            .before_look_behind
            .is_some_and(|before| number > before)
        {
            return Err("a reference to a group of the same look-behind");
        }
        if flags.ignores_case {
            return Err("a reference without regard to case is not supported");
        }
        // In brackets, because a digit may follow.
        let _ = write!(self.out, r"(?:\{number})");
        Ok((Kind::Other, width))
    }

    /// Escape behind a backslash, in and outside of classes.
    fn common_escape(&mut self, flags: Flags) -> Result<Escape, Refused> {
        let c = self.next().ok_or("a backslash stands at the end")?;
        let set = match (c, flags.is_ascii) {
            ('d', false) => r"\d",
            ('d', true) => "0-9",
            ('D', false) => r"\D",
            ('D', true) => "[^0-9]",
            ('w', false) => WORD,
            ('w', true) => ASCII_WORD,
            ('W', false) => r"[^\p{L}\p{N}_]",
            ('W', true) => "[^0-9A-Za-z_]",
            ('s', false) => SPACE,
            ('s', true) => ASCII_SPACE,
            ('S', false) => r"[^\s\x1c-\x1f]",
            ('S', true) => r"[^\t-\r\x20]",
            _ => "",
        };
        if !set.is_empty() {
            return Ok(Escape::Set(set));
        }
        let literal = match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => self.hex(2)?,
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            '0' => self.octal(0)?,
            'N' => return Err(r"\N is not supported"),
            c if c.is_ascii_alphanumeric() => return Err("an escape of no meaning"),
            c => c,
        };
        Ok(Escape::Literal(literal))
    }

    fn hex(&mut self, digits: usize) -> Result<char, Refused> {
        let mut code: u32 = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or("an escape is incomplete")?;
            code = code.checked_mul(16).ok_or("no character")? + digit;
        }
        char::from_u32(code).ok_or("an escape of no character")
    }

    /// Up to two more octal digits behind the first.
    fn octal(&mut self, first: u32) -> Result<char, Refused> {
        let mut code = first;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            self.at += 1;
            code = code * 8 + digit;
        }
        let c = char::from_u32(code).filter(|_| code <= 0o377);
        c.ok_or("an octal escape is too large")
    }

    /// A class of characters, behind its `[`.
    fn class(&mut self, flags: Flags) -> Result<(), Refused> {
        const OPEN: Refused = "a class of characters is not closed";
        let is_negated = self.takes("^");
        let mut members = Vec::new();
        loop {
            let c = self.next().ok_or(OPEN)?;
            if c == ']' && !members.is_empty() {
                break;
            }
            let low = self.member(c, flags)?;
            if !self.takes("-") {
                members.push(match low {
                    Escape::Literal(c) => Member::Range(c, c),
                    Escape::Set(set) => Member::Set(set),
                });
                continue;
            }
            let c = self.next().ok_or(OPEN)?;
            if c == ']' {
                members.push(match low {
                    Escape::Literal(c) => Member::Range(c, c),
                    Escape::Set(set) => Member::Set(set),
                });
                members.push(Member::Range('-', '-'));
                break;
            }
            match (low, self.member(c, flags)?) {
                (Escape::Literal(low), Escape::Literal(high)) if low <= high => {
                    members.push(Member::Range(low, high));
                }
                _ => return Err("a range of characters is wrong"),
            }
        }
        self.push_class(is_negated, &members, flags);
        Ok(())
    }

    /// A character of a class, of which the first was read.
    fn member(&mut self, c: char, flags: Flags) -> Result<Escape, Refused> {
        if c != '\\' {
            return Ok(Escape::Literal(c));
        }
        match self.peek() {
            Some('b') => {
                self.at += 1;
                Ok(Escape::Literal('\u{8}'))
            }
            Some(c @ '1'..='7') => {
                self.at += 1;
                self.octal(c.to_digit(8).unwrap_or_default())
                    .map(Escape::Literal)
            }
            _ => self.common_escape(flags),
        }
    }

    fn push_class(&mut self, is_negated: bool, members: &[Member], flags: Flags) {
        self.out.push_str(if is_negated { "[^" } else { "[" });
        let mut has_letter_i = false;
        for member in members {
            match member {
                Member::Set(set) => self.out.push_str(set),
                Member::Range(low, high) => {
                    has_letter_i |= LETTERS_I.iter().any(|c| (low..=high).contains(&c));
                    push_member(&mut self.out, *low);
                    if low != high {
                        self.out.push('-');
                        push_member(&mut self.out, *high);
                    }
                }
            }
        }
        if has_letter_i && flags.ignores_case {
            self.out.extend(LETTERS_I);
        }
        self.out.push(']');
    }

    /// A group, behind its `(`.
    fn group(&mut self, flags: Flags, depth: usize) -> Result<Width, Refused> {
        if !self.takes("?") {
            return self.capture(None, flags, depth);
        }
        for (opening, looks_behind) in [("=", false), ("!", false), ("<=", true), ("<!", true)] {
            if self.takes(opening) {
                let _ = write!(self.out, "(?{opening}");
                let outer = self.before_look_behind;
                if looks_behind {
                    self.before_look_behind = outer.or(Some(self.groups.len()));
                }
                let width = self.alternatives(flags, depth + 1)?;
                self.before_look_behind = outer;
                self.close()?;
                return match looks_behind && width.least != width.most {
                    true => Err("a look-behind has no fixed width"),
                    false => Ok(Width::NONE),
                };
            }
        }
        if self.takes("P<") {
            let name = self.name('>')?;
            return self.capture(Some(name), flags, depth);
        }
        if self.takes("P=") {
            let name = self.name(')')?;
            let number = self.names.get(&name).copied();
            let number = number.ok_or("a reference to no group")?;
            return Ok(self.reference(number, flags)?.1);
        }
        let mut inner = flags;
        if !self.takes(":") {
            self.group_flags(&mut inner)?;
        }
        self.out
            .push_str(match (flags.ignores_case, inner.ignores_case) {
                (false, true) => "(?i:",
                (true, false) => "(?-i:",
                _ => "(?:",
            });
        let width = self.alternatives(inner, depth + 1)?;
        self.close()?;
        Ok(width)
    }

    fn close(&mut self) -> Result<(), Refused> {
        self.out.push(')');
        match self.takes(")") {
            true => Ok(()),
            false => Err("a group is not closed"),
        }
    }

    /// The flags of a group such as `(?i-s:…)`.
    fn group_flags(&mut self, flags: &mut Flags) -> Result<(), Refused> {
        let mut value = true;
        let mut count = 0;
        let mut set = Vec::new();
        loop {
            match self.next().ok_or("a group is not closed")? {
                ':' if count > 0 => return Ok(()),
                '-' if value => (value, count) = (false, 0),
                letter if letter.is_ascii_alphabetic() => {
                    if !value && set.contains(&letter) {
                        return Err("a flag is turned on and off");
                    }
                    set.push(letter);
                    flags.set(letter, value)?;
                    count += 1;
                }
                _ => return Err("an extension of groups is unknown or not supported"),
            }
        }
    }

    fn name(&mut self, end: char) -> Result<String, Refused> {
        let mut name = String::new();
        loop {
            let c = self.next().ok_or("the name of a group is not closed")?;
            let is_letter = c == '_' || c.is_ascii_alphabetic();
            match c {
                c if c == end && !name.is_empty() => return Ok(name),
                c if is_letter || (c.is_ascii_digit() && !name.is_empty()) => name.push(c),
                _ => return Err("the name of a group is not supported"),
            }
        }
    }

    fn capture(
        &mut self,
        name: Option<String>,
        flags: Flags,
        depth: usize,
    ) -> Result<Width, Refused> {
        let at = self.groups.len();
        self.groups.push(None);
        if let Some(name) = name
            && self.names.insert(name, at + 1).is_some()
        {
            return Err("two groups have the same name");
        }
        self.out.push('(');
        let width = self.alternatives(flags, depth + 1)?;
        self.close()?;
        if let Some(group) = self.groups.get_mut(at) {
            *group = Some(width);
        }
        Ok(width)
    }
}

fn push_hex(out: &mut String, c: char) {
    let _ = write!(out, r"\x{{{:x}}}", u32::from(c));
}

fn push_member(out: &mut String, c: char) {
    match c.is_alphanumeric() || c == '_' {
        true => out.push(c),
        false => push_hex(out, c),
    }
}

#[cfg(test)]
mod tests;

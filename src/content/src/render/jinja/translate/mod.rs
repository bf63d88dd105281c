//! Translates Jinja2, as Salt reads it, to the dialect of the engine that runs it.
//!
//! The engine (`minijinja`) has Jinja2's control flow, scopes and macros, but Rust's ideas of
//! values. So a template is parsed here, by Jinja2's grammar with Salt's extra tags, and written
//! again for the engine: control flow stays what it is, and every operation on a value becomes a
//! call of a helper (`helpers.rs`) that does what Python does. White space is decided here too;
//! the engine gets text that it prints as it is. Lines are kept, so that the engine's errors name
//! the lines of the original.
//!
//! Variables get a prefix. It keeps them apart from the engine's reserved names, and a template
//! that is imported without context gets a prefix of its own, so that it cannot see the
//! variables of the one that imports it.

mod expressions;
mod imports;
mod macros;
mod postfix;
mod statements;
mod targets;

use std::fmt::Write as _;

use super::lexer::{Placed, Token, tokens};
use super::options::Syntax;

/// Marks of the engine's dialect; control characters, so that no text can contain them.
pub(crate) const BLOCK: (&str, &str) = ("\u{1}\u{2}", "\u{3}\u{1}");
pub(crate) const PRINT: (&str, &str) = ("\u{1}\u{4}", "\u{5}\u{1}");
pub(crate) const COMMENT: (&str, &str) = ("\u{1}\u{6}", "\u{6}\u{1}");

/// How deep expressions and blocks may be nested in a template. The branches of one `if` count too,
/// because the engine nests each in the one before it.
const MAX_NESTING: usize = 100;
/// How many operators of one rank may follow each other: each makes a call around the ones before
/// it, which the engine nests, and whose text is copied.
const MAX_CHAIN_LENGTH: usize = 100;

/// A template that cannot be translated: the reason and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxFault {
    pub(crate) message: String,
    pub(crate) line: usize,
}

type Parsed<T> = Result<T, SyntaxFault>;

/// A target of `set` or `for`.
enum Target {
    Name(String),
    Attribute(String, String),
    Tuple(Vec<Target>),
}

struct Parser<'a> {
    tokens: Vec<Placed>,
    at: usize,
    prefix: &'a str,
    out: String,
    /// The line that the output is in.
    line: usize,
    depth: usize,
    /// Inside of `if`, where an unknown filter is no error until it is used.
    soft: usize,
    /// Whether the macro that is being read uses `varargs` and `kwargs`.
    rest_arguments: (bool, bool),
    in_macro: bool,
    loops: usize,
    counter: usize,
}

/// Translates a template. `prefix` is put in front of each of its variables.
pub(crate) fn translate(source: &str, syntax: &Syntax, prefix: &str) -> Parsed<String> {
    if source.contains('\u{1}') {
        return Err(SyntaxFault {
            message: "the control character U+0001 is not allowed".to_owned(),
            line: 1,
        });
    }
    let tokens = tokens(source, syntax).map_err(|(message, line)| SyntaxFault { message, line })?;
    let mut parser = Parser {
        tokens,
        at: 0,
        prefix,
        out: String::with_capacity(source.len() * 2),
        line: 1,
        depth: 0,
        soft: 0,
        rest_arguments: (false, false),
        in_macro: false,
        loops: 0,
        counter: 0,
    };
    parser.body(&[])?;
    Ok(parser.out)
}

/// A text as a literal of the engine, which reads the escapes of JSON.
pub(crate) fn literal(text: &str) -> String {
    saltern_python::json::of_text(text)
}

impl Parser<'_> {
    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(SyntaxFault {
            message: message.into(),
            line: self.here(),
        })
    }

    /// Enters one level of nesting. The caller leaves it with [`Parser::up`]; after a failure the
    /// count does not matter any more.
    fn down(&mut self, what: &str) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return self.fail(format!("the {what} is nested too deeply"));
        }
        Ok(())
    }

    fn up(&mut self) {
        self.depth -= 1;
    }

    /// Counts one more operator of a chain.
    fn chained(&self, operators: &mut usize) -> Parsed<()> {
        *operators += 1;
        if *operators > MAX_CHAIN_LENGTH {
            return self.fail("the expression is nested too deeply");
        }
        Ok(())
    }

    fn here(&self) -> usize {
        let last = self.tokens.last();
        self.tokens
            .get(self.at)
            .or(last)
            .map_or(1, |(_, line)| *line)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).map(|(token, _)| token.clone());
        self.at += 1;
        token
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(found)) if *found == sign)
    }

    fn skip_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.at += 1;
        }
        found
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if found == name)
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.at += 1;
        }
        found
    }

    fn describe(&self) -> String {
        match self.peek() {
            None => "end of template".to_owned(),
            Some(Token::BlockEnd) => "end of statement block".to_owned(),
            Some(Token::PrintEnd) => "end of print statement".to_owned(),
            Some(Token::Name(name)) => name.clone(),
            Some(Token::Text(text)) => text.clone(),
            Some(Token::Int(number)) => number.to_string(),
            Some(Token::Float(number)) => number.to_string(),
            Some(Token::Sign(sign)) => (*sign).to_owned(),
            Some(Token::Data(_) | Token::BlockStart | Token::PrintStart) => {
                "template data".to_owned()
            }
        }
    }

    fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        if self.peek().is_none() {
            return self.fail(format!("unexpected end of template, expected '{wanted}'."));
        }
        self.fail(format!(
            "expected token '{wanted}', got '{}'",
            self.describe()
        ))
    }

    fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        if self.skip_sign(sign) {
            Ok(())
        } else {
            self.unexpected(sign)
        }
    }

    fn expect_keyword(&mut self, name: &str) -> Parsed<()> {
        if self.skip_name(name) {
            Ok(())
        } else {
            self.unexpected(name)
        }
    }

    fn expect_name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected("name"),
        }
    }

    fn block_end(&mut self) -> Parsed<()> {
        match self.peek() {
            Some(Token::BlockEnd) => {
                self.at += 1;
                Ok(())
            }
            _ => self.unexpected("end of statement block"),
        }
    }

    /// The end of a tag that a body follows. Jinja2 skips a colon before it, as Python's blocks
    /// have one; only `with` takes none.
    fn body_start(&mut self) -> Parsed<()> {
        self.skip_sign(":");
        self.block_end()
    }

    fn fresh(&mut self) -> String {
        self.counter += 1;
        format!("{}__{}", self.prefix, self.counter)
    }

    /// A variable's name in the engine. Letters beyond ASCII are spelled out.
    fn variable(&self, name: &str) -> String {
        match name {
            "loop" | "caller" => name.to_owned(),
            _ => {
                let mut out = self.prefix.to_owned();
                for letter in name.chars() {
                    if letter.is_ascii() {
                        out.push(letter);
                    } else {
                        let _ = write!(out, "_u{:x}_", u32::from(letter));
                    }
                }
                out
            }
        }
    }

    /// Writes a tag; line ends that the translation lost are made up for inside of it.
    fn tag(&mut self, line: usize, content: &str) {
        self.out.push_str(BLOCK.0);
        self.fill_lines(line);
        self.out.push_str(content);
        self.out.push_str(BLOCK.1);
    }

    fn fill_lines(&mut self, line: usize) {
        while self.line < line {
            self.out.push('\n');
            self.line += 1;
        }
    }

    fn data(&mut self, text: &str) {
        self.out.push_str(text);
        self.line += text.matches('\n').count();
    }
}

//! From Jinja2 as Salt reads it to the dialect of the engine that runs it.
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
//!
//! Longer than 500 lines because grammar and output belong together, rule by rule.

use std::fmt::Write as _;

use super::lexer::{Placed, Token, tokens};
use super::options::Syntax;
use super::{filters, tests};

/// Marks of the engine's dialect; control characters, so that no text can contain them.
pub(crate) const BLOCK: (&str, &str) = ("\u{1}\u{2}", "\u{3}\u{1}");
pub(crate) const PRINT: (&str, &str) = ("\u{1}\u{4}", "\u{5}\u{1}");
pub(crate) const COMMENT: (&str, &str) = ("\u{1}\u{6}", "\u{6}\u{1}");

/// How deep expressions and blocks may be nested in a template.
const DEEPEST: usize = 100;

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

/// A text as a literal of the engine.
pub(crate) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

impl Parser<'_> {
    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(SyntaxFault {
            message: message.into(),
            line: self.here(),
        })
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

    // Statements.

    /// Reads up to a tag with one of the names, which it consumes and returns.
    fn body(&mut self, ends: &[&str]) -> Parsed<String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.fail("the template is nested too deeply");
        }
        let end = self.body_inner(ends)?;
        self.depth -= 1;
        Ok(end)
    }

    fn body_inner(&mut self, ends: &[&str]) -> Parsed<String> {
        loop {
            let line = self.here();
            match self.next() {
                None if ends.is_empty() => return Ok(String::new()),
                None => {
                    return self.fail(format!(
                        "Unexpected end of template. Jinja was looking for the following tags: \
                         '{}'.",
                        ends.join("' or '")
                    ));
                }
                Some(Token::Data(text)) => self.data(&text),
                Some(Token::PrintStart) => {
                    let expression = self.tuple(true)?;
                    if self.next() != Some(Token::PrintEnd) {
                        self.at -= 1;
                        return self.unexpected("end of print statement");
                    }
                    self.out.push_str(PRINT.0);
                    self.fill_lines(line);
                    self.out.push_str(&expression);
                    self.out.push_str(PRINT.1);
                }
                Some(Token::BlockStart) => {
                    let name = self.expect_name().map_err(|mut fault| {
                        fault.message = "tag name expected".to_owned();
                        fault
                    })?;
                    if ends.contains(&name.as_str()) {
                        return Ok(name);
                    }
                    self.statement(&name, line)?;
                }
                Some(_) => return self.fail("internal parsing error"),
            }
        }
    }

    fn statement(&mut self, name: &str, line: usize) -> Parsed<()> {
        match name {
            "if" => self.if_statement(line),
            "for" => self.for_statement(line),
            "set" => self.set_statement(line),
            "do" => {
                let value = self.tuple(true)?;
                self.block_end()?;
                self.tag(line, &format!("do __do({value})"));
                Ok(())
            }
            "break" | "continue" => {
                self.block_end()?;
                if self.loops == 0 {
                    return self.fail(format!("'{name}' outside loop"));
                }
                self.tag(line, name);
                Ok(())
            }
            "macro" => self.macro_statement(line),
            "call" => self.call_statement(line),
            "filter" => self.filter_statement(line),
            "with" => self.with_statement(line),
            "autoescape" => {
                // Nothing is escaped in Salt's templates; the switch would have no effect on
                // text that the template itself prints.
                self.expression()?;
                self.block_end()?;
                self.body(&["endautoescape"])?;
                self.block_end()
            }
            "include" => self.include_statement(line),
            "import" => {
                let (module, value) = self.import_head(line)?;
                self.tag(line, &format!("set {module} = {value}"));
                Ok(())
            }
            "from" => self.import_names_statement(line),
            "extends" => {
                let name = self.expression()?;
                self.block_end()?;
                let prefix = literal(self.prefix);
                self.tag(line, &format!("extends __template({name}, {prefix})"));
                Ok(())
            }
            "block" => self.block_statement(line),
            "load_yaml" | "load_json" | "load_text" => {
                self.expect_keyword("as")?;
                let target = self.target()?;
                self.block_end()?;
                let held = self.captured(line, &["endload"])?;
                self.block_end()?;
                self.assign(
                    line,
                    &target,
                    &format!("__filter({}, {held})", literal(name)),
                )
            }
            "import_yaml" | "import_json" | "import_text" => {
                let (module, value) = self.import_head(line)?;
                let filter = literal(&name.replace("import", "load"));
                self.tag(line, &format!("set {module} = __filter({filter}, {value})"));
                Ok(())
            }
            "profile" => {
                self.expect_keyword("as")?;
                self.expression()?;
                self.block_end()?;
                self.body(&["endprofile"])?;
                self.block_end()
            }
            _ => self.fail(format!("Encountered unknown tag '{name}'.")),
        }
    }

    fn if_statement(&mut self, line: usize) -> Parsed<()> {
        self.soft += 1;
        let condition = self.tuple(false)?;
        self.block_end()?;
        self.tag(line, &format!("if __true({condition})"));
        loop {
            let end = self.body(&["elif", "else", "endif"])?;
            let line = self.here();
            match end.as_str() {
                "elif" => {
                    let condition = self.tuple(false)?;
                    self.block_end()?;
                    self.tag(line, &format!("elif __true({condition})"));
                }
                "else" => {
                    self.block_end()?;
                    self.tag(line, "else");
                    self.body(&["endif"])?;
                    self.block_end()?;
                    self.tag(line, "endif");
                    break;
                }
                _ => {
                    self.block_end()?;
                    self.tag(line, "endif");
                    break;
                }
            }
        }
        self.soft -= 1;
        Ok(())
    }

    /// Reads a body and remembers how many bytes of text it prints, for the count of output that
    /// is captured and not yet written.
    fn counted_body(&mut self, ends: &[&str]) -> Parsed<String> {
        let at = self.out.len();
        let first = self.at;
        let end = self.body(ends)?;
        let bytes: usize = self
            .tokens
            .get(first..self.at)
            .unwrap_or_default()
            .iter()
            .map(|(token, _)| match token {
                Token::Data(text) => text.len(),
                _ => 0,
            })
            .sum();
        let tick = format!("{}do __tick({bytes}){}", BLOCK.0, BLOCK.1);
        self.out.insert_str(at, &tick);
        Ok(end)
    }

    fn for_statement(&mut self, line: usize) -> Parsed<()> {
        let target = self.targets()?;
        self.expect_keyword("in")?;
        let items = self.tuple(false)?;
        let filter = if self.skip_name("if") {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive");
        self.block_end()?;
        let variable = self.simple_target(&target)?;
        let mut head = format!("for {variable} in __iter({items})");
        if let Some(filter) = filter {
            let _ = write!(head, " if __true({filter})");
        }
        if recursive {
            head.push_str(" recursive");
        }
        self.tag(line, &head);
        self.loops += 1;
        let end = self.counted_body(&["endfor", "else"])?;
        self.loops -= 1;
        if end == "else" {
            let line = self.here();
            self.block_end()?;
            self.tag(line, "else");
            self.body(&["endfor"])?;
        }
        let line = self.here();
        self.block_end()?;
        self.tag(line, "endfor");
        Ok(())
    }

    /// `a`, `(a, b)`: a target without attributes, as the engine writes it.
    fn simple_target(&self, target: &Target) -> Parsed<String> {
        Ok(match target {
            Target::Name(name) if name == "loop" => {
                return self.fail("can't assign to special loop variable in for-loop target");
            }
            Target::Name(name) => self.variable(name),
            Target::Attribute(..) => return self.fail("can't assign to an attribute here"),
            Target::Tuple(parts) => {
                let parts = parts
                    .iter()
                    .map(|part| self.simple_target(part))
                    .collect::<Parsed<Vec<_>>>()?;
                match parts.as_slice() {
                    [one] => format!("({one},)"),
                    several => format!("({})", several.join(", ")),
                }
            }
        })
    }

    fn target(&mut self) -> Parsed<Target> {
        if self.skip_sign("(") {
            let inner = self.targets()?;
            self.expect_sign(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        if matches!(
            name.as_str(),
            "true" | "false" | "none" | "True" | "False" | "None"
        ) {
            return self.fail(format!("can't assign to '{name}'"));
        }
        if self.skip_sign(".") {
            return Ok(Target::Attribute(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }

    fn targets(&mut self) -> Parsed<Target> {
        let first = self.target()?;
        if !self.is_sign(",") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip_sign(",") {
            let more =
                matches!(self.peek(), Some(Token::Name(name)) if name != "in") || self.is_sign("(");
            if !more {
                break;
            }
            parts.push(self.target()?);
        }
        Ok(Target::Tuple(parts))
    }

    /// Writes an assignment of an expression of the engine.
    fn assign(&mut self, line: usize, target: &Target, value: &str) -> Parsed<()> {
        match target {
            Target::Name(name) => {
                let name = self.variable(name);
                self.tag(line, &format!("set {name} = {value}"));
            }
            Target::Attribute(name, attribute) => {
                let object = self.load(name);
                let attribute = literal(attribute);
                self.tag(
                    line,
                    &format!("do __assign({object}, {attribute}, {value})"),
                );
            }
            Target::Tuple(parts) => {
                let held = self.fresh();
                let count = parts.len();
                self.tag(line, &format!("set {held} = __unpack({value}, {count})"));
                for (index, part) in parts.iter().enumerate() {
                    self.assign(line, part, &format!("__item({held}, {index})"))?;
                }
            }
        }
        Ok(())
    }

    fn set_statement(&mut self, line: usize) -> Parsed<()> {
        let target = self.targets()?;
        if self.skip_sign("=") {
            let value = self.tuple(true)?;
            self.block_end()?;
            return self.assign(line, &target, &value);
        }
        let mut filters = Vec::new();
        while self.skip_sign("|") {
            filters.push(self.filter_call()?);
        }
        self.block_end()?;
        let held = self.captured(line, &["endset"])?;
        self.block_end()?;
        let value = Self::apply_filters(held, &filters);
        self.assign(line, &target, &value)
    }

    fn apply_filters(mut value: String, filters: &[(String, String)]) -> String {
        for (name, arguments) in filters {
            value = format!("__filter({name}, {value}{arguments})");
        }
        value
    }

    /// Writes a block whose output goes to a variable, whose name is returned. What is set
    /// inside stays inside.
    fn captured(&mut self, line: usize, ends: &[&str]) -> Parsed<String> {
        let held = self.fresh();
        self.tag(line, &format!("set {held}"));
        self.tag(line, "with");
        let loops = std::mem::take(&mut self.loops);
        self.counted_body(ends)?;
        self.loops = loops;
        let line = self.here();
        self.tag(line, "endwith");
        self.tag(line, "endset");
        Ok(held)
    }

    fn filter_statement(&mut self, line: usize) -> Parsed<()> {
        let mut filters = vec![self.filter_call()?];
        while self.skip_sign("|") {
            filters.push(self.filter_call()?);
        }
        self.block_end()?;
        let held = self.captured(line, &["endfilter"])?;
        self.block_end()?;
        let value = Self::apply_filters(held, &filters);
        let _ = write!(self.out, "{}{value}{}", PRINT.0, PRINT.1);
        Ok(())
    }

    fn with_statement(&mut self, line: usize) -> Parsed<()> {
        let mut values = Vec::new();
        while self.peek() != Some(&Token::BlockEnd) {
            if !values.is_empty() {
                self.expect_sign(",")?;
            }
            let target = self.target()?;
            self.expect_sign("=")?;
            values.push((target, self.expression()?));
        }
        self.block_end()?;
        // The values are computed in the outer scope, all before the first is assigned.
        self.tag(line, "with");
        let mut held = Vec::new();
        for (target, value) in values {
            let name = self.fresh();
            self.tag(line, &format!("set {name} = {value}"));
            held.push((target, name));
        }
        for (target, name) in held {
            self.assign(line, &target, &name)?;
        }
        self.body(&["endwith"])?;
        let line = self.here();
        self.block_end()?;
        self.tag(line, "endwith");
        Ok(())
    }

    fn include_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expression()?;
        let mut ignore = "";
        if self.is_name("ignore") {
            self.at += 1;
            self.expect_keyword("missing")?;
            ignore = " ignore missing";
        }
        let context = self.context_marker()?.unwrap_or(true);
        self.block_end()?;
        let prefix = if context {
            literal(self.prefix)
        } else {
            "none".to_owned()
        };
        self.tag(line, "with");
        self.tag(
            line,
            &format!("include __template({name}, {prefix}){ignore}"),
        );
        self.tag(line, "endwith");
        Ok(())
    }

    /// `with context` and `without context`.
    fn context_marker(&mut self) -> Parsed<Option<bool>> {
        let with = self.is_name("with");
        if with || self.is_name("without") {
            self.at += 1;
            self.expect_keyword("context")?;
            return Ok(Some(with));
        }
        Ok(None)
    }

    /// Writes an import; returns the variable it goes to and the module as an expression.
    fn import_head(&mut self, line: usize) -> Parsed<(String, String)> {
        let name = self.expression()?;
        self.expect_keyword("as")?;
        let target = self.expect_name()?;
        let context = self.context_marker()?.unwrap_or(false);
        self.block_end()?;
        let prefix = if context {
            literal(self.prefix)
        } else {
            "none".to_owned()
        };
        let held = self.fresh();
        let which = self.fresh();
        self.tag(line, &format!("set {which} = __template({name}, {prefix})"));
        self.tag(line, &format!("import {which} as {held}"));
        let module = format!("__module({held}, {which})");
        Ok((self.variable(&target), module))
    }

    fn import_names_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expression()?;
        self.expect_keyword("import")?;
        let mut names = Vec::new();
        let context = loop {
            let context = self.context_marker()?;
            if context.is_some() || self.peek() == Some(&Token::BlockEnd) {
                break context;
            }
            let name = self.expect_name()?;
            if name.starts_with('_') {
                return self.fail("names starting with an underline can not be imported");
            }
            let alias = if self.skip_name("as") {
                self.expect_name()?
            } else {
                name.clone()
            };
            names.push((name, alias));
            if !self.skip_sign(",") {
                break self.context_marker()?;
            }
        };
        self.block_end()?;
        if names.is_empty() {
            return self.fail("expected token 'name', got 'end of statement block'");
        }
        let prefix = if context == Some(true) {
            literal(self.prefix)
        } else {
            "none".to_owned()
        };
        let held = self.fresh();
        let which = self.fresh();
        self.tag(line, &format!("set {which} = __template({name}, {prefix})"));
        self.tag(line, &format!("import {which} as {held}"));
        let shown = name;
        for (name, alias) in names {
            let alias = self.variable(&alias);
            let name = literal(&name);
            self.tag(
                line,
                &format!("set {alias} = __export({held}, {which}, {name}, {shown})"),
            );
        }
        Ok(())
    }

    fn block_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expect_name()?;
        self.skip_name("scoped");
        let required = if self.skip_name("required") {
            " required"
        } else {
            ""
        };
        self.block_end()?;
        self.tag(line, &format!("block {name}{required}"));
        let loops = std::mem::take(&mut self.loops);
        self.body(&["endblock"])?;
        self.loops = loops;
        let line = self.here();
        if matches!(self.peek(), Some(Token::Name(_))) {
            self.at += 1;
        }
        self.block_end()?;
        self.tag(line, "endblock");
        Ok(())
    }

    /// Parameters of a macro or call block after the `(`.
    ///
    /// Defaults become assignments at the start of the body, since each may use the parameters
    /// before it.
    fn parameters(&mut self) -> Parsed<(Vec<String>, String)> {
        let mut parameters: Vec<String> = Vec::new();
        let mut assignments = String::new();
        let mut defaults = false;
        while !self.skip_sign(")") {
            if !parameters.is_empty() {
                self.expect_sign(",")?;
                if self.skip_sign(")") {
                    break;
                }
            }
            let name = self.expect_name()?;
            let variable = self.variable(&name);
            if self.skip_sign("=") {
                defaults = true;
                let value = self.expression()?;
                let _ = write!(
                    assignments,
                    "{}set {variable} = ({value} if __missing({variable}) else {variable}){}",
                    BLOCK.0, BLOCK.1
                );
                parameters.push(variable);
            } else if defaults {
                return self.fail("non-default argument follows default argument");
            } else {
                parameters.push(variable);
            }
        }
        Ok((parameters, assignments))
    }

    fn callable_body(&mut self, end: &str, at: usize, empty: bool) -> Parsed<()> {
        let outer = std::mem::take(&mut self.rest_arguments);
        let in_macro = std::mem::replace(&mut self.in_macro, true);
        let loops = std::mem::take(&mut self.loops);
        self.counted_body(&[end])?;
        self.loops = loops;
        self.in_macro = in_macro;
        let (positional, named) = std::mem::replace(&mut self.rest_arguments, outer);
        let mut extra = String::new();
        let mut add = |name: &str| {
            extra.push_str(if empty && extra.is_empty() { "" } else { ", " });
            extra.push_str(name);
        };
        if positional {
            add("__va");
        }
        if named {
            add("__kw");
        }
        self.out.insert_str(at, &extra);
        let line = self.here();
        self.block_end()?;
        self.tag(line, end);
        Ok(())
    }

    fn macro_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expect_name()?;
        self.expect_sign("(")?;
        let (parameters, defaults) = self.parameters()?;
        self.block_end()?;
        let name = self.variable(&name);
        self.tag(line, &format!("macro {name}({})", parameters.join(", ")));
        let at = self.out.len() - BLOCK.1.len() - 1;
        self.out.push_str(&defaults);
        self.callable_body("endmacro", at, parameters.is_empty())
    }

    fn call_statement(&mut self, line: usize) -> Parsed<()> {
        let (parameters, defaults) = if self.skip_sign("(") {
            self.parameters()?
        } else {
            Default::default()
        };
        let call = self.expression()?;
        if !call.starts_with("__call(") && !call.starts_with("__method(") {
            return self.fail("expected call");
        }
        self.block_end()?;
        let head = format!("call({}", parameters.join(", "));
        self.tag(line, &format!("{head}) {call}"));
        let at = self.out.len() - BLOCK.1.len() - call.len() - 2;
        self.out.push_str(&defaults);
        self.callable_body("endcall", at, parameters.is_empty())
    }

    // Expressions. Each returns text of the engine's dialect.

    /// An expression, or several with commas between, which are a tuple.
    fn tuple(&mut self, conditional: bool) -> Parsed<String> {
        let mut parts = Vec::new();
        let mut is_tuple = false;
        loop {
            let ends = match self.peek() {
                None | Some(Token::BlockEnd | Token::PrintEnd) => true,
                Some(Token::Sign(sign)) => *sign == ")",
                _ => false,
            };
            if ends || (is_tuple && self.is_name("recursive")) {
                break;
            }
            parts.push(if conditional {
                self.expression()?
            } else {
                self.or()?
            });
            if !self.skip_sign(",") {
                break;
            }
            is_tuple = true;
        }
        if is_tuple {
            return Ok(format!("__tuple({})", parts.join(", ")));
        }
        match parts.pop() {
            Some(part) => Ok(part),
            None => self.fail(format!("Expected an expression, got '{}'", self.describe())),
        }
    }

    fn expression(&mut self) -> Parsed<String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.fail("the expression is nested too deeply");
        }
        let mut value = self.or()?;
        while self.is_name("if") {
            self.at += 1;
            self.soft += 1;
            let line = self.here();
            let condition = self.or()?;
            let other = if self.skip_name("else") {
                self.expression()?
            } else {
                format!("__no_else({line})")
            };
            self.soft -= 1;
            value = format!("({value} if __true({condition}) else {other})");
        }
        self.depth -= 1;
        Ok(value)
    }

    fn or(&mut self) -> Parsed<String> {
        let mut value = self.and()?;
        while self.skip_name("or") {
            let right = self.and()?;
            value = format!("(__true({value}) or {right})");
        }
        Ok(value)
    }

    fn and(&mut self) -> Parsed<String> {
        let mut value = self.not()?;
        while self.skip_name("and") {
            let right = self.not()?;
            value = format!("(__true({value}) and {right})");
        }
        Ok(value)
    }

    fn not(&mut self) -> Parsed<String> {
        if self.skip_name("not") {
            let value = self.not()?;
            return Ok(format!("(not __true({value}))"));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<String> {
        let first = self.sum()?;
        let mut chain = String::new();
        loop {
            let sign = match self.peek() {
                Some(Token::Sign(sign @ ("==" | "!=" | "<" | "<=" | ">" | ">="))) => *sign,
                Some(Token::Name(name)) if name == "in" => "in",
                Some(Token::Name(name)) if name == "not" => {
                    let after = self.tokens.get(self.at + 1);
                    if !matches!(after, Some((Token::Name(name), _)) if name == "in") {
                        break;
                    }
                    self.at += 1;
                    "not in"
                }
                _ => break,
            };
            self.at += 1;
            let right = self.sum()?;
            let _ = write!(chain, ", \"{sign}\", {right}");
        }
        if chain.is_empty() {
            return Ok(first);
        }
        Ok(format!("__compare({first}{chain})"))
    }

    /// Operators of one rank, from left to right, in one call: `1 + 2 - 3`.
    fn binary(
        &mut self,
        signs: &[&'static str],
        operand: fn(&mut Self) -> Parsed<String>,
    ) -> Parsed<String> {
        let first = operand(self)?;
        let mut chain = String::new();
        while let Some(Token::Sign(sign)) = self.peek() {
            let sign = *sign;
            if !signs.contains(&sign) {
                break;
            }
            self.at += 1;
            let right = operand(self)?;
            let _ = write!(chain, ", \"{sign}\", {right}");
        }
        if chain.is_empty() {
            return Ok(first);
        }
        Ok(format!("__math({first}{chain})"))
    }

    fn sum(&mut self) -> Parsed<String> {
        self.binary(&["+", "-"], Self::concatenation)
    }

    fn concatenation(&mut self) -> Parsed<String> {
        let first = self.product()?;
        let mut parts = vec![first];
        while self.skip_sign("~") {
            parts.push(self.product()?);
        }
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        Ok(format!("__join({})", parts.join(", ")))
    }

    fn product(&mut self) -> Parsed<String> {
        self.binary(&["*", "/", "//", "%"], Self::power)
    }

    fn power(&mut self) -> Parsed<String> {
        self.binary(&["**"], Self::unary)
    }

    fn unary(&mut self) -> Parsed<String> {
        let value = self.signed()?;
        self.filtered(value)
    }

    fn signed(&mut self) -> Parsed<String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.fail("the expression is nested too deeply");
        }
        let value = if self.skip_sign("-") {
            let value = self.signed()?;
            format!("__negative({value})")
        } else if self.skip_sign("+") {
            let value = self.signed()?;
            format!("__positive({value})")
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Reads a variable.
    fn load(&mut self, name: &str) -> String {
        if self.in_macro && name == "varargs" {
            self.rest_arguments.0 = true;
            return "__name(__va, \"varargs\")".to_owned();
        }
        if self.in_macro && name == "kwargs" {
            self.rest_arguments.1 = true;
            return "__name(__kw, \"kwargs\")".to_owned();
        }
        let variable = self.variable(name);
        format!("__name({variable}, {})", literal(name))
    }

    fn primary(&mut self) -> Parsed<String> {
        let line = self.here();
        match self.next() {
            Some(Token::Name(name)) => Ok(match name.as_str() {
                "true" | "True" => "true".to_owned(),
                "false" | "False" => "false".to_owned(),
                "none" | "None" => "none".to_owned(),
                "self" | "super" if self.is_sign(".") || self.is_sign("(") => {
                    self.native_call(name)?
                }
                "loop" if self.is_sign("(") => {
                    self.at += 1;
                    let items = self.expression()?;
                    self.expect_sign(")")?;
                    format!("loop(__iter({items}))")
                }
                _ => self.load(&name),
            }),
            Some(Token::Text(mut text)) => {
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Ok(literal(&text))
            }
            Some(Token::Int(number)) => Ok(number.to_string()),
            Some(Token::Float(number)) => Ok(format!("__float(\"{number:?}\")")),
            Some(Token::Sign("(")) => {
                if self.skip_sign(")") {
                    return Ok("__tuple()".to_owned());
                }
                let value = self.tuple(true)?;
                self.expect_sign(")")?;
                Ok(value)
            }
            Some(Token::Sign("[")) => {
                let mut items = Vec::new();
                while !self.skip_sign("]") {
                    if !items.is_empty() {
                        self.expect_sign(",")?;
                        if self.skip_sign("]") {
                            break;
                        }
                    }
                    items.push(self.expression()?);
                }
                Ok(self.many("__list", "__extend", &items))
            }
            Some(Token::Sign("{")) => {
                let mut items = Vec::new();
                while !self.skip_sign("}") {
                    if !items.is_empty() {
                        self.expect_sign(",")?;
                        if self.skip_sign("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect_sign(":")?;
                    let value = self.expression()?;
                    items.push(format!("{key}, {value}"));
                }
                Ok(self.many("__dict", "__merge", &items))
            }
            _ => {
                self.at -= 1;
                Err(SyntaxFault {
                    message: format!("unexpected '{}'", self.describe()),
                    line,
                })
            }
        }
    }

    /// A call with any number of arguments; the engine takes only so many at once.
    fn many(&self, make: &str, join: &str, items: &[String]) -> String {
        if items.len() <= 500 {
            return format!("{make}({})", items.join(", "));
        }
        let parts: Vec<String> = items
            .chunks(500)
            .map(|chunk| format!("{make}({})", chunk.join(", ")))
            .collect();
        format!("{join}({})", parts.join(", "))
    }

    /// `super()` and `self.block()`, which only the engine knows.
    fn native_call(&mut self, name: String) -> Parsed<String> {
        let mut text = name;
        if self.skip_sign(".") {
            let block = self.expect_name()?;
            text = format!("{text}.{block}");
        }
        self.expect_sign("(")?;
        self.expect_sign(")")?;
        Ok(format!("{text}()"))
    }

    fn postfix(&mut self, mut value: String) -> Parsed<String> {
        loop {
            if self.skip_sign(".") {
                match self.next() {
                    Some(Token::Name(name)) if self.is_sign("(") => {
                        self.at += 1;
                        let arguments = self.arguments()?;
                        value = format!("__method({value}, {}{arguments})", literal(&name));
                    }
                    Some(Token::Name(name)) => {
                        value = format!("__attribute({value}, {})", literal(&name));
                    }
                    Some(Token::Int(number)) => value = format!("__item({value}, {number})"),
                    _ => {
                        self.at -= 1;
                        return self.fail("expected name or number");
                    }
                }
            } else if self.skip_sign("[") {
                value = self.subscript(&value)?;
            } else if self.skip_sign("(") {
                let arguments = self.arguments()?;
                value = format!("__call({value}{arguments})");
            } else {
                return Ok(value);
            }
        }
    }

    fn subscript(&mut self, value: &str) -> Parsed<String> {
        let mut parts = Vec::new();
        while !self.skip_sign("]") {
            if !parts.is_empty() {
                self.expect_sign(",")?;
                if self.skip_sign("]") {
                    break;
                }
            }
            parts.push(self.slice_or_index()?);
        }
        match parts.as_slice() {
            [] => self.fail("expected subscript expression"),
            [Ok(index)] => Ok(format!("__item({value}, {index})")),
            [Err(bounds)] => Ok(format!("__slice({value}, {bounds})")),
            several => {
                let mut indexes = Vec::new();
                for part in several {
                    match part {
                        Ok(index) => indexes.push(index.clone()),
                        Err(_) => return self.fail("a slice cannot stand beside other indexes"),
                    }
                }
                Ok(format!("__item({value}, __tuple({}))", indexes.join(", ")))
            }
        }
    }

    /// An index, or as `Err` the three bounds of a slice.
    fn slice_or_index(&mut self) -> Parsed<Result<String, String>> {
        let first = if self.is_sign(":") {
            None
        } else {
            Some(self.expression()?)
        };
        if !self.skip_sign(":") {
            return match first {
                Some(index) => Ok(Ok(index)),
                None => self.fail("expected subscript expression"),
            };
        }
        let mut bounds = [first, None, None];
        for at in 1..3 {
            if !self.is_sign(":") && !self.is_sign("]") && !self.is_sign(",") {
                let value = self.expression()?;
                if let Some(bound) = bounds.get_mut(at) {
                    *bound = Some(value);
                }
            }
            if at == 1 && !self.skip_sign(":") {
                break;
            }
        }
        let bounds = bounds.map(|bound| bound.unwrap_or_else(|| "none".to_owned()));
        Ok(Err(bounds.join(", ")))
    }

    /// Arguments after the `(`, each with a comma in front.
    fn arguments(&mut self) -> Parsed<String> {
        let mut out = String::new();
        let mut first = true;
        let mut named = false;
        while !self.skip_sign(")") {
            if !first {
                self.expect_sign(",")?;
                if self.skip_sign(")") {
                    break;
                }
            }
            first = false;
            if self.skip_sign("**") {
                named = true;
                let value = self.expression()?;
                let _ = write!(out, ", **__named({value})");
            } else if self.skip_sign("*") {
                let value = self.expression()?;
                let _ = write!(out, ", *__iter({value})");
            } else if let (Some(Token::Name(name)), Some((Token::Sign("="), _))) =
                (self.peek().cloned(), self.tokens.get(self.at + 1))
            {
                named = true;
                self.at += 2;
                let value = self.expression()?;
                let _ = write!(out, ", {}={value}", self.keyword(&name)?);
            } else if named {
                return self.fail("invalid syntax for function call expression");
            } else {
                let value = self.expression()?;
                let _ = write!(out, ", {value}");
            }
        }
        Ok(out)
    }

    /// The name of a keyword argument. The engine's reserved names get an underscore, which the
    /// helper takes off again.
    fn keyword(&self, name: &str) -> Parsed<String> {
        if !name.is_ascii() {
            return self.fail("keyword arguments must be ASCII");
        }
        if name == "caller" {
            return Ok(name.to_owned());
        }
        Ok(format!("k_{name}"))
    }

    fn filter_name(&mut self) -> Parsed<String> {
        let mut name = self.expect_name()?;
        while self.skip_sign(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name)
    }

    /// A filter after `|`: its name as a literal, and its arguments.
    fn filter_call(&mut self) -> Parsed<(String, String)> {
        let name = self.filter_name()?;
        if self.soft == 0 && !filters::exists(&name) {
            return self.fail(format!("No filter named '{name}'."));
        }
        let arguments = if self.skip_sign("(") {
            self.arguments()?
        } else {
            String::new()
        };
        Ok((literal(&name), arguments))
    }

    fn filtered(&mut self, mut value: String) -> Parsed<String> {
        loop {
            if self.skip_sign("|") {
                let (name, arguments) = self.filter_call()?;
                value = format!("__filter({name}, {value}{arguments})");
            } else if self.skip_name("is") {
                value = self.test(&value)?;
            } else if self.is_sign("(") {
                self.at += 1;
                let arguments = self.arguments()?;
                value = format!("__call({value}{arguments})");
            } else {
                return Ok(value);
            }
        }
    }

    fn test(&mut self, value: &str) -> Parsed<String> {
        let negated = self.skip_name("not");
        let name = self.filter_name()?;
        if self.soft == 0 && !tests::exists(&name) {
            return self.fail(format!("No test named '{name}'."));
        }
        let operand = match self.peek() {
            Some(Token::Name(word)) => !matches!(word.as_str(), "else" | "or" | "and"),
            Some(Token::Text(_) | Token::Int(_) | Token::Float(_)) => true,
            Some(Token::Sign(sign)) => matches!(*sign, "[" | "{"),
            _ => false,
        };
        let arguments = if self.skip_sign("(") {
            self.arguments()?
        } else if operand {
            if self.is_name("is") {
                return self.fail("You cannot chain multiple tests with is");
            }
            let value = self.primary()?;
            let value = self.postfix(value)?;
            format!(", {value}")
        } else {
            String::new()
        };
        let test = format!("__test({}, {value}{arguments})", literal(&name));
        Ok(if negated {
            format!("(not {test})")
        } else {
            test
        })
    }
}

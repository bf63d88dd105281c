//! Tags (`{% … %}`), and the text between them.

use std::fmt::Write as _;

use super::super::lexer::Token;
use super::{BLOCK, PRINT, Parsed, Parser, literal};

impl Parser<'_> {
    /// Reads up to a tag with one of the names, which it consumes and returns.
    pub(super) fn body(&mut self, ends: &[&str]) -> Parsed<String> {
        self.down("template")?;
        let end = self.body_inner(ends)?;
        self.up();
        Ok(end)
    }

    pub(super) fn body_inner(&mut self, ends: &[&str]) -> Parsed<String> {
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

    pub(super) fn statement(&mut self, name: &str, line: usize) -> Parsed<()> {
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
                self.body_start()?;
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
                self.body_start()?;
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
                self.body_start()?;
                self.body(&["endprofile"])?;
                self.block_end()
            }
            _ => self.fail(format!("Encountered unknown tag '{name}'.")),
        }
    }

    pub(super) fn if_statement(&mut self, line: usize) -> Parsed<()> {
        self.soft += 1;
        let depth = self.depth;
        let condition = self.tuple(false)?;
        self.body_start()?;
        self.tag(line, &format!("if __true({condition})"));
        loop {
            let end = self.body(&["elif", "else", "endif"])?;
            let line = self.here();
            match end.as_str() {
                "elif" => {
                    self.down("template")?;
                    let condition = self.tuple(false)?;
                    self.body_start()?;
                    self.tag(line, &format!("elif __true({condition})"));
                }
                "else" => {
                    self.body_start()?;
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
        self.depth = depth;
        Ok(())
    }

    /// Reads a body and remembers how many bytes of text it prints, for the count of output that
    /// is captured and not yet written.
    pub(super) fn counted_body(&mut self, ends: &[&str]) -> Parsed<String> {
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

    pub(super) fn for_statement(&mut self, line: usize) -> Parsed<()> {
        let target = self.targets()?;
        self.expect_keyword("in")?;
        let items = self.tuple(false)?;
        let filter = if self.skip_name("if") {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive");
        self.body_start()?;
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
            self.body_start()?;
            self.tag(line, "else");
            self.body(&["endfor"])?;
        }
        let line = self.here();
        self.block_end()?;
        self.tag(line, "endfor");
        Ok(())
    }

    /// Writes a block whose output goes to a variable, whose name is returned. What is set
    /// inside stays inside.
    pub(super) fn captured(&mut self, line: usize, ends: &[&str]) -> Parsed<String> {
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

    pub(super) fn filter_statement(&mut self, line: usize) -> Parsed<()> {
        let mut filters = vec![self.filter_call()?];
        let mut operators = 0;
        while self.skip_sign("|") {
            self.chained(&mut operators)?;
            filters.push(self.filter_call()?);
        }
        self.body_start()?;
        let held = self.captured(line, &["endfilter"])?;
        self.block_end()?;
        let value = Self::apply_filters(held, &filters);
        let _ = write!(self.out, "{}{value}{}", PRINT.0, PRINT.1);
        Ok(())
    }

    pub(super) fn apply_filters(mut value: String, filters: &[(String, String)]) -> String {
        for (name, arguments) in filters {
            value = format!("__filter({name}, {value}{arguments})");
        }
        value
    }

    pub(super) fn with_statement(&mut self, line: usize) -> Parsed<()> {
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
}

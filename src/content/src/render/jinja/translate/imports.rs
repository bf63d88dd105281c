//! Tags that reach other templates: `include`, `import`, `from … import`, and blocks.

use super::super::lexer::Token;
use super::{Parsed, Parser, literal};

impl Parser<'_> {
    pub(super) fn include_statement(&mut self, line: usize) -> Parsed<()> {
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
    pub(super) fn context_marker(&mut self) -> Parsed<Option<bool>> {
        let with = self.is_name("with");
        if with || self.is_name("without") {
            self.at += 1;
            self.expect_keyword("context")?;
            return Ok(Some(with));
        }
        Ok(None)
    }

    /// Writes an import; returns the variable it goes to and the module as an expression.
    pub(super) fn import_head(&mut self, line: usize) -> Parsed<(String, String)> {
        let name = self.expression()?;
        self.expect_keyword("as")?;
        let target = self.expect_name()?;
        let context = self.context_marker()?.unwrap_or(false);
        self.block_end()?;
        let (held, which) = self.held_import(line, &name, context);
        let module = format!("__module({held}, {which})");
        Ok((self.variable(&target), module))
    }

    /// Writes an import of a whole template; returns the variables of the module and of the template.
    fn held_import(&mut self, line: usize, name: &str, with_context: bool) -> (String, String) {
        let prefix = match with_context {
            true => literal(self.prefix),
            false => "none".to_owned(),
        };
        let held = self.fresh();
        let which = self.fresh();
        self.tag(line, &format!("set {which} = __template({name}, {prefix})"));
        self.tag(line, &format!("import {which} as {held}"));
        (held, which)
    }

    pub(super) fn import_names_statement(&mut self, line: usize) -> Parsed<()> {
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
        let (held, which) = self.held_import(line, &name, context == Some(true));
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

    pub(super) fn block_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expect_name()?;
        self.skip_name("scoped");
        let required = if self.skip_name("required") {
            " required"
        } else {
            ""
        };
        self.body_start()?;
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
}

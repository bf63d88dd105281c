//! `set`, and the targets of `set` and `for`.

use super::super::lexer::Token;
use super::{Parsed, Parser, Target, literal};

impl Parser<'_> {
    /// `a`, `(a, b)`: a target without attributes, as the engine writes it.
    pub(super) fn simple_target(&self, target: &Target) -> Parsed<String> {
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

    pub(super) fn target(&mut self) -> Parsed<Target> {
        if self.skip_sign("(") {
            self.down("target")?;
            let inner = self.targets()?;
            self.up();
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

    pub(super) fn targets(&mut self) -> Parsed<Target> {
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
    pub(super) fn assign(&mut self, line: usize, target: &Target, value: &str) -> Parsed<()> {
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

    pub(super) fn set_statement(&mut self, line: usize) -> Parsed<()> {
        let target = self.targets()?;
        if self.skip_sign("=") {
            let value = self.tuple(true)?;
            self.block_end()?;
            return self.assign(line, &target, &value);
        }
        let mut filters = Vec::new();
        let mut operators = 0;
        while self.skip_sign("|") {
            self.chained(&mut operators)?;
            filters.push(self.filter_call()?);
        }
        self.body_start()?;
        let held = self.captured(line, &["endset"])?;
        self.block_end()?;
        let value = Self::apply_filters(held, &filters);
        self.assign(line, &target, &value)
    }
}

//! `macro` and `call`, with their parameters.

use std::fmt::Write as _;

use super::{BLOCK, Parsed, Parser};

impl Parser<'_> {
    /// Parameters of a macro or call block after the `(`.
    ///
    /// Defaults become assignments at the start of the body, since each may use the parameters
    /// before it.
    pub(super) fn parameters(&mut self) -> Parsed<(Vec<String>, String)> {
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

    pub(super) fn callable_body(&mut self, end: &str, at: usize, empty: bool) -> Parsed<()> {
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

    pub(super) fn macro_statement(&mut self, line: usize) -> Parsed<()> {
        let name = self.expect_name()?;
        self.expect_sign("(")?;
        let (parameters, defaults) = self.parameters()?;
        self.body_start()?;
        let name = self.variable(&name);
        self.tag(line, &format!("macro {name}({})", parameters.join(", ")));
        let at = self.out.len() - BLOCK.1.len() - 1;
        self.out.push_str(&defaults);
        self.callable_body("endmacro", at, parameters.is_empty())
    }

    pub(super) fn call_statement(&mut self, line: usize) -> Parsed<()> {
        let (parameters, defaults) = if self.skip_sign("(") {
            self.parameters()?
        } else {
            Default::default()
        };
        let call = self.expression()?;
        if !call.starts_with("__call(") && !call.starts_with("__method(") {
            return self.fail("expected call");
        }
        self.body_start()?;
        let head = format!("call({}", parameters.join(", "));
        self.tag(line, &format!("{head}) {call}"));
        let at = self.out.len() - BLOCK.1.len() - call.len() - 2;
        self.out.push_str(&defaults);
        self.callable_body("endcall", at, parameters.is_empty())
    }
}

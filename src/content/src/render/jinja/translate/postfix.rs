//! Postfix expressions: attributes, items, calls, filters and tests.

use std::fmt::Write as _;

use super::super::lexer::Token;
use super::super::{filters, is_tests};
use super::{Parsed, Parser, literal};

/// Expression between brackets.
enum Subscript {
    Index(String),
    /// The three bounds of a slice.
    Slice(String),
}

impl Parser<'_> {
    pub(super) fn postfix(&mut self, mut value: String) -> Parsed<String> {
        let mut operators = 0;
        loop {
            if self.is_sign(".") || self.is_sign("[") || self.is_sign("(") {
                self.chained(&mut operators)?;
            }
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

    pub(super) fn subscript(&mut self, value: &str) -> Parsed<String> {
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
            [Subscript::Index(index)] => Ok(format!("__item({value}, {index})")),
            [Subscript::Slice(bounds)] => Ok(format!("__slice({value}, {bounds})")),
            several => {
                let mut indexes = Vec::new();
                for part in several {
                    match part {
                        Subscript::Index(index) => indexes.push(index.clone()),
                        Subscript::Slice(_) => {
                            return self.fail("a slice cannot stand beside other indexes");
                        }
                    }
                }
                Ok(format!("__item({value}, __tuple({}))", indexes.join(", ")))
            }
        }
    }

    fn slice_or_index(&mut self) -> Parsed<Subscript> {
        let first = if self.is_sign(":") {
            None
        } else {
            Some(self.expression()?)
        };
        if !self.skip_sign(":") {
            return match first {
                Some(index) => Ok(Subscript::Index(index)),
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
        Ok(Subscript::Slice(bounds.join(", ")))
    }

    /// Arguments after the `(`, each with a comma in front.
    pub(super) fn arguments(&mut self) -> Parsed<String> {
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
    pub(super) fn keyword(&self, name: &str) -> Parsed<String> {
        if !name.is_ascii() {
            return self.fail("keyword arguments must be ASCII");
        }
        if name == "caller" {
            return Ok(name.to_owned());
        }
        Ok(format!("k_{name}"))
    }

    pub(super) fn filter_name(&mut self) -> Parsed<String> {
        let mut name = self.expect_name()?;
        while self.skip_sign(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name)
    }

    /// A filter after `|`: its name as a literal, and its arguments.
    pub(super) fn filter_call(&mut self) -> Parsed<(String, String)> {
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

    pub(super) fn filtered(&mut self, mut value: String) -> Parsed<String> {
        let mut operators = 0;
        loop {
            if self.is_sign("|") || self.is_name("is") || self.is_sign("(") {
                self.chained(&mut operators)?;
            }
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

    pub(super) fn test(&mut self, value: &str) -> Parsed<String> {
        let negated = self.skip_name("not");
        let name = self.filter_name()?;
        if self.soft == 0 && !is_tests::exists(&name) {
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

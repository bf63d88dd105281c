//! Expressions, from the weakest operator to the single value. Each function returns text of the
//! engine's dialect.

use std::fmt::Write as _;

use super::super::lexer::Token;
use super::{Parsed, Parser, SyntaxFault, literal};

impl Parser<'_> {
    /// An expression, or several with commas between, which are a tuple.
    pub(super) fn tuple(&mut self, conditional: bool) -> Parsed<String> {
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

    pub(super) fn expression(&mut self) -> Parsed<String> {
        self.down("expression")?;
        let mut value = self.or()?;
        let mut operators = 0;
        while self.is_name("if") {
            self.chained(&mut operators)?;
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
        self.up();
        Ok(value)
    }

    pub(super) fn or(&mut self) -> Parsed<String> {
        let mut value = self.and()?;
        let mut operators = 0;
        while self.skip_name("or") {
            self.chained(&mut operators)?;
            let right = self.and()?;
            value = format!("(__true({value}) or {right})");
        }
        Ok(value)
    }

    pub(super) fn and(&mut self) -> Parsed<String> {
        let mut value = self.not()?;
        let mut operators = 0;
        while self.skip_name("and") {
            self.chained(&mut operators)?;
            let right = self.not()?;
            value = format!("(__true({value}) and {right})");
        }
        Ok(value)
    }

    pub(super) fn not(&mut self) -> Parsed<String> {
        if self.skip_name("not") {
            self.down("expression")?;
            let value = self.not()?;
            self.up();
            return Ok(format!("(not __true({value}))"));
        }
        self.comparison()
    }

    pub(super) fn comparison(&mut self) -> Parsed<String> {
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
    pub(super) fn binary(
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

    pub(super) fn sum(&mut self) -> Parsed<String> {
        self.binary(&["+", "-"], Self::concatenation)
    }

    pub(super) fn concatenation(&mut self) -> Parsed<String> {
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

    pub(super) fn product(&mut self) -> Parsed<String> {
        self.binary(&["*", "/", "//", "%"], Self::power)
    }

    pub(super) fn power(&mut self) -> Parsed<String> {
        self.binary(&["**"], Self::unary)
    }

    pub(super) fn unary(&mut self) -> Parsed<String> {
        let value = self.signed()?;
        self.filtered(value)
    }

    pub(super) fn signed(&mut self) -> Parsed<String> {
        self.down("expression")?;
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
        self.up();
        Ok(value)
    }

    /// Reads a variable.
    pub(super) fn load(&mut self, name: &str) -> String {
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

    pub(super) fn primary(&mut self) -> Parsed<String> {
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
    pub(super) fn many(&self, make: &str, join: &str, items: &[String]) -> String {
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
    pub(super) fn native_call(&mut self, name: String) -> Parsed<String> {
        let mut text = name;
        if self.skip_sign(".") {
            let block = self.expect_name()?;
            text = format!("{text}.{block}");
        }
        self.expect_sign("(")?;
        self.expect_sign(")")?;
        Ok(format!("{text}()"))
    }
}

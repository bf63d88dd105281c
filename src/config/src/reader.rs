//! Reads typed values from the settings, with a finding for every invalid one.
//!
//! A wrong value never stops the reading: the finding is kept and the default is used, so that one
//! run names all mistakes. Nothing here knows what an option means.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use saltern_base::bytesize::ByteSize;
use saltern_python::number::float_repr;
use zeroize::Zeroizing;

use crate::finding::{Finding, Severity};
use crate::values::{Choice, Secret};
use crate::yaml::{Mapping, Mark, Node, NodeValue};

/// The settings of the files above the defaults of one version.
pub(crate) struct Reader<'a> {
    pub(crate) settings: &'a Mapping,
    pub(crate) defaults: &'a Mapping,
    pub(crate) findings: Vec<Finding>,
    /// The options whose type was checked.
    read: HashSet<String>,
    /// The options whose value was asked for.
    asked: RefCell<HashSet<String>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        settings: &'a Mapping,
        defaults: &'a Mapping,
        findings: Vec<Finding>,
    ) -> Self {
        Self {
            settings,
            defaults,
            findings,
            read: HashSet::new(),
            asked: RefCell::default(),
        }
    }

    /// Records that the caller checks the type of an option itself.
    pub(crate) fn mark_read(&mut self, name: &str) {
        self.read.insert(name.to_owned());
    }

    /// Whether the type of an option was checked, so that a wrong one is a finding already.
    pub(crate) fn is_read(&self, name: &str) -> bool {
        self.read.contains(name)
    }

    /// The options whose value was asked for: those that have a field.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> HashSet<String> {
        self.asked.borrow().clone()
    }

    /// The written value of an option.
    pub(crate) fn written(&self, name: &str) -> Option<&'a Node> {
        if !self.asked.borrow().contains(name) {
            self.asked.borrow_mut().insert(name.to_owned());
        }
        self.settings.get(name)
    }

    /// The effective value: the written one, else the default.
    pub(crate) fn applies(&self, name: &str) -> Option<&'a Node> {
        self.written(name).or_else(|| self.defaults.get(name))
    }

    /// Position of an option's name.
    pub(crate) fn mark(&self, name: &str) -> Mark {
        match self.settings.get_entry(name) {
            Some(entry) => entry.key_mark.clone(),
            None => Mark::nowhere("default"),
        }
    }

    pub(crate) fn find(&mut self, severity: Severity, name: &str, message: impl Into<String>) {
        let finding = Finding::new(severity, &self.mark(name), name, message);
        self.findings.push(finding);
    }

    pub(crate) fn error(&mut self, name: &str, message: impl Into<String>) {
        self.find(Severity::Error, name, message);
    }

    /// The value read by `accept` from what was written, else from the default. `wanted` says what
    /// is accepted; it ends the message about a value that is not.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        wanted: &str,
        accept: impl Fn(&Node) -> Option<T>,
    ) -> Option<T> {
        if let Some(node) = self.written(name) {
            self.mark_read(name);
            match accept(node) {
                Some(value) => return Some(value),
                None => self.error(name, format!("{} is not {wanted}", shown(name, node))),
            }
        }
        self.defaults.get(name).and_then(accept)
    }

    pub(crate) fn bool(&mut self, name: &str) -> bool {
        self.read(name, "true or false", Node::as_bool)
            .unwrap_or(false)
    }

    /// A whole number in a range.
    pub(crate) fn int(&mut self, name: &str, least: i64, most: i64) -> i64 {
        let wanted = match (least, most) {
            (least, i64::MAX) => format!("a whole number of at least {least}"),
            (least, most) => format!("a whole number from {least} to {most}"),
        };
        let accept = |node: &Node| {
            let number = match &node.value {
                NodeValue::Int(number) => *number,
                NodeValue::Float(number) if number.fract() == 0.0 => *number as i64,
                // Stock converts with `int()` where it needs a number.
                NodeValue::Str(text) => text.trim().parse().ok()?,
                _ => return None,
            };
            (least..=most).contains(&number).then_some(number)
        };
        self.read(name, &wanted, accept).unwrap_or(least)
    }

    pub(crate) fn usize(&mut self, name: &str, least: i64, most: i64) -> usize {
        usize::try_from(self.int(name, least, most)).unwrap_or(usize::MAX)
    }

    pub(crate) fn u32(&mut self, name: &str, least: i64) -> u32 {
        u32::try_from(self.int(name, least, i64::from(u32::MAX))).unwrap_or(u32::MAX)
    }

    pub(crate) fn port(&mut self, name: &str) -> u16 {
        u16::try_from(self.int(name, 1, i64::from(u16::MAX))).unwrap_or(u16::MAX)
    }

    /// Seconds, whole or with a fraction.
    pub(crate) fn seconds(&mut self, name: &str) -> Duration {
        let accept = |node: &Node| {
            let number = match &node.value {
                NodeValue::Str(text) => text.trim().parse::<f64>().ok()?,
                _ => node.as_f64()?,
            };
            Duration::try_from_secs_f64(number).ok()
        };
        self.read(name, "a number of seconds, zero or more", accept)
            .unwrap_or_default()
    }

    /// `-1` in stock means "as the system has it".
    pub(crate) fn unless_negative(&mut self, name: &str) -> Option<u32> {
        u32::try_from(self.int(name, -1, i64::from(i32::MAX))).ok()
    }

    /// A number of bytes, also as text with a unit.
    pub(crate) fn bytes(&mut self, name: &str, least: u64) -> usize {
        let wanted = format!(
            "a size of at least {}, such as 33554432 or \"32 MiB\"",
            ByteSize(least)
        );
        let accept = |node: &Node| {
            let bytes = match &node.value {
                NodeValue::Int(number) => u64::try_from(*number).ok()?,
                NodeValue::Str(text) => text.parse::<ByteSize>().ok()?.0,
                _ => return None,
            };
            (bytes >= least).then(|| usize::try_from(bytes).ok())?
        };
        self.read(name, &wanted, accept).unwrap_or_default()
    }

    pub(crate) fn text(&mut self, name: &str) -> String {
        self.read(name, "text", |node| node.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Text, or `None` for null and for the empty text.
    pub(crate) fn optional_text(&mut self, name: &str) -> Option<String> {
        let text = self.read(name, "text", |node| match &node.value {
            NodeValue::Null => Some(String::new()),
            _ => node.as_str().map(str::to_owned),
        });
        text.filter(|text| !text.is_empty())
    }

    pub(crate) fn address(&mut self, name: &str) -> Option<IpAddr> {
        let wanted = "an IP address of this host, such as 0.0.0.0, 192.0.2.1 or \"::\"";
        self.read(name, wanted, |node| {
            node.as_str()?
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse()
                .ok()
        })
    }

    /// A choice for which nothing may be written.
    pub(crate) fn optional_choice<T: Choice>(&mut self, name: &str) -> Option<T> {
        if self.applies(name).is_none_or(Node::is_null) {
            return None;
        }
        self.choice(name)
    }

    /// A passphrase; nothing and the empty text are none.
    pub(crate) fn secret(&mut self, name: &str) -> Option<Secret> {
        let text = Zeroizing::new(self.optional_text(name)?);
        Some(Secret::new(&text))
    }

    pub(crate) fn choice<T: Choice>(&mut self, name: &str) -> Option<T> {
        let names: Vec<&str> = T::CHOICES.iter().map(|(name, _)| *name).collect();
        let wanted = format!("one of {}", names.join(", "));
        self.read(name, &wanted, |node| match &node.value {
            // YAML reads a bare `off` as false.
            NodeValue::Bool(false) => T::from_name("off"),
            _ => T::from_name(node.as_str()?),
        })
    }
}

/// Whether a name, of an option or of an entry inside one, is one whose value must not be shown.
///
/// Sites and Python modules have options of their own, so it is decided by parts of the name. What
/// begins with `pass_` belongs to the external pillar `pass` and says where and how it looks. The
/// connection of a cluster has its password within a text.
pub fn is_secret(name: &str) -> bool {
    let parts = ["pass", "secret", "priv", "bindpw"];
    name == "saltern_cluster"
        || !name.starts_with("pass_") && parts.iter().any(|part| name.contains(part))
}

/// A value for a message: short, and hidden if it may be a secret.
pub(crate) fn shown(name: &str, node: &Node) -> String {
    if is_secret(name) {
        return format!("the value ({})", node.kind());
    }
    match &node.value {
        NodeValue::Null => "nothing".to_owned(),
        NodeValue::Bool(flag) => flag.to_string(),
        NodeValue::Int(number) => number.to_string(),
        NodeValue::BigInt(digits) => digits.clone(),
        NodeValue::Float(number) => float_repr(*number),
        NodeValue::Str(text) | NodeValue::Timestamp(text) => {
            let start: String = text.chars().take(60).collect();
            let dots = if start.len() < text.len() { "…" } else { "" };
            format!("\"{}{dots}\"", start.escape_debug())
        }
        NodeValue::Binary(_) | NodeValue::Seq(_) | NodeValue::Map(_) => node.kind().to_owned(),
    }
}

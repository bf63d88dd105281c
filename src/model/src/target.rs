//! The target of a job.

use std::fmt;

/// How a target expression is to be read; the names are those on the wire (`tgt_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetType {
    /// Shell-style wildcards over minion ids.
    Glob,
    /// A list of minion ids.
    List,
    /// A regular expression over minion ids.
    Pcre,
    /// A grain path and a wildcard.
    Grain,
    /// A grain path and a regular expression.
    GrainPcre,
    /// A pillar path and a wildcard.
    Pillar,
    /// A pillar path and a regular expression.
    PillarPcre,
    /// A pillar path and an exact value.
    PillarExact,
    /// An address or a network.
    Ipcidr,
    /// A range expression.
    Range,
    /// A named group of the master's configuration.
    Nodegroup,
    /// Several of these, joined by `and`, `or` and `not`.
    Compound,
}

impl TargetType {
    const NAMES: [(&'static str, Self); 12] = [
        ("glob", Self::Glob),
        ("list", Self::List),
        ("pcre", Self::Pcre),
        ("grain", Self::Grain),
        ("grain_pcre", Self::GrainPcre),
        ("pillar", Self::Pillar),
        ("pillar_pcre", Self::PillarPcre),
        ("pillar_exact", Self::PillarExact),
        ("ipcidr", Self::Ipcidr),
        ("range", Self::Range),
        ("nodegroup", Self::Nodegroup),
        ("compound", Self::Compound),
    ];

    /// Reads the name on the wire.
    pub fn from_wire(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    /// The name on the wire.
    pub fn wire_name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map(|(name, _)| *name)
            .expect("every kind stands in the table")
    }
}

impl fmt::Display for TargetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wire_name())
    }
}

/// A target expression, not yet resolved to minions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One text, to be read as its type says.
    Expression(TargetType, String),
    /// A list of ids, as they came: they need not be valid ids, only known ones match.
    List(Vec<String>),
    /// A compound expression that its sender has split into words already, as clients do with
    /// nodegroups; a word may hold spaces then.
    Words(Vec<String>),
}

impl Target {
    /// The type on the wire.
    pub fn kind(&self) -> TargetType {
        match self {
            Self::Expression(kind, _) => *kind,
            Self::List(_) => TargetType::List,
            Self::Words(_) => TargetType::Compound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression(_, text) => f.write_str(text),
            Self::List(ids) => f.write_str(&ids.join(",")),
            Self::Words(words) => f.write_str(&words.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_type_names_round_trip() {
        for (name, kind) in TargetType::NAMES {
            assert_eq!(TargetType::from_wire(name), Some(kind));
            assert_eq!(kind.wire_name(), name);
        }
        assert_eq!(TargetType::from_wire("GLOB"), None);
    }
}

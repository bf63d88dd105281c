//! Peer calls: what minions may call on other minions and on the master (`peer` and `peer_run`,
//! `__verify_minion_publish` and `minion_runner` in `salt/daemons/masterapi.py`).
//!
//! A minion, found by a regular expression over ids, has a list of rules: those of users
//! ([`crate::acl`]) in `peer`, regular expressions over functions in `peer_run`. An expression that
//! does not parse matches nothing and is logged once, at the start.

use saltern_model::MinionId;
use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;

use crate::acl::Rules;

/// The option `peer`, ready for use.
#[derive(Default)]
pub struct PeerRules(Vec<(Pattern, Value)>);

impl PeerRules {
    /// From the option's entries; an entry that is not a list has no rules.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let lists = entries
            .into_iter()
            .filter(|(_, rules)| rules.as_array().is_some());
        let rules = lists.filter_map(|(minions, rules)| Some((compiled("peer", minions)?, rules)));
        Self(rules.collect())
    }

    /// Whether no minion may make peer calls.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules of all entries that match the minion.
    pub fn rules_of(&self, minion: &MinionId) -> Rules {
        let mut rules = Rules::default();
        for (minions, entry) in &self.0 {
            if minions.matches(minion.as_str()) {
                rules.add(entry);
            }
        }
        rules
    }
}

/// The option `peer_run`, ready for use.
#[derive(Default)]
pub struct PeerRunRules(Vec<(Pattern, Vec<Pattern>)>);

impl PeerRunRules {
    /// From the option's entries; an entry that is not a list of texts has no rules.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let rules = entries.into_iter().filter_map(|(minions, functions)| {
            let functions = functions.as_array()?.iter().filter_map(Value::as_str);
            let functions = functions.filter_map(|function| compiled("peer_run", function));
            Some((compiled("peer_run", minions)?, functions.collect()))
        });
        Self(rules.collect())
    }

    /// Whether this minion may run this function of the master.
    pub fn allow(&self, minion: &MinionId, function: &str) -> bool {
        self.0.iter().any(|(minions, functions)| {
            minions.matches(minion.as_str())
                && functions.iter().any(|allowed| allowed.matches(function))
        })
    }
}

fn compiled(option: &'static str, expression: &str) -> Option<Pattern> {
    Pattern::regex_at_start(expression)
        .inspect_err(|error| {
            tracing::error!(%error, option, "an expression of the configuration matches nothing");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MinionId {
        MinionId::parse(text).expect("an id")
    }

    fn list(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|text| Value::from(*text)).collect())
    }

    #[test]
    fn peer_rules_of_all_matching_expressions_apply() {
        let rules = PeerRules::new([
            ("web.*", list(&["test.ping"])),
            ("web1", list(&["grains.get", "disk.usage"])),
            ("(", list(&["cmd.run"])),
            ("web2", Value::from("cmd.run")),
        ]);
        assert!(!rules.is_empty());
        let table: [(&str, &[&str]); 4] = [
            ("web1", &["test.ping", "grains.get", "disk.usage"]),
            ("web2", &["test.ping"]),
            ("web10", &["test.ping", "grains.get", "disk.usage"]),
            ("aweb1", &[]),
        ];
        for (minion, expected) in table {
            let found = rules.rules_of(&id(minion)).to_value();
            assert_eq!(found, list(expected), "{minion}");
        }
        assert!(PeerRules::new([("a", Value::Nil)]).is_empty());
    }

    #[test]
    fn runner_functions_are_allowed_by_their_names() {
        let functions = Value::Array(vec!["jobs\\..*".into(), Value::map([("manage.up", "x")])]);
        let rules = PeerRunRules::new([("m[12]", functions), ("(", list(&[".*"]))]);
        assert!(rules.allow(&id("m1"), "jobs.list_jobs"));
        assert!(!rules.allow(&id("m3"), "jobs.list_jobs"));
        assert!(!rules.allow(&id("m1"), "manage.up"));
    }
}

//! Named groups of the master's configuration, and what they expand to.
//!
//! Source: `nodegroup_comp` and `_nodegroup_regex` in `salt/utils/minions.py`, with their
//! peculiarities: a group that names no other group is not put into parentheses, a group that
//! cannot be expanded vanishes from the expression.

use std::collections::HashMap;

use saltern_config::yaml::Node;

use crate::target::{Problems, TargetError, Targeting};

/// The option `nodegroups`.
#[derive(Clone, Debug, Default)]
pub struct Nodegroups {
    groups: HashMap<String, Option<Vec<String>>>,
}

/// The words that a compound target is made of.
pub(super) const OPERATORS: [&str; 5] = ["and", "or", "not", "(", ")"];

/// The most words that one target may expand to; groups of groups multiply.
pub(super) const MAX_WORDS: usize = 100_000;

impl Nodegroups {
    /// Reads the option as it stands in the configuration. A group that is neither a text nor a
    /// list, or a list that holds something else than texts, is kept as unusable.
    pub fn from_node(node: &Node) -> Self {
        let entries = node.as_map().into_iter().flat_map(|map| map.iter());
        let groups = entries.filter_map(|(name, entry)| {
            let name = name.as_str()?.to_owned();
            let words = match (entry.value.as_str(), entry.value.as_seq()) {
                (Some(text), _) => Some(
                    saltern_python::text::split(text)
                        .map(str::to_owned)
                        .collect(),
                ),
                (None, Some(items)) => {
                    let words = items.iter().map(|item| item.as_str().map(str::to_owned));
                    words.collect::<Option<Vec<String>>>()
                }
                (None, None) => None,
            };
            Some((name, words))
        });
        Self {
            groups: groups.collect(),
        }
    }

    /// The words that stand for the group in a compound expression, none when there is no such
    /// group or it contains itself.
    pub(super) fn expand(
        &self,
        name: &str,
        problems: &mut Problems,
    ) -> Result<Vec<String>, TargetError> {
        let mut size = 0;
        let words = self.words(name, &mut Vec::new(), &mut size, problems)?;
        Ok(words.unwrap_or_default())
    }

    fn words<'a>(
        &'a self,
        name: &'a str,
        inside: &mut Vec<&'a str>,
        size: &mut usize,
        problems: &mut Problems,
    ) -> Result<Option<Vec<String>>, TargetError> {
        if inside.contains(&name) {
            problems.add(name, "is a nodegroup that contains itself");
            return Ok(None);
        }
        let Some(group) = self.groups.get(name) else {
            problems.add(name, "is no nodegroup");
            return Ok(None);
        };
        let words = group
            .as_ref()
            .ok_or_else(|| TargetError::Nodegroup(name.to_owned()))?;
        let is_first = inside.is_empty();
        let mut has_groups = false;
        let mut expanded = Vec::new();
        inside.push(name);
        for word in words {
            *size += 1;
            if *size > MAX_WORDS {
                return Err(TargetError::Nodegroup(name.to_owned()));
            }
            match word.strip_prefix("N@").filter(|inner| !inner.is_empty()) {
                Some(inner) => {
                    has_groups = true;
                    let words = self.words(inner, inside, size, problems)?;
                    expanded.extend(words.unwrap_or_default());
                }
                None => expanded.push(word.clone()),
            }
        }
        inside.pop();
        if has_groups && is_first {
            return Ok(Some(in_parentheses(expanded)));
        }
        if let Some(joined) = as_list(words) {
            return Ok(Some(vec![joined]));
        }
        Ok(Some(match is_first {
            true => words.clone(),
            false => in_parentheses(expanded),
        }))
    }
}

impl Targeting {
    /// The words of a compound target with its nodegroups written out, so that minions, which know
    /// none, can read them (`_prep_pub` in `salt/client/__init__.py`). A group that cannot be
    /// expanded vanishes.
    ///
    /// # Errors
    /// When a group is neither a text nor a list, or too large.
    pub fn without_nodegroups(&self, words: &[String]) -> Result<Vec<String>, TargetError> {
        let Some(site) = &self.site else {
            return Ok(words.to_vec());
        };
        let mut written_out = Vec::new();
        for word in words {
            match word.strip_prefix("N@").filter(|name| !name.is_empty()) {
                Some(name) => {
                    let mut problems = Problems::default();
                    written_out.extend(site.nodegroups.expand(name, &mut problems)?);
                }
                None => written_out.push(word.clone()),
            }
            if written_out.len() > MAX_WORDS {
                return Err(TargetError::TooLong);
            }
        }
        Ok(written_out)
    }
}

fn in_parentheses(mut words: Vec<String>) -> Vec<String> {
    if !words.is_empty() {
        words.insert(0, "(".to_owned());
        words.push(")".to_owned());
    }
    words
}

/// A group without operators, wildcards and engines is a list of ids, or of expressions over ids.
fn as_list(words: &[String]) -> Option<String> {
    let is_engine = |word: &str| {
        let mut bytes = word.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_uppercase()) && bytes.next() == Some(b'@')
    };
    let is_compound =
        |word: &String| OPERATORS.contains(&word.as_str()) || word.contains('*') || is_engine(word);
    if words.iter().any(is_compound) {
        return None;
    }
    let is_expression = |word: &String| word.contains(['(', '[', '{', '\\', '?', '}', ']', ')']);
    let engine = if words.iter().any(is_expression) {
        "E@"
    } else {
        "L@"
    };
    Some(format!("{engine}{}", words.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::Site;
    use saltern_config::yaml::{Limits, parse};
    use saltern_model::Compat;

    fn groups() -> Nodegroups {
        let text = "
list: [web1, web2]
text: web1 web2
regex: web[12]
compound: G@os:Debian or db*
star: web*
nested: N@list and not N@compound
deep: N@nested or N@list
loop: N@pool
pool: N@loop or x*
odd: [1, a]
worse: {a: b}
empty: []
upper: Web1 db1
engine: G@os:Debian
";
        let node = parse(text, "test", &Limits::DEFAULT).unwrap();
        Nodegroups::from_node(&node)
    }

    #[test]
    fn groups_expand_as_in_stock() {
        let table = [
            ("list", "L@web1,web2"),
            ("text", "L@web1,web2"),
            ("regex", "E@web[12]"),
            ("compound", "G@os:Debian or db*"),
            ("star", "web*"),
            ("nested", "( L@web1,web2 and not ( G@os:Debian or db* ) )"),
            ("loop", "( ( or x* ) )"),
            ("unknown", ""),
            ("empty", "L@"),
            ("upper", "L@Web1,db1"),
            ("engine", "G@os:Debian"),
        ];
        for (name, words) in table {
            let mut problems = Problems::default();
            let expanded = groups().expand(name, &mut problems).unwrap();
            assert_eq!(expanded.join(" "), words, "{name}");
            assert_eq!(problems.is_empty(), !["loop", "unknown"].contains(&name));
        }
        for name in ["odd", "worse"] {
            assert_eq!(
                groups().expand(name, &mut Problems::default()),
                Err(TargetError::Nodegroup(name.to_owned()))
            );
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn groups_are_written_out_for_minions() {
        let site = Site::new(Compat::V3008, groups(), None);
        let asked = words(&["N@text", "or", "N@compound", "and", "N@", "x", "N@unknown"]);
        let written_out = Targeting::of(site).without_nodegroups(&asked);
        let expected = "L@web1,web2 or G@os:Debian or db* and N@ x";
        assert_eq!(written_out.unwrap().join(" "), expected);
        // One without a site knows no groups.
        let kept = Targeting::default().without_nodegroups(&asked);
        assert_eq!(kept, Ok(asked));
    }

    #[test]
    fn words_of_groups_are_bounded() {
        let groups = |count| Nodegroups {
            groups: HashMap::from([("g".to_owned(), Some(words(&["web*"; 100_001][..count])))]),
        };
        let expand = |count| groups(count).expand("g", &mut Problems::default());
        assert_eq!(expand(100_000).map(|words| words.len()), Ok(100_000));
        assert_eq!(expand(100_001), Err(TargetError::Nodegroup("g".to_owned())));
        let targeting = Targeting::of(Site::new(Compat::V3008, groups(99_999), None));
        let written_out = |asked: &[&str]| targeting.without_nodegroups(&words(asked));
        let most = written_out(&["N@g", "x"]);
        assert_eq!(most.map(|words| words.len()), Ok(100_000));
        assert_eq!(written_out(&["N@g", "x", "x"]), Err(TargetError::TooLong));
        assert_eq!(written_out(&["x", "x", "N@g"]), Err(TargetError::TooLong));
    }
}

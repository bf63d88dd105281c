//! The parameters of a remote: its own, else those that the configuration has for all remotes
//! (`gitfs_base`, `git_pillar_base`, …), as `GitProvider.__init__` of `salt/utils/gitfs.py` takes
//! them.

use saltern_config::yaml::{Node, NodeValue};
use saltern_config::{MasterConfig, RemoteKind};
use saltern_python::number::float_repr;

use super::error::GitError;
use super::origin::shown;

/// Credential parameters, which each remote may have.
pub(crate) const AUTH_PARAMETERS: &[&str] = &[
    "user",
    "password",
    "pubkey",
    "privkey",
    "passphrase",
    "insecure_auth",
];

/// The parameters of one remote.
pub(crate) struct Parameters<'a> {
    config: &'a MasterConfig,
    kind: RemoteKind,
    /// The remote as it is written, without its parameters; it may hold a password.
    remote: String,
    /// The same for messages.
    pub(crate) shown: String,
    own: Vec<(String, &'a Node)>,
}

impl<'a> Parameters<'a> {
    /// A remote as it stands in a list of remotes: a text, or a mapping of a text to a list of
    /// parameters. `option` is where the list stands, for messages.
    ///
    /// # Errors
    /// [`GitError::Option`], also for a parameter that is not among `known`.
    pub(crate) fn of(
        config: &'a MasterConfig,
        kind: RemoteKind,
        option: &str,
        remote: &'a Node,
        known: &[&[&str]],
    ) -> Result<Self, GitError> {
        let wrong = |problem: String| GitError::option(option, problem);
        if let Some(id) = remote.as_str() {
            return Ok(Self {
                config,
                kind,
                remote: id.to_owned(),
                shown: shown(id),
                own: Vec::new(),
            });
        }
        let (key, entry) = remote
            .as_map()
            .and_then(|map| map.iter().next())
            .ok_or_else(|| wrong(format!("{} is no remote", remote.kind())))?;
        let remote = key.to_string();
        let id = shown(&remote);
        let own = pairs(&entry.value)
            .filter(|own| !own.is_empty())
            .ok_or_else(|| {
                wrong(format!(
                    "what follows the remote \"{id}\" is no list of parameters"
                ))
            })?;
        for (name, _) in &own {
            if !known.iter().any(|names| names.contains(&name.as_str())) {
                return Err(wrong(format!(
                    "the remote \"{id}\" has the parameter \"{name}\", which there is not"
                )));
            }
        }
        Ok(Self {
            config,
            kind,
            remote,
            shown: id,
            own,
        })
    }

    /// The remote as it is written, without its parameters. It may hold a password.
    pub(crate) fn remote(&self) -> &str {
        &self.remote
    }

    /// An error about this remote.
    pub(crate) fn wrong(&self, name: &str, problem: impl std::fmt::Display) -> GitError {
        let option = format!("{}_{name}", self.kind.name());
        GitError::option(option, format!("{problem} (remote \"{}\")", self.shown))
    }

    /// A parameter of this remote alone.
    pub(crate) fn own(&self, name: &str) -> Option<&'a Node> {
        let found = self.own.iter().rev().find(|(found, _)| found == name);
        found.map(|(_, node)| *node).filter(|node| !node.is_null())
    }

    /// A parameter of this remote, else of all.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        self.own(name)
            .or_else(|| self.config.of_all_remotes(self.kind, name)?.node())
            .filter(|node| !node.is_null())
    }

    /// A parameter, but not its default.
    pub(crate) fn written(&self, name: &str) -> Option<&'a Node> {
        let of_all = self.config.of_all_remotes(self.kind, name);
        let of_all = of_all.and_then(|option| option.written());
        self.own(name).or(of_all).filter(|node| !node.is_null())
    }

    /// A text, without one an empty text; numbers are written out.
    pub(crate) fn text(&self, name: &str) -> Result<String, GitError> {
        match self.get(name) {
            None => Ok(String::new()),
            Some(node) => text_of(node)
                .ok_or_else(|| self.wrong(name, format_args!("{} is no text", node.kind()))),
        }
    }

    /// Whether the option is true in Python's sense.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(Node::is_truthy)
    }

    /// A list of texts; one text is a list with commas.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<String>, GitError> {
        let Some(node) = self.get(name) else {
            return Ok(Vec::new());
        };
        let wrong = || self.wrong(name, format_args!("{} is no list of texts", node.kind()));
        match node.as_seq() {
            Some(items) => items
                .iter()
                .map(|item| text_of(item).ok_or_else(wrong))
                .collect(),
            None => {
                let text = text_of(node).ok_or_else(wrong)?;
                Ok(text.split(',').map(|part| part.trim().to_owned()).collect())
            }
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, GitError> {
        self.number_of(name, self.get(name))
    }

    /// As [`Parameters::number`], from a node of this parameter.
    pub(crate) fn number_of(
        &self,
        name: &str,
        node: Option<&Node>,
    ) -> Result<Option<u64>, GitError> {
        let Some(node) = node else { return Ok(None) };
        let number = node.as_i64().and_then(|number| u64::try_from(number).ok());
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, format_args!("{} is no count", node.kind()))),
        }
    }
}

/// `str` of Python, for values that it makes sense for.
pub(crate) fn text_of(node: &Node) -> Option<String> {
    match &node.value {
        NodeValue::Str(text) | NodeValue::Timestamp(text) | NodeValue::BigInt(text) => {
            Some(text.clone())
        }
        NodeValue::Int(number) => Some(number.to_string()),
        NodeValue::Float(number) => Some(float_repr(*number)),
        NodeValue::Bool(true) => Some("True".to_owned()),
        NodeValue::Bool(false) => Some("False".to_owned()),
        _ => None,
    }
}

/// A list of mappings with one entry each, as Salt writes parameters; `None` for anything else.
pub(crate) fn pairs(node: &Node) -> Option<Vec<(String, &Node)>> {
    node.as_seq()?
        .iter()
        .map(|item| {
            let map = item.as_map().filter(|map| map.len() == 1)?;
            let (key, entry) = map.iter().next()?;
            Some((key.to_string(), &entry.value))
        })
        .collect()
}

//! Permission to see events (`saltern_api_event_acl`): a list of tag wildcards for each user.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use saltern_config::yaml::{Key, Node};
use saltern_python::expression::{ExpressionError, Pattern};

/// The user whose list holds for all that have none.
const ANY_USER: &str = "*";

/// Why rules cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Another form.
    #[error("saltern_api_event_acl is not a map of users to lists of tags")]
    Form,
    /// A tag is no wildcard.
    #[error("saltern_api_event_acl: a tag cannot be used")]
    Wildcard(#[from] ExpressionError),
}

/// Tags that may be seen: one of the patterns matches.
#[derive(Clone, Default)]
pub struct TagRules(Vec<Pattern>);

impl TagRules {
    /// Compiles wildcards.
    ///
    /// # Errors
    /// When one cannot be used.
    pub fn compile<'a>(tags: impl IntoIterator<Item = &'a str>) -> Result<Self, ExpressionError> {
        let patterns = tags.into_iter().map(Pattern::glob);
        Ok(Self(patterns.collect::<Result<_, _>>()?))
    }

    /// Whether a tag matches.
    pub fn allow(&self, tag: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(tag))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

type Users = HashMap<String, Arc<TagRules>>;

/// The rules of all users, compiled once for each configuration.
#[derive(Default)]
pub struct EventAcl {
    /// `None`: everybody who is logged in sees all events, as with stock.
    users: RwLock<Option<Users>>,
}

impl EventAcl {
    /// Takes the rules of a configuration; streams that are open follow them.
    ///
    /// # Errors
    /// When they cannot be used; then the old ones stay.
    pub fn follow(&self, rules: Option<&Node>) -> Result<(), AclError> {
        let rules = rules.filter(|rules| !rules.is_null());
        let users = rules.map(read).transpose()?;
        *self.users.write() = users;
        Ok(())
    }

    /// The rules of a user; `None` for no limit.
    pub fn rules_of(&self, user: &str) -> Option<Arc<TagRules>> {
        let users = self.users.read();
        let users = users.as_ref()?;
        let rules = users.get(user).or_else(|| users.get(ANY_USER));
        Some(rules.cloned().unwrap_or_default())
    }
}

fn read(rules: &Node) -> Result<Users, AclError> {
    let rules = rules.as_map().ok_or(AclError::Form)?;
    let mut users = Users::new();
    for (user, entry) in rules.iter() {
        let user = Key::as_str(user).ok_or(AclError::Form)?;
        let tags = entry.value.as_seq().ok_or(AclError::Form)?;
        let tags: Option<Vec<&str>> = tags.iter().map(Node::as_str).collect();
        let tags = TagRules::compile(tags.ok_or(AclError::Form)?)?;
        users.insert(user.to_owned(), Arc::new(tags));
    }
    Ok(users)
}

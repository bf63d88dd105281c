//! Event tags.

use std::fmt;
use std::sync::Arc;

/// A validated event tag; cheap to clone.
///
/// On the bus a tag ends at the first blank line, so a tag with a line break could make its reader
/// take data for tag or the reverse; such a tag, an empty one and an absurdly long one are refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(Arc<str>);

/// Why a text is not an event tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// Nothing at all.
    #[error("an event tag may not be empty")]
    Empty,
    /// More than [`Tag::MAX_BYTES`].
    #[error("an event tag may have at most 4096 bytes, this one has {0}")]
    TooLong(usize),
    /// A line break.
    #[error("an event tag may not contain a line break")]
    LineBreak,
}

impl Tag {
    /// The most bytes a tag may have.
    pub const MAX_BYTES: usize = 4096;

    /// Checks `text` and makes it a tag.
    pub fn parse(text: &str) -> Result<Self, TagError> {
        if text.is_empty() {
            return Err(TagError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(TagError::TooLong(text.len()));
        }
        if text.contains('\n') {
            return Err(TagError::LineBreak);
        }
        Ok(Self(Arc::from(text)))
    }

    /// A tag that this program makes of parts that are valid already.
    fn trusted(text: String) -> Self {
        debug_assert!(Self::parse(&text).is_ok(), "{text:?}");
        Self(Arc::from(text))
    }

    /// `salt/job/<jid>/new`.
    pub fn job_new(jid: &crate::Jid) -> Self {
        Self::trusted(format!("salt/job/{jid}/new"))
    }

    /// `salt/job/<jid>/publish` (3007 and 3008).
    pub fn job_publish(jid: &crate::Jid) -> Self {
        Self::trusted(format!("salt/job/{jid}/publish"))
    }

    /// `salt/job/<jid>/error`: a publication under this jid was refused.
    pub fn job_error(jid: &crate::Jid) -> Self {
        Self::trusted(format!("salt/job/{jid}/error"))
    }

    /// `salt/job/<jid>/ret/<id>`.
    pub fn job_return(jid: &crate::Jid, id: &crate::MinionId) -> Self {
        Self::trusted(format!("salt/job/{jid}/ret/{id}"))
    }

    /// `salt/run/<jid>/<what>`: a call of a runner function began (`new`), has something to say
    /// (`progress`) or is done (`ret`).
    pub fn run(jid: &crate::Jid, what: &'static str) -> Self {
        Self::trusted(format!("salt/run/{jid}/{what}"))
    }

    /// `salt/wheel/<jid>/<what>`: the same of a wheel function (`new`, `ret`).
    pub fn wheel(jid: &crate::Jid, what: &'static str) -> Self {
        Self::trusted(format!("salt/wheel/{jid}/{what}"))
    }

    /// `saltern/store/<state>`: how much room the job database has (`roomy`, `low`, `full`).
    pub fn store(state: &'static str) -> Self {
        Self::trusted(format!("saltern/store/{state}"))
    }

    /// `saltern/engine/<what>`: what became of an engine (`given_up`).
    pub fn engine(what: &'static str) -> Self {
        Self::trusted(format!("saltern/engine/{what}"))
    }

    /// `<jid>`: the targeted minions (3006 and 3007).
    pub fn bare_jid(jid: &crate::Jid) -> Self {
        Self::trusted(jid.to_string())
    }

    /// `salt/batch/<jid>/<what>` (3008): what becomes of a batch.
    pub fn batch(jid: &crate::Jid, what: &'static str) -> Self {
        Self::trusted(format!("salt/batch/{jid}/{what}"))
    }

    /// `saltern/job/<jid>/progress`: how many have returned so far.
    pub fn job_progress(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/job/{jid}/progress"))
    }

    /// `saltern/job/<jid>/state`: the progress of an open job, for a new subscriber.
    pub fn job_state(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/job/{jid}/state"))
    }

    /// `saltern/job/<jid>/verdict`: minions were given up, are back, or returned late.
    pub fn job_verdict(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/job/{jid}/verdict"))
    }

    /// `saltern/job/<jid>/below`: a syndic says why minions below it have not returned.
    pub fn job_below(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/job/{jid}/below"))
    }

    /// `saltern/job/<jid>/finished`: the job ended; the minions that returned and those that did
    /// not.
    pub fn job_finished(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/job/{jid}/finished"))
    }

    /// `salt/auth`.
    pub fn auth() -> Self {
        Self::trusted("salt/auth".to_owned())
    }

    /// `salt/key`: a key was accepted, rejected or deleted.
    pub fn key() -> Self {
        Self::trusted("salt/key".to_owned())
    }

    /// `minion/refresh/<id>`: the cached grains and pillar are new.
    pub fn minion_refresh(id: &crate::MinionId) -> Self {
        Self::trusted(format!("minion/refresh/{id}"))
    }

    /// `resource/refresh/<id>`: the resources of a minion are new (3008).
    pub fn resource_refresh(id: &crate::MinionId) -> Self {
        Self::trusted(format!("resource/refresh/{id}"))
    }

    /// `salt/fileserver/<backend>/update`: the files of a backend were looked at.
    pub fn file_update(backend: &'static str) -> Self {
        Self::trusted(format!("salt/fileserver/{backend}/update"))
    }

    /// `salt/presence/present`: the connected minions.
    pub fn presence_present() -> Self {
        Self::trusted("salt/presence/present".to_owned())
    }

    /// `salt/presence/change`: the minions that connected and that disconnected.
    pub fn presence_change() -> Self {
        Self::trusted("salt/presence/change".to_owned())
    }

    /// `key`: the shared AES key was rotated.
    pub fn key_rotated() -> Self {
        Self::trusted("key".to_owned())
    }

    /// `saltern/run/<jid>/step`: a step of an orchestration has ended.
    pub fn step(jid: &crate::Jid) -> Self {
        Self::trusted(format!("saltern/run/{jid}/step"))
    }

    /// `saltern/reactor/<what>`: what the reactor could not do (`failed`, `dropped`, `lost`).
    pub fn reactor(what: &'static str) -> Self {
        Self::trusted(format!("saltern/reactor/{what}"))
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_tags_are_refused() {
        assert!(Tag::parse("salt/job/1/new").is_ok());
        assert_eq!(Tag::parse(""), Err(TagError::Empty));
        assert_eq!(Tag::parse("a\n\nb"), Err(TagError::LineBreak));
        assert_eq!(Tag::parse(&"x".repeat(4097)), Err(TagError::TooLong(4097)));
    }
}

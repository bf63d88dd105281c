//! What passes between a function and whoever runs it, beside arguments and value: what it tells on
//! its way, and the little that it has to ask. Neither side knows the other.

use saltern_model::{MinionId, Tag};
use saltern_wire::msgpack::Value;

use crate::call::{CallResult, RunnerError};

/// What a function tells while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A function that only Python knew to be there has been found, and begins.
    Began,
    /// Something for who watches the call: the data of its event `…/progress`.
    Progress(Value),
    /// An event of its own.
    Event(Tag, Value),
    /// The key that this minion proved itself with is gone: what is kept of it belongs to nobody.
    KeyGone(MinionId),
}

/// Takes what a function tells while it runs, and what it has to ask.
pub struct Notices<'a> {
    tell: &'a mut dyn FnMut(Notice),
    left: usize,
    log_in: Option<&'a dyn Fn(&Value) -> Value>,
}

impl<'a> Notices<'a> {
    /// Messages of one call about how far it is; the rest is left out.
    const MAX_NOTICES: usize = 1_000;

    /// Gives everything to `tell`.
    pub fn new(tell: &'a mut dyn FnMut(Notice)) -> Self {
        Self {
            tell,
            left: Self::MAX_NOTICES,
            log_in: None,
        }
    }

    /// The same, where users can log in: `log_in` gives a token for a load with what proves a user,
    /// or an empty text.
    pub fn with_log_in(self, log_in: &'a dyn Fn(&Value) -> Value) -> Self {
        Self {
            log_in: Some(log_in),
            ..self
        }
    }

    /// See [`Notice::Began`].
    pub(crate) fn began(&mut self) {
        (self.tell)(Notice::Began);
    }

    /// A message for who watches the call, as many as are worth reading.
    pub(crate) fn say(&mut self, message: &str) {
        self.progress(Value::map([("message", message)]));
    }

    /// The same with data of any form.
    pub(crate) fn progress(&mut self, data: Value) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            (self.tell)(Notice::Progress(data));
        }
    }

    /// The token of a user who logs in, or an empty text.
    pub(crate) fn log_in(&self, load: &Value) -> CallResult {
        let log_in = self.log_in.ok_or_else(|| {
            RunnerError::Refused("nobody can log in here: ask the master".to_owned())
        })?;
        Ok(log_in(load))
    }

    /// An event of its own.
    pub(crate) fn fire(&mut self, tag: Tag, data: Value) {
        (self.tell)(Notice::Event(tag, data));
    }

    /// See [`Notice::KeyGone`].
    pub(crate) fn key_gone(&mut self, minion: MinionId) {
        (self.tell)(Notice::KeyGone(minion));
    }
}

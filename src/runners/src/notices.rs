//! Channel between a running function and its caller, beside arguments and value: progress and
//! events out, log-ins in. Neither side knows the other.

use saltern_model::{MinionId, Tag};
use saltern_wire::msgpack::Value;

use crate::call::{CallResult, RunnerError};

/// Notice that a function sends while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A function that only Python knew to be there has been found, and begins.
    Began,
    /// Data of the call's event `…/progress`.
    Progress(Value),
    /// An event of its own.
    Event(Tag, Value),
    /// The key that this minion proved itself with is gone: its cached data has no owner any more.
    KeyGone(MinionId),
}

/// Takes a function's notices while it runs, and serves its log-ins.
pub struct Notices<'a> {
    sink: &'a mut dyn FnMut(Notice),
    left: usize,
    log_in: Option<&'a dyn Fn(&Value) -> Value>,
}

impl<'a> Notices<'a> {
    /// The most progress messages of one call; later ones are dropped.
    const MAX_NOTICES: usize = 1_000;

    /// Passes every notice to `sink`.
    pub fn new(sink: &'a mut dyn FnMut(Notice)) -> Self {
        Self {
            sink,
            left: Self::MAX_NOTICES,
            log_in: None,
        }
    }

    /// Adds log-ins: `log_in` gives a token for a load with a user's credentials, or an empty text.
    pub fn with_log_in(self, log_in: &'a dyn Fn(&Value) -> Value) -> Self {
        Self {
            log_in: Some(log_in),
            ..self
        }
    }

    /// Sends [`Notice::Began`].
    pub(crate) fn began(&mut self) {
        (self.sink)(Notice::Began);
    }

    /// Sends a text as progress, up to `MAX_NOTICES`.
    pub(crate) fn say(&mut self, message: &str) {
        self.progress(Value::map([("message", message)]));
    }

    /// Sends data of any form as progress, within the same bound.
    pub(crate) fn progress(&mut self, data: Value) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            (self.sink)(Notice::Progress(data));
        }
    }

    /// The token of a user who logs in, or an empty text.
    pub(crate) fn log_in(&self, load: &Value) -> CallResult {
        let log_in = self.log_in.ok_or_else(|| {
            RunnerError::Refused("this process cannot log users in: ask the master".to_owned())
        })?;
        Ok(log_in(load))
    }

    /// Sends an event of the function's own.
    pub(crate) fn fire(&mut self, tag: Tag, data: Value) {
        (self.sink)(Notice::Event(tag, data));
    }

    /// Sends [`Notice::KeyGone`].
    pub(crate) fn key_gone(&mut self, minion: MinionId) {
        (self.sink)(Notice::KeyGone(minion));
    }
}

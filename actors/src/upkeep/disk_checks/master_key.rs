//! Watch over the master's own key: whether the one on the disk is the one in use, and a row of the
//! audit trail for each step of its rotation.
//!
//! The steps change files, with or without a running master. So they are recorded by what the files
//! say: at the first look after a start, and whenever it has changed.

use saltern_crypto::HashError;
use saltern_model::{AuditDoor, AuditRecord};
use saltern_requests::{Services, audit};
use saltern_runners::Arguments;
use saltern_store::master_keys::fingerprint;
use saltern_store::{MasterKeyRotation, StoreError, StoreOptions};
use saltern_wire::msgpack::Value;

/// The command and the function in the rows of these steps.
const COMMAND: &str = "key";
const FUNCTION: &str = "key.rotate_master";

/// The state between a step and the restart that it needs.
const NOT_IN_USE: &str = "new key at the next start";

/// Why the task fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fingerprint(#[from] HashError),
    #[error("a rotation has replaced the master's key: restart the master to use the new one")]
    NotInUse,
}

/// A rotation as the files have it.
#[derive(Clone, PartialEq, Eq)]
struct State {
    name: &'static str,
    present: String,
    previous: Option<String>,
    until: i64,
}

impl State {
    fn of(services: &Services) -> Result<Self, LookError> {
        let rotation = MasterKeyRotation::of(&StoreOptions::from(&*services.config))?;
        let is_in_use = rotation.current == services.keys.master.public_pem;
        let name = match &rotation.previous {
            None => "one key accepted",
            Some(_) if rotation.until <= services.clock.unix() => "previous key expired",
            Some(_) if is_in_use => "both keys accepted",
            Some(_) => NOT_IN_USE,
        };
        let previous = rotation.previous.as_deref().map(fingerprint).transpose()?;
        Ok(Self {
            name,
            present: fingerprint(&rotation.current)?,
            previous,
            until: rotation.until,
        })
    }

    fn row(&self, services: &Services) -> AuditRecord {
        // Names that `saltern_audit_redact` does not hide: these are fingerprints.
        let text = |text: &str| Value::from(text);
        let mut named = vec![
            ("state".to_owned(), text(self.name)),
            ("present".to_owned(), text(&self.present)),
        ];
        if let Some(previous) = &self.previous {
            named.push(("previous".to_owned(), text(previous)));
            named.push(("until".to_owned(), Value::from(self.until)));
        }
        let arguments = Arguments {
            positional: Vec::new(),
            named,
        };
        audit::of_own(
            AuditDoor::Master,
            (COMMAND, FUNCTION, &arguments),
            (&services.config.user, None),
            services,
        )
    }
}

/// The rotation that was recorded last.
#[derive(Default)]
pub(super) struct RecordedRotation(Option<State>);

impl RecordedRotation {
    /// The row of what has changed since the last one; `record` says whether it took it.
    ///
    /// # Errors
    /// The keys cannot be read, or the present one is not in use.
    pub(super) fn look(
        &mut self,
        services: &Services,
        record: impl FnOnce(Box<AuditRecord>) -> bool,
    ) -> Result<(), LookError> {
        let state = State::of(services)?;
        let is_new = match &self.0 {
            Some(recorded) => *recorded != state,
            // As a rule nothing is going on at a start.
            None => state.previous.is_some(),
        };
        let is_in_use = state.name != NOT_IN_USE;
        if !is_new || record(Box::new(state.row(services))) {
            self.0 = Some(state);
        }
        is_in_use.then_some(()).ok_or(LookError::NotInUse)
    }
}

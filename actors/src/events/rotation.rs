//! Rotation of the shared key: when a dropfile asks for it and, with 3006, when the key is older
//! than `publish_session`.
//!
//! The later versions rotate by age only in clusters (`handle_key_rotate` in `salt/master.py`).
//! Stock's key is as old as its process; ours outlives that, and so does its age.
//!
//! Stock's `salt-key` deletes or rejects a key and writes the dropfile; the revoked minion still
//! has the shared key. So the publisher checks before each load that it encrypts, and sends
//! nothing under a key that is to be replaced. Maintenance checks once a second, for a site that
//! publishes nothing, and announces the rotation. The first of them to see the dropfile makes the
//! new key.
//!
//! Minions are not notified of the new key; each learns of it from the first load that it cannot
//! decrypt, and authenticates. `auth_queue` bounds these authentications.

use std::sync::Arc;

use parking_lot::Mutex;
use saltern_model::Compat;
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_store::dropfile::{self, Dropfile};

/// State of the rotation, shared by the publisher and maintenance.
#[derive(Clone, Default)]
pub(crate) struct Rotation(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// A rotation is due: from the moment the dropfile is taken until the new key is on the disk,
    /// also over a failure or a restart of an actor.
    is_owed: bool,
    /// There was a rotation that has not been announced.
    is_news: bool,
}

impl Rotation {
    /// Takes the dropfile, if there is one, and makes a new shared key. `false`: one was asked for
    /// and cannot be made, or the dropfile cannot be read; nothing must be published under the
    /// present one.
    pub(crate) fn look(&self, services: &Services) -> bool {
        let mut state = self.0.lock();
        match dropfile::check(&services.config) {
            Ok(Dropfile::None) => {}
            Ok(Dropfile::Ignored(reason)) => {
                tracing::debug!(reason, "a dropfile does not count");
                take(services);
            }
            // It stays until it is done, also over an end of this process.
            Ok(Dropfile::Rotate) => state.is_owed = true,
            Err(error) => {
                tracing::error!(%error, "the dropfile cannot be looked at; trying again");
                return false;
            }
        }
        if state.is_owed {
            match services.keys.shared.rotate() {
                Ok(_) => {
                    (state.is_owed, state.is_news) = (false, true);
                    take(services);
                    tracing::info!("the shared key was rotated, as the dropfile asked");
                }
                Err(error) => {
                    tracing::error!(%error, "the shared key cannot be rotated; trying again");
                }
            }
        }
        !state.is_owed
    }

    /// Makes a new shared key if this one has reached its age. On failure the present one stays in
    /// use: age revokes no minion.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn look_at_age(&self, services: &Services) -> Result<(), StoreError> {
        let config = &services.config;
        let longest = config.publish_session;
        if config.salt_compat != Compat::V3006 || longest.is_zero() {
            return Ok(());
        }
        let mut state = self.0.lock();
        let created = services.keys.shared.current().created;
        let age = services.clock.unix().saturating_sub(created);
        if u64::try_from(age).unwrap_or(0) >= longest.as_secs() {
            services.keys.shared.rotate()?;
            (state.is_owed, state.is_news) = (false, true);
            tracing::info!("the shared key was rotated, as publish_session asks");
        }
        Ok(())
    }

    /// Takes the flag of an unannounced rotation.
    pub(crate) fn take_news(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_news)
    }
}

/// Taken before the key is made: a dropfile that is written meanwhile counts again.
fn take(services: &Services) {
    if let Err(error) = dropfile::take(&services.config) {
        tracing::error!(%error, "the dropfile cannot be removed");
    }
}

//! Signatures of hooks, as forges make them, and the memory that keeps one from being used twice.
//!
//! `X-Hub-Signature-256: sha256=…` is HMAC-SHA256 of the body (GitHub, Gitea, Forgejo, Bitbucket).
//! With `X-Saltern-Timestamp` (Unix seconds) it is that of the timestamp, a dot and the body, and
//! holds within the replay window only. `X-Gitlab-Token` is the secret itself.

use std::collections::HashSet;

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use saltern_base::unhex;
use saltern_config::yaml::{Key, Node};
use saltern_crypto::{SecretBytes, ct_eq};
use sha2::Sha256;

/// Seconds in which a signature holds, and is remembered.
const REPLAY_WINDOW: i64 = 300;

/// Signatures that are remembered in each half of the window; beyond it the older half is forgotten.
const MAX_REMEMBERED: usize = 8192;

/// Bytes of a secret at least.
const MIN_SECRET: usize = 16;

/// Bytes of HMAC-SHA256.
const SIGNATURE_BYTES: usize = 32;

type Signature = [u8; SIGNATURE_BYTES];

/// Why secrets cannot be used. Never names a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// Another form.
    #[error("saltern_hook_secrets is not a map of paths to secrets")]
    Form,
    /// Too short.
    #[error("saltern_hook_secrets: a secret has less than 16 bytes")]
    Short,
}

/// Why a signed request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// None is there.
    #[error("this hook needs a signature")]
    Missing,
    /// It does not fit the body and the secret.
    #[error("the signature is wrong")]
    Wrong,
    /// The timestamp is outside of the replay window.
    #[error("the timestamp is too old, or in the future")]
    Stale,
    /// The same was here before.
    #[error("the same signed request was here before")]
    Replayed,
}

/// Secrets by prefix of the path. No `Debug`.
#[derive(Default)]
pub struct HookSecrets(Vec<(String, HookSecret)>);

/// The secret of one prefix. No `Debug`.
pub(super) struct HookSecret(SecretBytes);

impl HookSecrets {
    /// The secrets of a configuration.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn read(secrets: Option<&Node>) -> Result<Self, SecretsError> {
        let Some(secrets) = secrets.filter(|secrets| !secrets.is_null()) else {
            return Ok(Self::default());
        };
        let secrets = secrets.as_map().ok_or(SecretsError::Form)?;
        let mut read = Vec::new();
        for (path, entry) in secrets.iter() {
            let path = Key::as_str(path).ok_or(SecretsError::Form)?;
            let secret = entry.value.as_str().ok_or(SecretsError::Form)?;
            if secret.len() < MIN_SECRET {
                return Err(SecretsError::Short);
            }
            let secret = SecretBytes::new(secret.as_bytes().to_vec());
            read.push((path.trim_matches('/').to_owned(), HookSecret(secret)));
        }
        // The longest prefix first: it is the one that counts.
        read.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Self(read))
    }

    /// The secret of the longest prefix of a path, in whole parts between slashes.
    pub(super) fn of_path(&self, path: &str) -> Option<&HookSecret> {
        let path = path.trim_matches('/');
        let is_below = |prefix: &str| match path.strip_prefix(prefix) {
            Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let mut secrets = self.0.iter();
        secrets
            .find(|(prefix, _)| is_below(prefix))
            .map(|(_, secret)| secret)
    }
}

impl HookSecret {
    /// Checks the signature of a request. Gives it when it may be used once only.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Option<Signature>, SignatureError> {
        if let Some(signature) = headers.get("x-hub-signature-256") {
            let signature = signature_of(signature.as_bytes()).ok_or(SignatureError::Wrong)?;
            let timestamp = headers.get("x-saltern-timestamp");
            let timestamp = timestamp.map(|timestamp| timestamp.as_bytes());
            let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose())
                .map_err(|_| SignatureError::Wrong)?;
            if let Some(timestamp) = timestamp {
                mac.update(timestamp);
                mac.update(b".");
            }
            mac.update(body);
            // Compares in constant time.
            mac.verify_slice(&signature)
                .map_err(|_| SignatureError::Wrong)?;
            if let Some(timestamp) = timestamp {
                is_fresh(timestamp, now)?;
            }
            return Ok(Some(signature));
        }
        let token = headers
            .get("x-gitlab-token")
            .ok_or(SignatureError::Missing)?;
        match ct_eq(token.as_bytes(), self.0.expose()) {
            true => Ok(None),
            false => Err(SignatureError::Wrong),
        }
    }
}

fn is_fresh(timestamp: &[u8], now: i64) -> Result<(), SignatureError> {
    let timestamp = std::str::from_utf8(timestamp).ok();
    let timestamp = timestamp.and_then(|text| text.parse::<i64>().ok());
    let age = timestamp.map(|timestamp| now.saturating_sub(timestamp));
    match age {
        Some(age) if (-REPLAY_WINDOW..=REPLAY_WINDOW).contains(&age) => Ok(()),
        _ => Err(SignatureError::Stale),
    }
}

/// The bytes of `sha256=<64 hexadecimal digits>`.
fn signature_of(header: &[u8]) -> Option<Signature> {
    let digits = std::str::from_utf8(header).ok()?.strip_prefix("sha256=")?;
    unhex(digits)?.try_into().ok()
}

/// Signatures of the last one to two windows of time.
#[derive(Default)]
pub(super) struct Replays {
    newer: HashSet<Signature>,
    older: HashSet<Signature>,
    since: i64,
}

impl Replays {
    /// Takes a signature in; an error when it is known.
    pub(super) fn admit(&mut self, signature: Signature, now: i64) -> Result<(), SignatureError> {
        // A timestamp in the future holds for two windows.
        let is_old = now.saturating_sub(self.since) > 2 * REPLAY_WINDOW;
        if is_old || self.newer.len() >= MAX_REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
            self.since = now;
        }
        if self.older.contains(&signature) || !self.newer.insert(signature) {
            return Err(SignatureError::Replayed);
        }
        Ok(())
    }
}

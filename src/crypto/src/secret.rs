//! Holders for secret bytes and secret text that cannot be printed or copied by accident.
//!
//! They wipe their memory when dropped. They do not lock pages or guard against a core
//! dump: stock does neither, and a process that can read this memory can read the key file.

use zeroize::Zeroizing;

/// Secret bytes, wiped when dropped. Has no `Debug`, `Display` or `Clone` on purpose.
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes over `bytes`; the caller must not have left copies behind.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret itself. The name makes every reading of a secret easy to find.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

/// Secret text, wiped when dropped. Has no `Debug`, `Display` or `Clone` on purpose.
pub struct SecretString(Zeroizing<String>);

impl SecretString {
    /// Takes over `text`; the caller must not have left copies behind.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself. The name makes every reading of a secret easy to find.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretString {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

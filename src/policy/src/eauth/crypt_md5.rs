//! Apache's variant of the MD5 crypt of FreeBSD, `$apr1$`, the default of older `htpasswd`.
//!
//! The way is that of `apr_md5_encode` of the Apache Portable Runtime; it is weak by today's
//! standards and only read here, never written.

use md5::{Digest, Md5};

/// Prefix of such a hash.
pub(super) const APACHE: &str = "$apr1$";

/// The most bytes of the salt that count.
const SALT: usize = 8;

const ROUNDS: usize = 1000;

const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The whole entry for a password and a salt.
pub(super) fn apache(password: &[u8], salt: &[u8]) -> String {
    let salt = salt.get(..SALT).unwrap_or(salt);
    let mut digest: [u8; 16] = first(password, salt);
    for round in 0..ROUNDS {
        let mut md5 = Md5::new();
        let is_odd = round % 2 == 1;
        md5.update(if is_odd { password } else { &digest });
        if round % 3 != 0 {
            md5.update(salt);
        }
        if round % 7 != 0 {
            md5.update(password);
        }
        md5.update(if is_odd { &digest } else { password });
        digest = md5.finalize().into();
    }
    format!(
        "{APACHE}{}${}",
        String::from_utf8_lossy(salt),
        letters(&digest)
    )
}

fn first(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner: [u8; 16] = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize()
        .into();
    let mut md5 = Md5::new();
    md5.update(password);
    md5.update(APACHE);
    md5.update(salt);
    for part in password.chunks(inner.len()) {
        md5.update(&inner[..part.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        let odd = length & 1 == 1;
        let next = if odd {
            Some(0)
        } else {
            password.first().copied()
        };
        md5.update([next.unwrap_or_default()]);
        length >>= 1;
    }
    md5.finalize().into()
}

/// The digest in the order and the letters of crypt.
fn letters(digest: &[u8; 16]) -> String {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut out = String::new();
    let mut put = |mut bits: u32, count: usize| {
        for _ in 0..count {
            out.push(char::from(LETTERS[(bits & 0x3f) as usize]));
            bits >>= 6;
        }
    };
    for [high, middle, low] in ORDER {
        let bits = [digest[high], digest[middle], digest[low]].map(u32::from);
        put(bits[0] << 16 | bits[1] << 8 | bits[2], 4);
    }
    put(u32::from(digest[11]), 2);
    out
}

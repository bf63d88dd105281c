//! Hexadecimal digits.

use std::fmt::Write as _;

/// The bytes as two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(b"\x00\x0a\xff"), "000aff");
        assert_eq!(hex(b""), "");
    }
}

//! Bytes as hexadecimal digits, and back.

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

/// The bytes that these digits of either case stand for; `None` for anything else.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    match rest.is_empty() {
        true => pairs.iter().map(byte).collect(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(b"\x00\x0a\xff"), "000aff");
        assert_eq!(hex(b""), "");
    }

    #[test]
    fn digits_are_read_and_nothing_else() {
        assert_eq!(unhex("000aFf").as_deref(), Some(&b"\x00\x0a\xff"[..]));
        assert_eq!(unhex("").as_deref(), Some(&b""[..]));
        for wrong in ["0", "0g", "+f", " 0", "ß"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}

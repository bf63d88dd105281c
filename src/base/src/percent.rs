//! Percent encoding, for URLs, and decoding, for these, forms, and lists in environment variables.

/// The bytes as text, with a percent sign and two digits for whatever is neither a letter or digit of
/// ASCII nor kept.
pub fn percent_encoded(bytes: &[u8], kept: &str) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The bytes that a text stands for, `%20` a space. What is no number after a percent sign stays as
/// it is, as in Python.
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|_| *first == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => others.get(2..).unwrap_or_default(),
            None => others,
        };
    }
    decoded
}

/// The text of a name or value in a query or a form: `+` is a blank, and what is no UTF-8 is
/// replaced.
pub fn form_text(part: &str) -> String {
    String::from_utf8_lossy(&percent_decoded(&part.replace('+', " "))).into_owned()
}

/// The names and values of a query or a form. A part without `=` has an empty value, and an empty
/// one does not count.
pub fn form_pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (form_text(name), form_text(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_keeps_what_it_is_asked_to() {
        assert_eq!(percent_encoded(b"a b/c~\xff", "/~"), "a%20b/c~%FF");
        assert_eq!(percent_encoded(b"../..", ""), "%2E%2E%2F%2E%2E");
    }

    #[test]
    fn form_is_read_in_its_order() {
        let pairs: Vec<_> = form_pairs("a=x+y&&b&%63=%ff=&a=").collect();
        let expected = [("a", "x y"), ("b", ""), ("c", "\u{fffd}="), ("a", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs, expected);
    }

    #[test]
    fn percent_decoding_leaves_malformed_escapes() {
        let cases: [(&str, &[u8]); 5] = [
            ("a%20b%2Fc", b"a b/c"),
            ("%ff", b"\xff"),
            ("100%", b"100%"),
            ("%zz%4", b"%zz%4"),
            ("%+5", b"%+5"),
        ];
        for (text, expected) in cases {
            assert_eq!(percent_decoded(text), expected, "{text}");
        }
    }
}

//! Encoder of MessagePack, byte for byte as `msgpack-python` does.

use super::value::Value;

/// Encoding of text and bytes: `use_bin_type` of stock's `salt.payload.dumps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `use_bin_type=False`, the wire: both are one raw family, without str8 and bin types.
    Raw,
    /// `use_bin_type=True`, events and files: text is str, bytes are bin.
    Bin,
}

/// Packs a value.
pub fn encode(value: &Value, dialect: Dialect) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(&mut out, dialect).value(value);
    out
}

/// Appends packed values to a buffer.
///
/// After [`Encoder::map`] the caller writes that many keys and values in turn, after
/// [`Encoder::array`] that many values; this is not checked.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    dialect: Dialect,
}

impl<'a> Encoder<'a> {
    /// An encoder that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, dialect: Dialect) -> Self {
        Self { out, dialect }
    }

    /// Opens a map of `entries` entries.
    pub fn map(&mut self, entries: usize) -> &mut Self {
        match entries {
            0..=15 => self.out.push(0x80 | entries as u8),
            16..=0xffff => self.header(0xde, &(entries as u16).to_be_bytes()),
            _ => self.header(0xdf, &len32(entries)),
        }
        self
    }

    /// Opens an array of `items` items.
    pub fn array(&mut self, items: usize) -> &mut Self {
        match items {
            0..=15 => self.out.push(0x90 | items as u8),
            16..=0xffff => self.header(0xdc, &(items as u16).to_be_bytes()),
            _ => self.header(0xdd, &len32(items)),
        }
        self
    }

    /// Writes text.
    pub fn str(&mut self, text: &str) -> &mut Self {
        self.raw_family(text.as_bytes())
    }

    /// Writes bytes; in the raw dialect they look like text.
    pub fn bin(&mut self, bytes: &[u8]) -> &mut Self {
        if self.dialect == Dialect::Raw {
            return self.raw_family(bytes);
        }
        self.bin_header(bytes.len());
        self.raw(bytes)
    }

    /// Opens a bin value, whatever the dialect, of which the caller appends the bytes.
    pub(crate) fn bin_header(&mut self, len: usize) {
        match len {
            0..=0xff => self.header(0xc4, &[len as u8]),
            0x100..=0xffff => self.header(0xc5, &(len as u16).to_be_bytes()),
            _ => self.header(0xc6, &len32(len)),
        }
    }

    /// Writes an integer in its smallest form.
    pub fn int(&mut self, number: i64) -> &mut Self {
        match number {
            0.. => return self.uint(number as u64),
            -32..=-1 => self.out.push(number as u8),
            -0x80..=-33 => self.header(0xd0, &(number as i8).to_be_bytes()),
            -0x8000..=-0x81 => self.header(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.header(0xd2, &(number as i32).to_be_bytes()),
            _ => self.header(0xd3, &number.to_be_bytes()),
        }
        self
    }

    /// Writes a non-negative integer in its smallest form.
    pub fn uint(&mut self, number: u64) -> &mut Self {
        match number {
            0..=0x7f => self.out.push(number as u8),
            0x80..=0xff => self.header(0xcc, &[number as u8]),
            0x100..=0xffff => self.header(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.header(0xce, &(number as u32).to_be_bytes()),
            _ => self.header(0xcf, &number.to_be_bytes()),
        }
        self
    }

    /// Writes a boolean.
    pub fn bool(&mut self, flag: bool) -> &mut Self {
        self.out.push(if flag { 0xc3 } else { 0xc2 });
        self
    }

    /// Writes a float, always with 64 bits.
    pub fn f64(&mut self, number: f64) -> &mut Self {
        self.header(0xcb, &number.to_be_bytes());
        self
    }

    /// Writes `None`.
    pub fn nil(&mut self) -> &mut Self {
        self.out.push(0xc0);
        self
    }

    /// Writes an extension value.
    pub fn ext(&mut self, code: i8, payload: &[u8]) -> &mut Self {
        match payload.len() {
            1 => self.out.push(0xd4),
            2 => self.out.push(0xd5),
            4 => self.out.push(0xd6),
            8 => self.out.push(0xd7),
            16 => self.out.push(0xd8),
            len @ 0..=0xff => self.header(0xc7, &[len as u8]),
            len @ 0x100..=0xffff => self.header(0xc8, &(len as u16).to_be_bytes()),
            len => self.header(0xc9, &len32(len)),
        }
        self.out.push(code as u8);
        self.raw(payload)
    }

    /// Writes a value with all it holds.
    pub fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Nil => self.nil(),
            Value::Bool(flag) => self.bool(*flag),
            Value::Int(number) => self.int(*number),
            Value::Uint(number) => self.uint(*number),
            Value::Float(number) => self.f64(*number),
            Value::Str(text) => self.str(text),
            Value::Bin(bytes) => self.bin(bytes),
            Value::Array(items) => {
                self.array(items.len());
                for item in items {
                    self.value(item);
                }
                self
            }
            Value::Map(entries) => {
                self.map(entries.len());
                for (key, value) in entries {
                    self.value(key).value(value);
                }
                self
            }
            Value::Ext(code, payload) => self.ext(*code, payload),
        }
    }

    /// Appends a value that is packed already, as it is.
    pub fn raw(&mut self, packed: &[u8]) -> &mut Self {
        self.out.extend_from_slice(packed);
        self
    }

    fn raw_family(&mut self, bytes: &[u8]) -> &mut Self {
        match bytes.len() {
            len @ 0..=31 => self.out.push(0xa0 | len as u8),
            len @ 32..=0xff if self.dialect == Dialect::Bin => self.header(0xd9, &[len as u8]),
            len @ 32..=0xffff => self.header(0xda, &(len as u16).to_be_bytes()),
            len => self.header(0xdb, &len32(len)),
        }
        self.raw(bytes)
    }

    fn header(&mut self, marker: u8, rest: &[u8]) {
        self.out.push(marker);
        self.out.extend_from_slice(rest);
    }
}

fn len32(len: usize) -> [u8; 4] {
    u32::try_from(len)
        .expect("invariant: the limits keep values far below 4 GiB")
        .to_be_bytes()
}

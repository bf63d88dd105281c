//! Tokenizer of MessagePack headers, with limits.
//!
//! All readers of packed bytes use [`Cursor::token`] and [`Budget`], so scanning and decoding
//! cannot disagree about validity. Nothing here allocates.

use rmp::Marker;

/// Limits of a packed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting of arrays and maps.
    pub depth: u32,
    /// The longest input, in bytes.
    pub bytes: usize,
    /// Number of values in total; a map entry counts as two.
    pub items: usize,
}

impl Limits {
    /// Limits for peers.
    ///
    /// The depth is where the packer of `msgpack-python` before 1.2 gave up (newer ones reach the
    /// recursion limit of Python, about twice that), the size is what its streaming unpacker
    /// buffers. The items bound the memory of a decoded value: about 40 bytes each.
    pub const WIRE: Self = Self {
        depth: 511,
        bytes: 100 << 20,
        items: 2_000_000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::WIRE
    }
}

/// Why packed bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside a value.
    #[error("packed value is cut off, at least {missing} bytes are missing")]
    Truncated {
        /// How many more bytes are needed at least.
        missing: usize,
    },
    /// Bytes follow the value.
    #[error("{extra} bytes follow the packed value")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// The byte 0xc1, which MessagePack never uses.
    #[error("byte 0xc1 is not a packed value")]
    Reserved,
    /// Arrays and maps nest deeper than allowed.
    #[error("packed value nests deeper than {limit} levels")]
    TooDeep {
        /// [`Limits::depth`].
        limit: u32,
    },
    /// More values than allowed.
    #[error("packed value holds more than {limit} items")]
    TooManyItems {
        /// [`Limits::items`].
        limit: usize,
    },
    /// A longer input than allowed.
    #[error("packed value of {bytes} bytes is longer than {limit}")]
    TooLong {
        /// The length of the input.
        bytes: usize,
        /// [`Limits::bytes`].
        limit: usize,
    },
    /// A map key that is an array or a map. Python cannot hash it, so stock refuses the message.
    #[error("an array or a map cannot be a map key")]
    KeyNotHashable,
    /// A map was expected at the top.
    #[error("packed value is not a map")]
    NotAMap,
}

/// One header, with its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    /// Only above `i64::MAX`.
    Uint(u64),
    Float(f64),
    /// The old raw family: fixraw, raw16, raw32.
    Raw(&'a [u8]),
    /// str8, which the old dialect does not have.
    Str8(&'a [u8]),
    Bin(&'a [u8]),
    Ext(i8, &'a [u8]),
    Array(u32),
    Map(u32),
}

/// A position in packed bytes.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// How many bytes are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The bytes from here to a later position in the same input.
    pub(super) fn until(&self, later: &Self) -> &'a [u8] {
        let len = self.rest.len().saturating_sub(later.rest.len());
        self.rest.get(..len).unwrap_or_default()
    }

    /// Fails if anything is left.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { extra }),
        }
    }

    /// Reads the next header, and its payload unless it opens an array or a map.
    #[inline]
    pub(crate) fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let [first] = self.fixed()?;
        Ok(match Marker::from_u8(first) {
            Marker::FixPos(number) => Token::Int(number.into()),
            Marker::FixNeg(number) => Token::Int(number.into()),
            Marker::FixStr(len) => Token::Raw(self.take(len.into())?),
            Marker::FixArray(len) => Token::Array(len.into()),
            Marker::FixMap(len) => Token::Map(len.into()),
            Marker::Null => Token::Nil,
            Marker::True => Token::Bool(true),
            Marker::False => Token::Bool(false),
            Marker::U8 => Token::Int(u8::from_be_bytes(self.fixed()?).into()),
            Marker::U16 => Token::Int(u16::from_be_bytes(self.fixed()?).into()),
            Marker::U32 => Token::Int(u32::from_be_bytes(self.fixed()?).into()),
            Marker::U64 => {
                let number = u64::from_be_bytes(self.fixed()?);
                i64::try_from(number).map_or(Token::Uint(number), Token::Int)
            }
            Marker::I8 => Token::Int(i8::from_be_bytes(self.fixed()?).into()),
            Marker::I16 => Token::Int(i16::from_be_bytes(self.fixed()?).into()),
            Marker::I32 => Token::Int(i32::from_be_bytes(self.fixed()?).into()),
            Marker::I64 => Token::Int(i64::from_be_bytes(self.fixed()?)),
            Marker::F32 => Token::Float(f32::from_be_bytes(self.fixed()?).into()),
            Marker::F64 => Token::Float(f64::from_be_bytes(self.fixed()?)),
            Marker::Str8 => {
                let len = self.len8()?;
                Token::Str8(self.take(len)?)
            }
            Marker::Str16 => {
                let len = self.len16()?;
                Token::Raw(self.take(len)?)
            }
            Marker::Str32 => {
                let len = self.len32()?;
                Token::Raw(self.take(len)?)
            }
            Marker::Bin8 => {
                let len = self.len8()?;
                Token::Bin(self.take(len)?)
            }
            Marker::Bin16 => {
                let len = self.len16()?;
                Token::Bin(self.take(len)?)
            }
            Marker::Bin32 => {
                let len = self.len32()?;
                Token::Bin(self.take(len)?)
            }
            Marker::Array16 => Token::Array(u16::from_be_bytes(self.fixed()?).into()),
            Marker::Array32 => Token::Array(u32::from_be_bytes(self.fixed()?)),
            Marker::Map16 => Token::Map(u16::from_be_bytes(self.fixed()?).into()),
            Marker::Map32 => Token::Map(u32::from_be_bytes(self.fixed()?)),
            Marker::FixExt1 => self.ext(1)?,
            Marker::FixExt2 => self.ext(2)?,
            Marker::FixExt4 => self.ext(4)?,
            Marker::FixExt8 => self.ext(8)?,
            Marker::FixExt16 => self.ext(16)?,
            Marker::Ext8 => {
                let len = self.len8()?;
                self.ext(len)?
            }
            Marker::Ext16 => {
                let len = self.len16()?;
                self.ext(len)?
            }
            Marker::Ext32 => {
                let len = self.len32()?;
                self.ext(len)?
            }
            Marker::Reserved => return Err(DecodeError::Reserved),
        })
    }

    /// Skips a value of one byte or a short ASCII text, if the next value is one. These are the
    /// bulk of every load, and need nothing of what [`Cursor::token`] can do.
    #[inline]
    pub(crate) fn skip_plain(&mut self) -> bool {
        let Some((&first, rest)) = self.rest.split_first() else {
            return false;
        };
        match first {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => self.rest = rest,
            0xa0..=0xbf => match rest.split_at_checked(usize::from(first & 0x1f)) {
                Some((text, rest)) if text.is_ascii() => self.rest = rest,
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn ext(&mut self, len: usize) -> Result<Token<'a>, DecodeError> {
        let code = i8::from_be_bytes(self.fixed()?);
        Ok(Token::Ext(code, self.take(len)?))
    }

    fn len8(&mut self) -> Result<usize, DecodeError> {
        Ok(u8::from_be_bytes(self.fixed()?).into())
    }

    fn len16(&mut self) -> Result<usize, DecodeError> {
        Ok(u16::from_be_bytes(self.fixed()?).into())
    }

    fn len32(&mut self) -> Result<usize, DecodeError> {
        Ok(u32::from_be_bytes(self.fixed()?) as usize)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| self.short(len))?;
        self.rest = rest;
        Ok(head)
    }

    #[cold]
    fn short(&self, wanted: usize) -> DecodeError {
        DecodeError::Truncated {
            missing: wanted.saturating_sub(self.rest.len()),
        }
    }
}

/// Remaining budget of a read.
///
/// The items of an array or a map are charged when it opens. Each needs a byte at least, so no
/// more of them can be announced, over all levels together, than the input has bytes, and memory
/// may be reserved for what was charged.
pub(crate) struct Budget {
    limits: Limits,
    input: usize,
    items: usize,
    depth: u32,
}

impl Budget {
    /// A budget to read this input; fails if it is too long.
    pub(crate) fn new(input: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        if input.len() > limits.bytes {
            return Err(DecodeError::TooLong {
                bytes: input.len(),
                limit: limits.bytes,
            });
        }
        Ok(Self {
            limits: *limits,
            input: input.len(),
            items: 1,
            depth: 0,
        })
    }

    /// Enters an array of `len` items and returns how many values will follow.
    #[inline]
    pub(crate) fn open_array(&mut self, len: u32) -> Result<usize, DecodeError> {
        self.open(len as usize)
    }

    /// Enters a map of `len` entries and returns how many entries will follow.
    #[inline]
    pub(crate) fn open_map(&mut self, len: u32) -> Result<usize, DecodeError> {
        let len = len as usize;
        self.open(len.saturating_mul(2))?;
        Ok(len)
    }

    /// Leaves the array or map that was entered last.
    #[inline]
    pub(crate) fn close(&mut self) {
        self.depth -= 1;
    }

    #[inline]
    fn open(&mut self, items: usize) -> Result<usize, DecodeError> {
        if self.depth >= self.limits.depth {
            return Err(DecodeError::TooDeep {
                limit: self.limits.depth,
            });
        }
        self.items = self.items.saturating_add(items);
        if self.items > self.limits.items {
            return Err(DecodeError::TooManyItems {
                limit: self.limits.items,
            });
        }
        if self.items > self.input {
            return Err(DecodeError::Truncated {
                missing: self.items - self.input,
            });
        }
        self.depth += 1;
        Ok(items)
    }
}

//! Encoding and decoding of records, and of the primitive types of their fields.

/// Reason for which bytes cannot be decoded as the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the record does.
    #[error("the bytes end before the record does")]
    Short,
    /// A length below -1, or -1 (null) where null is not allowed.
    #[error("a length of {0}")]
    Length(i32),
    /// A text that is not valid UTF-8.
    #[error("not UTF-8")]
    Text,
    /// An operation that is unknown, or not allowed in this kind of multi.
    #[error("operation {0} is not known, or not allowed here")]
    Op(i32),
    /// A multi or multiRead with more than [`MULTI_OPS_MAX`](crate::MULTI_OPS_MAX) operations.
    #[error("too many operations")]
    TooManyOps,
}

/// Initial capacity of a record's buffer, in bytes. Most records of answers are shorter, so the
/// buffer is not reallocated.
const RECORD_BYTES: usize = 192;

/// Bytes that are decoded from front to back. `rest` has the bytes that are not decoded yet.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Returns an input that begins at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// Number of bytes that are left to read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads one value from the front of the unread bytes.
    ///
    /// # Errors
    /// When the bytes do not encode a value of this type.
    pub fn read<T: Record>(&mut self) -> Result<T, DecodeError> {
        T::read(self)
    }

    /// Reads a text that may be null. Null becomes the empty text.
    ///
    /// # Errors
    /// When the bytes do not encode a text.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        Ok(self.read::<Option<String>>()?.unwrap_or_default())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a length; `None` for -1, which stands for null.
    fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        let length: i32 = self.read()?;
        if length == -1 { Ok(None) } else { usize::try_from(length).map(Some).map_err(|_| DecodeError::Length(length)) }
    }
}

/// A value that can be encoded and decoded in Jute.
pub trait Record: Sized {
    /// Appends the encoded value to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value from the front of the input.
    ///
    /// # Errors
    /// When the bytes do not encode a value of this type.
    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError>;

    /// Returns the encoded value.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES);
        self.write(&mut out);
        out
    }

    /// Reads a value from the front of `bytes`. Bytes after the value are ignored.
    ///
    /// # Errors
    /// When the bytes do not encode a value of this type.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::read(&mut Input::new(bytes))
    }
}

impl Record for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(input.array::<1>()? != [0])
    }
}

impl Record for i32 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array().map(i32::from_be_bytes)
    }
}

impl Record for i64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array().map(i64::from_be_bytes)
    }
}

/// A Jute buffer: bytes, or null (`None`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer(pub Option<Vec<u8>>);

impl Buffer {
    /// The bytes; an empty vector for null.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.unwrap_or_default()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer(Some(bytes))
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Buffer(Some(bytes.to_vec()))
    }
}

impl Record for Buffer {
    fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            None => (-1).write(out),
            Some(bytes) => {
                length(bytes.len()).write(out);
                out.extend_from_slice(bytes);
            }
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let length = input.length()?;
        length.map(|length| input.take(length).map(<[u8]>::to_vec)).transpose().map(Buffer)
    }
}

impl Record for Option<String> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            None => (-1).write(out),
            Some(text) => text.write(out),
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let Some(length) = input.length()? else { return Ok(None) };
        let text = std::str::from_utf8(input.take(length)?).map_err(|_| DecodeError::Text)?;
        Ok(Some(text.to_owned()))
    }
}

impl Record for String {
    fn write(&self, out: &mut Vec<u8>) {
        length(self.len()).write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        // Null is refused here. Fields in which ZooKeeper's server accepts null are read by
        // `Input::text`.
        Option::<String>::read(input)?.ok_or(DecodeError::Length(-1))
    }
}

/// A Jute vector. Null is read as an empty list, as by ZooKeeper's server. Only in setWatches,
/// ZooKeeper's server fails on a null list, but no client sends a null list there.
impl<T: Record> Record for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        length(self.len()).write(out);
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let count = input.length()?.unwrap_or(0);
        // The smallest item of any list takes four bytes. A count that is too large for the rest of
        // the input is refused before memory is reserved for it.
        if count > input.remaining() / 4 {
            return Err(DecodeError::Short);
        }
        (0..count).map(|_| input.read()).collect()
    }
}

fn length(length: usize) -> i32 {
    i32::try_from(length).expect("no packet is longer than a few MiB")
}

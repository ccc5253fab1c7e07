//! Records of the Raft log in the types of raft-log.

use std::io::{self, Read, Write};

use raft_log::codeq;

use crate::codec::{self, CodecError, LogIdRecord, OwnerRecord, PayloadRecord, VoteRecord};
use crate::log::callback::WalCallback;
use crate::raft::types::{Command, Vote};

/// Types that raft-log is parameterized with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalTypes;

impl raft_log::Types for WalTypes {
    type LogId = LogIdRecord;
    type LogPayload = PayloadRecord;
    type Vote = VoteRecord;
    type Callback = WalCallback;
    type UserData = OwnerRecord;

    fn log_index(id: &LogIdRecord) -> u64 {
        id.index
    }

    fn payload_size(payload: &PayloadRecord) -> u64 {
        // The constant 64 stands for the framing of a record, so that entries without a command
        // count too.
        64 + match payload {
            PayloadRecord::Normal(Command(bytes)) => bytes.len() as u64,
            PayloadRecord::Blank | PayloadRecord::Membership(_) => 0,
        }
    }
}

/// Raft's order of votes. raft-log compares votes and refuses to save a smaller one.
impl PartialOrd for VoteRecord {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Vote::from(*self).partial_cmp(&Vote::from(*other))
    }
}

/// Writes a record: its length, the length's bitwise complement, and `parts`. The length has 1, 2
/// or 4 bytes, which its first two bits encode. Returns the number of bytes written.
fn write_record(parts: &[&[u8]], mut writer: impl Write) -> io::Result<usize> {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    let len = u32::try_from(bytes).ok().filter(|len| len >> 30 == 0);
    let len = len.ok_or_else(|| io::Error::other("a log record of a GiB"))?;
    let (len, width) = match len {
        0..=0x7f => (len << 24, 1),
        0x80..=0x3fff => ((len | 0x8000) << 16, 2),
        _ => (len | 0xc000_0000, 4),
    };
    writer.write_all(&len.to_be_bytes()[..width])?;
    writer.write_all(&(!len).to_be_bytes()[..width])?;
    parts.iter().try_for_each(|part| writer.write_all(part))?;
    Ok(2 * width + bytes)
}

/// Decodes the first byte of a length: its width in bytes, and the number of leading bits that
/// encode the width.
fn width_of(first: u8) -> (usize, u32) {
    match first >> 6 {
        0 | 1 => (1, 1),
        2 => (2, 2),
        _ => (4, 2),
    }
}

/// Reads a record that [`write_record`] wrote.
///
/// raft-log cuts off the end of the log at an `UnexpectedEof` and treats any other error as damage.
/// So a short input must return exactly this error. A damaged length must return another one, or
/// raft-log would silently cut off all later records. The complement reveals a damaged length.
fn read_record(mut reader: impl Read) -> io::Result<Vec<u8>> {
    let (mut len, mut complement) = ([0; 4], [0xff; 4]);
    reader.read_exact(&mut len[..1])?;
    let (width, tag_bits) = width_of(len[0]);
    reader.read_exact(&mut len[1..width])?;
    reader.read_exact(&mut complement[..width])?;
    let [len, complement] = [len, complement].map(u32::from_be_bytes);
    let damaged = len != !complement;
    let len = (len << tag_bits) >> tag_bits >> (32 - 8 * width);
    if damaged || len as usize > codec::RECORD_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the length of a log record is damaged"));
    }
    // Read with `take`, without allocating `len` bytes first: in a torn tail, `len` can exceed the
    // input.
    let mut record = Vec::new();
    reader.take(u64::from(len)).read_to_end(&mut record)?;
    if record.len() < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(record)
}

/// First byte of a payload that is a command: the number of the variant `Normal`.
const COMMAND: u8 = 1;

impl codeq::Encode for PayloadRecord {
    /// Writes a command as one byte and the command's bytes, and any other payload as its bincode.
    fn encode<W: Write>(&self, writer: W) -> io::Result<usize> {
        match self {
            PayloadRecord::Normal(Command(bytes)) => write_record(&[&[COMMAND], bytes], writer),
            payload => write_record(&[&codec::encode_bare(payload)], writer),
        }
    }
}

impl codeq::Decode for PayloadRecord {
    fn decode<R: Read>(reader: R) -> io::Result<Self> {
        Ok(decode_payload(&read_record(reader)?)?)
    }
}

fn decode_payload(record: &[u8]) -> Result<PayloadRecord, CodecError> {
    match record.split_first() {
        Some((&COMMAND, command)) => Ok(PayloadRecord::Normal(Command(command.to_vec().into()))),
        _ => codec::decode_bare(record),
    }
}

macro_rules! codeq_record {
    ($encode:path, $decode:path, $($type:ident),*) => {$(
        impl codeq::Encode for $type {
            fn encode<W: Write>(&self, writer: W) -> io::Result<usize> {
                write_record(&[&$encode(self)], writer)
            }
        }

        impl codeq::Decode for $type {
            fn decode<R: Read>(reader: R) -> io::Result<Self> {
                Ok($decode(&read_record(reader)?)?)
            }
        }
    )*};
}

codeq_record!(codec::encode_bare, codec::decode_bare, LogIdRecord);
codeq_record!(codec::encode, codec::decode, VoteRecord, OwnerRecord);

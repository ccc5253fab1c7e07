//! The Raft log's records, as raft-log wants them.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use raft_log::codeq;

use crate::codec::{self, EntryRecord, LogIdRecord, OwnerRecord, PayloadRecord, VoteRecord};
use crate::failpoint;
use crate::fatal::Fatal;
use crate::log::flushes::Together;
use crate::raft::types::{Command, Vote};

/// raft-log's view of our types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalTypes;

impl raft_log::Types for WalTypes {
    type LogId = WalLogId;
    type LogPayload = WalPayload;
    type Vote = WalVote;
    type Callback = WalCallback;
    type UserData = WalOwner;

    fn log_index(id: &WalLogId) -> u64 {
        id.0.index
    }

    fn payload_size(payload: &WalPayload) -> u64 {
        // 64 for what stands around the bytes, so that a million empty entries do not count as
        // nothing.
        64 + match &payload.0 {
            PayloadRecord::Normal(Command(bytes)) => bytes.len() as u64,
            PayloadRecord::Blank | PayloadRecord::Membership(_) => 0,
        }
    }
}

/// A position in the log; ordered by term, then index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WalLogId(pub(crate) LogIdRecord);

/// What an entry carries.
#[derive(Clone, Debug)]
pub(crate) struct WalPayload(pub(crate) PayloadRecord);

/// A vote; ordered as Raft orders votes, so raft-log refuses one that goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalVote(pub(crate) VoteRecord);

/// Whose log it is, and how much of it is sure to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalOwner(pub(crate) OwnerRecord);

impl PartialOrd for WalVote {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Vote::from(self.0).partial_cmp(&Vote::from(other.0))
    }
}

/// Splits entries into what raft-log stores.
pub(crate) fn split(record: EntryRecord) -> (WalLogId, WalPayload) {
    (WalLogId(record.log_id), WalPayload(record.payload))
}

/// Writes a length, its complement, and a record. The length has 1, 2 or 4 bytes, and its first two
/// bits say how many.
fn write_record<T: bincode::Encode>(value: &T, mut writer: impl Write) -> io::Result<usize> {
    let record = codec::encode(value);
    let len = u32::try_from(record.len()).ok().filter(|len| len >> 30 == 0);
    let len = len.ok_or_else(|| io::Error::other("a log record of a GiB"))?;
    let (len, width) = match len {
        0..=0x7f => (len << 24, 1),
        0x80..=0x3fff => ((len | 0x8000) << 16, 2),
        _ => (len | 0xc000_0000, 4),
    };
    writer.write_all(&len.to_be_bytes()[..width])?;
    writer.write_all(&(!len).to_be_bytes()[..width])?;
    writer.write_all(&record)?;
    Ok(2 * width + record.len())
}

/// How many bytes of length there are, and how many of their bits are none.
fn width_of(first: u8) -> (usize, u32) {
    match first >> 6 {
        0 | 1 => (1, 1),
        2 => (2, 2),
        _ => (4, 2),
    }
}

/// Reads what [`write_record`] wrote.
///
/// A short input must come back as `UnexpectedEof` and nothing else: by that kind raft-log tells a
/// torn tail, which it cuts off, from damage, which it refuses. The other way round a damaged
/// length must not look like a short input, or everything behind it would be cut off in silence;
/// hence the complement.
fn read_record<T: bincode::Decode<()>>(mut reader: impl Read) -> io::Result<T> {
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
    // `take` and not one allocation of `len`: a torn tail claims what is not there.
    let mut record = Vec::new();
    reader.take(u64::from(len)).read_to_end(&mut record)?;
    if record.len() < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(codec::decode(&record)?)
}

macro_rules! codeq_record {
    ($($type:ident),*) => {$(
        impl codeq::Encode for $type {
            fn encode<W: Write>(&self, writer: W) -> io::Result<usize> {
                write_record(&self.0, writer)
            }
        }

        impl codeq::Decode for $type {
            fn decode<R: Read>(reader: R) -> io::Result<Self> {
                read_record(reader).map($type)
            }
        }
    )*};
}

codeq_record!(WalLogId, WalPayload, WalVote, WalOwner);

/// Whom raft-log's flush thread tells that records are on disk.
pub(crate) struct WalCallback {
    pub(crate) fatal: Fatal,
    /// How much of the log is on disk, and how much will be with this flush if it is a synced one.
    pub(crate) reach: Option<(Arc<Reach>, u64)>,
    pub(crate) done: Done,
}

/// How far the log reaches, in bytes since it was begun.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// All that was written.
    pub(crate) end: AtomicU64,
    /// What will be on disk when all flushes that were asked for have come to their end.
    pub(crate) asked: AtomicU64,
    /// What is sure to be on disk.
    pub(crate) durable: AtomicU64,
    /// What a record in the log says to be on disk.
    pub(crate) marked: AtomicU64,
}

/// Who waits for a flush.
pub(crate) enum Done {
    /// openraft, for the appends that came together.
    Gathered(Together),
    /// One of our own calls.
    Waiter(tokio::sync::oneshot::Sender<io::Result<()>>),
    /// The thread that opens the log.
    Opener(std::sync::mpsc::SyncSender<io::Result<()>>),
}

impl raft_log::Callback for WalCallback {
    fn send(self, result: io::Result<()>) {
        let result = result.and_then(|()| failpoint::pass("log.flushed"));
        let result = self.fatal.note("flushing the Raft log", result);
        if let Some((reach, upto)) = self.reach.filter(|_| result.is_ok()) {
            reach.durable.fetch_max(upto, Ordering::AcqRel);
        }
        match self.done {
            Done::Gathered(together) => together.done(&result),
            // A waiter that is gone wanted no answer; the error is remembered in `fatal` all the
            // same.
            Done::Waiter(waiter) => drop(waiter.send(result)),
            Done::Opener(opener) => opener.send(result),
        }
    }
}

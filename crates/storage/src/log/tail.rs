//! The end of the Raft log after a power cut.
//!
//! After a power cut, the bytes written since the last flush may be on disk in part: some pages,
//! with holes of zeros between them. raft-log itself cuts off an incomplete last record and zeros
//! at the end, but treats anything else as damage. So before raft-log opens the log, this file cuts
//! the newest chunk at the first unreadable record.
//!
//! A flushed record that is damaged must not be cut. Owner records tell the two cases apart, as
//! they state how many bytes of the log were on disk. The log is refused if an owner record behind
//! the unreadable record states that the unreadable bytes were on disk.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use raft_log::chunked_wal::Config;
use raft_log::codeq::Decode;
use raft_log::{RaftLogAction, RaftLogRecord, WALRecord};

use crate::codec::{LogIdRecord, OwnerRecord};
use crate::directory::place::sync_dir;
use crate::log::wal::WalTypes;

type Record = RaftLogRecord<WalTypes>;

/// First bytes of each record of raft-log's state: raft-log's tag, and the record's version. A
/// record of the state contains the owner record.
const STATE: [u8; 5] = [0, 0, 0, 5, 1];

/// Repairs the end of the log in `dir`. `incarnation` is the data directory's random number, which
/// marks this log's owner records.
///
/// # Errors
/// `InvalidData` when a record that was flushed is damaged; otherwise any IO error.
pub(crate) fn mend(dir: &Path, incarnation: u64) -> io::Result<()> {
    let mut chunks = chunks(dir)?;
    remove_stale_front(dir, &mut chunks)?;
    while let Some((offset, path)) = chunks.pop() {
        let bytes = fs::read(&path)?;
        let whole = whole_records(&bytes, |_| {});
        if whole < bytes.len() {
            let bad = offset + whole as u64;
            if let Some(durable) = claimed(&bytes[whole..], incarnation).filter(|durable| *durable > bad) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the record at byte {bad} is damaged, and {durable} bytes were on disk"),
                ));
            }
            tracing::warn!(offset = bad, bytes = bytes.len() - whole, "cutting what was not flushed off the log");
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(whole as u64)?;
            file.sync_all()?;
        }
        // raft-log removes an empty chunk, so the previous chunk becomes the newest and is checked
        // too.
        if whole > 0 {
            break;
        }
    }
    Ok(())
}

/// The chunks of a log in order, each with the offset of its first byte.
fn chunks(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut chunks = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(Ok(offset)) = entry.file_name().to_str().map(Config::parse_chunk_file_name) {
            chunks.push((offset, entry.path()));
        }
    }
    chunks.sort_unstable();
    Ok(chunks)
}

/// Removes purged chunks that exist again. When a purge has removed two chunks, a power cut can
/// undo only the removal of the older one, which leaves a gap in the log.
fn remove_stale_front(dir: &Path, chunks: &mut Vec<(u64, PathBuf)>) -> io::Result<()> {
    let mut after_gap = 0;
    for at in 1..chunks.len() {
        if chunks[at - 1].0 + fs::metadata(&chunks[at - 1].1)?.len() != chunks[at].0 {
            after_gap = at;
        }
    }
    if after_gap == 0 || !all_before_is_purged(&chunks[after_gap..])? {
        return Ok(());
    }
    for (offset, path) in chunks.drain(..after_gap) {
        tracing::warn!(offset, "removing a chunk of the log that was purged and came back");
        fs::remove_file(path)?;
    }
    sync_dir(dir)
}

/// Tells whether all entries in chunks before the given ones were purged.
fn all_before_is_purged(chunks: &[(u64, PathBuf)]) -> io::Result<bool> {
    let (mut last, mut purged): (Option<Option<LogIdRecord>>, Option<LogIdRecord>) = (None, None);
    for (_, path) in chunks {
        whole_records(&fs::read(path)?, |record| match record {
            WALRecord::Checkpoint(state) => {
                last.get_or_insert(state.last().copied());
                purged = purged.max(state.purged().copied());
            }
            WALRecord::Action(RaftLogAction::PurgeUpto(upto)) => purged = purged.max(Some(upto)),
            WALRecord::Action(_) => {}
        });
    }
    Ok(last.is_some_and(|last| purged >= last))
}

/// Passes each record to `see`, up to the first unreadable one. Returns the offset of that record,
/// or the length of `bytes` when all are readable.
fn whole_records(bytes: &[u8], mut see: impl FnMut(Record)) -> usize {
    let mut rest = bytes;
    loop {
        let at = bytes.len() - rest.len();
        if rest.is_empty() {
            return at;
        }
        match Record::decode(&mut rest) {
            Ok(record) => see(record),
            Err(_) => return at,
        }
    }
}

/// Returns the largest number of bytes on disk that an owner record in `bytes` states; `None`
/// without one. Ignores owner records with another incarnation.
fn claimed(bytes: &[u8], incarnation: u64) -> Option<u64> {
    let places = bytes.windows(STATE.len()).enumerate().filter(|(_, window)| *window == STATE);
    let claims = places.filter_map(|(at, _)| match Record::decode(&bytes[at..]) {
        Ok(WALRecord::Checkpoint(state)) => state.user_data,
        _ => None,
    });
    // A client's command could contain bytes that look like an owner record, but clients do not
    // know the incarnation.
    let own = claims.filter(|owner: &OwnerRecord| owner.incarnation == incarnation);
    own.map(|owner| owner.durable).max()
}

//! The end of the Raft log after a power cut.
//!
//! After a power cut, the bytes behind the last flush may be on disk in part: some pages, with
//! holes of zeros between them. raft-log itself cuts a record that the end of the file has torn,
//! and zeros up to the end; anything else it calls damage. This file puts the end in order before
//! raft-log opens it: it cuts the newest chunk at the first unreadable record.
//!
//! A record that was flushed and is damaged must not be cut. Records that state how much of the log
//! was on disk tell the two cases apart: if one stands behind the bad record and counts it as on
//! disk, the log is refused.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use raft_log::chunked_wal::Config;
use raft_log::codeq::Decode;
use raft_log::{RaftLogAction, RaftLogRecord, WALRecord};

use crate::directory::place::sync_dir;
use crate::log::wal::{WalLogId, WalOwner, WalTypes};

type Record = RaftLogRecord<WalTypes>;

/// First bytes of a record of the log's state: raft-log's tag, and the version of the record.
const STATE: [u8; 5] = [0, 0, 0, 5, 1];

/// Repairs the end of the log in `dir`. `incarnation` is the one in the owner records of this log.
///
/// # Errors
/// `InvalidData` when a record is damaged that was on disk; otherwise any IO error.
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
        // raft-log removes an empty chunk; then the previous one is the newest.
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

/// Removes chunks that a purge had begun to remove. After a power cut the older one of two can come
/// back, which leaves a gap.
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

/// Tells whether all entries that the log held before these chunks have been purged.
fn all_before_is_purged(chunks: &[(u64, PathBuf)]) -> io::Result<bool> {
    let (mut last, mut purged): (Option<Option<WalLogId>>, Option<WalLogId>) = (None, None);
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

/// Reads records up to the first unreadable one. Returns the offset of that record, or of the end.
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

/// Returns the largest number of bytes on disk that any record in `bytes` states.
fn claimed(bytes: &[u8], incarnation: u64) -> Option<u64> {
    let places = bytes.windows(STATE.len()).enumerate().filter(|(_, window)| *window == STATE);
    let claims = places.filter_map(|(at, _)| match Record::decode(&bytes[at..]) {
        Ok(WALRecord::Checkpoint(state)) => state.user_data,
        _ => None,
    });
    // The bytes of a command could look like such a record, but clients do not know the
    // incarnation.
    let own = claims.filter(|owner: &WalOwner| owner.0.incarnation == incarnation);
    own.map(|owner| owner.0.durable).max()
}

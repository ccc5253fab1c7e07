//! Entries from a leader, decoded at their arrival and kept until they are applied.
//!
//! A committed entry that no replica can decode would make all replicas fail, and again at each
//! start. So a follower decodes each entry before it passes the entry to Raft, and refuses an entry
//! that it cannot decode. The decoded form is kept for the state machine, which would otherwise
//! decode the entry once more. It is used only if the bytes of the committed entry are at the same
//! memory address as those that were decoded, because Raft may commit another entry at the index.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use accept::Mutex;
use bytes::Bytes;
use znode::{DecodeError, Levels, Op, OtherLevel, Txn, decode_txn};

/// Largest number of decoded entries that are kept. Further entries are not kept, and the state
/// machine decodes them itself.
const ENTRIES_MAX: usize = 2_048;
/// Largest size in bytes of the kept entries, as they are in the log. Decoded, they take several
/// times as much.
const BYTES_MAX: usize = 4 << 20;

/// Entries that are decoded and not applied yet.
#[derive(Debug, Default)]
pub(crate) struct DecodedEntries {
    /// Format levels that this node's program knows.
    known: Levels,
    kept: Mutex<EntriesByIndex>,
    /// Number of kept entries, readable without the lock. It is 0 on a leader, whose own entries
    /// are not kept.
    count: AtomicUsize,
}

/// The decoded entries by index, and the sum of their bytes in the log.
#[derive(Debug, Default)]
struct EntriesByIndex {
    by_index: BTreeMap<u64, (Bytes, Box<Txn>)>,
    bytes: usize,
}

impl DecodedEntries {
    /// Makes a store without entries, for a program that knows these format levels.
    pub(crate) fn knowing(known: Levels) -> DecodedEntries {
        DecodedEntries { known, ..DecodedEntries::default() }
    }

    /// Decodes an entry's command. Refuses a command of a format level that this program does not
    /// know. Also refuses a command that raises the cluster's format level to one that this program
    /// does not know, because later entries may then mean something else.
    fn decode(&self, command: &Bytes) -> Result<Box<Txn>, DecodeError> {
        let txn = Box::new(decode_txn(command)?);
        let level = match txn.request.op {
            Op::SetLevel { level } => level,
            ref op => op.row().level,
        };
        let known = self.known;
        if level > known.max { Err(OtherLevel { level, known }.into()) } else { Ok(txn) }
    }

    /// Decodes the command of the entry at `index`, and keeps the result.
    ///
    /// # Errors
    /// When this program cannot decode it.
    pub(crate) fn read(&self, index: u64, command: &Bytes) -> Result<(), DecodeError> {
        let txn = self.decode(command)?;
        let mut kept = self.kept.lock();
        if kept.by_index.len() < ENTRIES_MAX && kept.bytes + command.len() <= BYTES_MAX {
            kept.remove(index);
            kept.bytes += command.len();
            kept.by_index.insert(index, (command.clone(), txn));
            self.count.store(kept.by_index.len(), Ordering::Release);
        }
        Ok(())
    }

    /// Returns the decoded command of the committed entry at `index`, and drops the kept entries up
    /// to that index.
    ///
    /// # Errors
    /// When it was not kept and cannot be decoded.
    pub(crate) fn take(&self, index: u64, command: &Bytes) -> Result<Box<Txn>, DecodeError> {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut kept = self.kept.lock();
            // Entries are applied in order: what is kept of earlier indexes was never committed.
            while kept.by_index.first_key_value().is_some_and(|(first, _)| *first < index) {
                let first = kept.by_index.first_key_value().map_or(index, |(first, _)| *first);
                kept.remove(first);
            }
            let found = kept.remove(index);
            self.count.store(kept.by_index.len(), Ordering::Release);
            drop(kept);
            if let Some((bytes, txn)) = found
                && bytes.as_ptr() == command.as_ptr()
                && bytes.len() == command.len()
            {
                return Ok(txn);
            }
        }
        self.decode(command)
    }
}

impl EntriesByIndex {
    fn remove(&mut self, index: u64) -> Option<(Bytes, Box<Txn>)> {
        let removed = self.by_index.remove(&index)?;
        self.bytes -= removed.0.len();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use znode::{Op, Request, SessionId, encode_txn};

    use super::*;

    fn command(session: u64) -> Bytes {
        let request = Request::new(Op::CloseSession { session: SessionId(session) });
        encode_txn(&Txn { proven: false, time_ms: 7, request }).into()
    }

    #[test]
    fn what_is_applied_is_what_was_committed_and_not_what_came_for_the_same_position() {
        let decoded = DecodedEntries::default();
        let (came, committed) = (command(1), command(2));
        decoded.read(5, &committed).unwrap();
        // Another leader's entry for the same position, which Raft then refuses.
        decoded.read(5, &came).unwrap();
        assert_eq!(*decoded.take(5, &committed).unwrap(), decode_txn(&committed).unwrap());
        // Equal bytes in another place in memory are decoded again, with the same result.
        decoded.read(6, &came).unwrap();
        let again = Bytes::copy_from_slice(&came);
        assert_eq!(*decoded.take(6, &again).unwrap(), decode_txn(&came).unwrap());
        let kept = decoded.kept.lock();
        assert_eq!((kept.by_index.len(), kept.bytes), (0, 0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_with_its_position() {
        let decoded = DecodedEntries::default();
        for index in 0..10_000 {
            decoded.read(index, &command(index)).unwrap();
        }
        assert_eq!(decoded.kept.lock().by_index.len(), ENTRIES_MAX);
        let last = command(9_999);
        assert_eq!(*decoded.take(9_999, &last).unwrap(), decode_txn(&last).unwrap());
        assert_eq!(decoded.count.load(Ordering::Acquire), 0);
        assert_eq!(decoded.kept.lock().bytes, 0);
        assert!(decoded.read(1, &Bytes::from_static(&[0xff; 9])).is_err());
    }

    #[test]
    fn what_raises_the_level_beyond_the_program_is_not_taken() {
        let raise = |level| {
            let request = Request::new(Op::SetLevel { level });
            Bytes::from(encode_txn(&Txn { proven: false, time_ms: 7, request }))
        };
        let known = Levels { min: 1, max: 2 };
        let decoded = DecodedEntries::knowing(known);
        decoded.read(1, &raise(2)).unwrap();
        let beyond = Err(DecodeError::Level(OtherLevel { level: 3, known }));
        assert_eq!(decoded.read(2, &raise(3)), beyond);
        assert_eq!(decoded.take(2, &raise(3)).map(drop), beyond);
    }
}

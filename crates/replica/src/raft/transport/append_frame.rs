//! Frame with entries, and its bytes.
//!
//! Positions (term and index) in one frame are close to each other. So one position is written as
//! it is, and the others as their distance from it.
//!
//! ```text
//! parts (1 byte) | sequence | vote | more | prev | commit | acknowledged | count | entries
//! ```
//!
//! `parts` has flags: which of the optional fields are present, and which numbers are left out.
//! `more` has fields of later programs. Each has a number, and a field with an unknown number is
//! ignored.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};
use storage::codec::{EntryRecord, LogIdRecord, PayloadRecord, VoteRecord};

/// Entries, or a heartbeat, from the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppendFrame {
    /// Number of the frame, which rises by one with each frame of a connection. The answer carries
    /// the same number.
    pub(crate) sequence: u64,
    /// The leader's vote.
    pub(crate) vote: VoteRecord,
    /// The entry before the first one in `entries`.
    pub(crate) prev_log_id: Option<LogIdRecord>,
    /// The last entry that the leader has committed.
    pub(crate) leader_commit: Option<LogIdRecord>,
    /// The last entry that the receiver reported to this leader to be on the receiver's disk.
    pub(crate) acknowledged: Option<LogIdRecord>,
    /// The entries; empty in a heartbeat.
    pub(crate) entries: Vec<EntryRecord>,
}

// Flags: which fields are present, and which numbers are left out because they follow from others.
const PREV: u8 = 1;
const COMMIT: u8 = 1 << 1;
const ACKNOWLEDGED: u8 = 1 << 2;
/// Flag: all positions in the frame have the vote's term, so their terms are not written.
const ONE_TERM: u8 = 1 << 3;
/// Flag: the entries are consecutive and follow `prev_log_id`, so their indexes are not written.
const IN_ORDER: u8 = 1 << 4;
const MORE: u8 = 1 << 5;
const KNOWN: u8 = PREV | COMMIT | ACKNOWLEDGED | ONE_TERM | IN_ORDER | MORE;

/// Encoding of the positions (term and index) in one frame.
#[derive(Clone, Copy)]
struct Scale {
    /// Term of all positions, which is not written; `None` if the terms differ and are written.
    term: Option<u64>,
    /// Index that is subtracted from the index of each position before the encoding.
    base: u64,
}

impl Scale {
    fn encode<E: Encoder>(self, id: LogIdRecord, encoder: &mut E) -> Result<(), EncodeError> {
        if self.term.is_none() {
            id.term.encode(encoder)?;
        }
        id.index.wrapping_sub(self.base).cast_signed().encode(encoder)
    }

    fn decode<D: Decoder>(self, decoder: &mut D) -> Result<LogIdRecord, DecodeError> {
        let term = self.term.map_or_else(|| u64::decode(decoder), Ok)?;
        let index = self.base.wrapping_add(i64::decode(decoder)?.cast_unsigned());
        Ok(LogIdRecord { term, index })
    }

    fn decode_part<D: Decoder>(self, is_there: u8, decoder: &mut D) -> Result<Option<LogIdRecord>, DecodeError> {
        if is_there == 0 { Ok(None) } else { self.decode(decoder).map(Some) }
    }
}

impl AppendFrame {
    fn parts(&self) -> u8 {
        let part = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
        let positions = [self.prev_log_id, self.leader_commit, self.acknowledged];
        let entries = self.entries.iter().map(|entry| entry.log_id);
        let mut all = positions.into_iter().flatten().chain(entries);
        let first = self.entries.first().map(|entry| entry.log_id.index);
        let next = self.prev_log_id.map_or(0, |prev| prev.index.wrapping_add(1));
        let follow = |pair: &[EntryRecord]| pair[0].log_id.index.checked_add(1) == Some(pair[1].log_id.index);
        part(self.prev_log_id.is_some(), PREV)
            | part(self.leader_commit.is_some(), COMMIT)
            | part(self.acknowledged.is_some(), ACKNOWLEDGED)
            | part(all.all(|id| id.term == self.vote.term), ONE_TERM)
            | part(first.is_none_or(|first| first == next) && self.entries.windows(2).all(follow), IN_ORDER)
    }
}

impl Encode for AppendFrame {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let parts = self.parts();
        (parts, self.sequence, self.vote).encode(encoder)?;
        let term = (parts & ONE_TERM != 0).then_some(self.vote.term);
        let mut scale = Scale { term, base: 0 };
        if let Some(prev) = self.prev_log_id {
            scale.encode(prev, encoder)?;
            scale.base = prev.index;
        }
        for id in [self.leader_commit, self.acknowledged].into_iter().flatten() {
            scale.encode(id, encoder)?;
        }
        self.entries.len().encode(encoder)?;
        for entry in &self.entries {
            if parts & IN_ORDER == 0 {
                scale.encode(entry.log_id, encoder)?;
            } else if scale.term.is_none() {
                entry.log_id.term.encode(encoder)?;
            }
            entry.payload.encode(encoder)?;
        }
        Ok(())
    }
}

impl<C> Decode<C> for AppendFrame {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let (parts, sequence, vote) = <(u8, u64, VoteRecord)>::decode(decoder)?;
        if parts & !KNOWN != 0 {
            return Err(DecodeError::Other("a part of a frame that is not known"));
        }
        if parts & MORE != 0 {
            Vec::<(u16, Vec<u8>)>::decode(decoder)?;
        }
        let term = (parts & ONE_TERM != 0).then_some(vote.term);
        let mut scale = Scale { term, base: 0 };
        let prev_log_id = scale.decode_part(parts & PREV, decoder)?;
        scale.base = prev_log_id.map_or(0, |prev| prev.index);
        let leader_commit = scale.decode_part(parts & COMMIT, decoder)?;
        let acknowledged = scale.decode_part(parts & ACKNOWLEDGED, decoder)?;
        let count = usize::decode(decoder)?;
        decoder.claim_container_read::<EntryRecord>(count)?;
        let mut entries = Vec::new();
        let mut next = prev_log_id.map_or(0, |prev| prev.index.wrapping_add(1));
        for _ in 0..count {
            decoder.unclaim_bytes_read(size_of::<EntryRecord>());
            let log_id = match parts & IN_ORDER {
                0 => scale.decode(decoder)?,
                _ => LogIdRecord { term: scale.term.map_or_else(|| u64::decode(decoder), Ok)?, index: next },
            };
            next = next.wrapping_add(1);
            entries.push(EntryRecord { log_id, payload: PayloadRecord::decode(decoder)? });
        }
        Ok(AppendFrame { sequence, vote, prev_log_id, leader_commit, acknowledged, entries })
    }
}

#[cfg(test)]
mod tests {
    use storage::codec;

    use super::*;

    fn id(term: u64, index: u64) -> LogIdRecord {
        LogIdRecord { term, index }
    }

    /// Encodes and decodes positions as a leader sends them, and extreme ones as in a damaged
    /// frame.
    #[test]
    fn any_positions_are_read_back() {
        let ids = [None, Some(id(3, 0)), Some(id(3, 300)), Some(id(2, 299)), Some(id(u64::MAX, u64::MAX))];
        let entry = |log_id| EntryRecord { log_id, payload: PayloadRecord::Blank };
        let rows = [
            vec![],
            vec![entry(id(3, 0)), entry(id(3, 1))],
            vec![entry(id(3, 301)), entry(id(3, 302))],
            vec![entry(id(2, 301)), entry(id(3, 302))],
            vec![entry(id(3, 301)), entry(id(3, 303))],
            vec![entry(id(3, u64::MAX)), entry(id(3, 0))],
        ];
        for prev_log_id in ids {
            for leader_commit in ids {
                for acknowledged in ids {
                    for entries in rows.clone() {
                        let vote = VoteRecord { term: 3, node_id: 2, committed: true };
                        let frame =
                            AppendFrame { sequence: 7, vote, prev_log_id, leader_commit, acknowledged, entries };
                        let bytes = codec::encode(&frame);
                        assert_eq!(codec::decode::<AppendFrame>(&bytes).unwrap(), frame);
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_later_program_says_in_the_head_is_passed_over() {
        let vote = VoteRecord { term: 3, node_id: 2, committed: true };
        let (prev_log_id, leader_commit) = (Some(id(3, 3000)), Some(id(3, 2999)));
        let frame =
            AppendFrame { sequence: 9, vote, prev_log_id, leader_commit, acknowledged: None, entries: Vec::new() };
        let mut bytes = codec::encode(&frame);
        // After the version byte come parts and sequence, one byte each, and the vote.
        bytes[1] |= MORE;
        let head = 1 + 1 + 1 + codec::encode(&vote).len() - 1;
        bytes.splice(head..head, codec::encode(&vec![(7u16, vec![1u8, 2, 3])]).into_iter().skip(1));
        assert_eq!(codec::decode::<AppendFrame>(&bytes).unwrap(), frame);
    }

    #[test]
    fn what_a_busy_leader_sends_is_short() {
        let vote = VoteRecord { term: 3, node_id: 2, committed: true };
        let (prev_log_id, leader_commit) = (Some(id(3, 3000)), Some(id(3, 2999)));
        let entries = vec![EntryRecord { log_id: id(3, 3001), payload: PayloadRecord::Blank }];
        let frame = AppendFrame { sequence: 9, vote, prev_log_id, leader_commit, acknowledged: prev_log_id, entries };
        assert_eq!(codec::encode(&frame).len(), 13, "version, parts, sequence, vote, positions, count, payload");
    }
}

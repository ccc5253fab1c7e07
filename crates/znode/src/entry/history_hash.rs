//! Hash of all entries that a state has applied, and of what came of them. Nodes compare their
//! hashes at equal zxids, to find a node whose state differs.

use std::fmt;
use std::hash::Hasher as _;

use bincode::{Decode, Encode};
use siphasher::sip::SipHasher13;

use crate::words::ids::LogPosition;
use crate::{EventRecord, Refusal, Reply, TxnOutcome};

/// Hash of all entries that a state has applied, and of their outcomes. Each entry makes the next
/// hash: SipHash-1-3 of the entry and its outcome, with the hash before and the zxid as key.
///
/// The algorithm never changes within a format level, because nodes that run different programs
/// compare their hashes. It hashes words of 64 bits instead of the encoding of the outcome, which
/// would cost as much as applying the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct HistoryHash(pub u64);

impl fmt::Display for HistoryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl HistoryHash {
    /// The hash after an entry with a transaction. `command` has the bytes of the transaction in
    /// the log.
    pub(crate) fn after(
        self,
        at: LogPosition,
        command: &[u8],
        outcome: &TxnOutcome,
        events: &[EventRecord],
    ) -> HistoryHash {
        let (kind, value) = outcome.reply.as_ref().map_or_else(refusal_words, reply_words);
        let mut hash = self.begin(at);
        write(&mut hash, [at.term.0, outcome.zxid.0, kind, value, events.len() as u64]);
        if let Ok(Reply::Multi(replies)) = &outcome.reply {
            replies.iter().map(reply_words).for_each(|(kind, value)| write(&mut hash, [kind, value]));
        }
        hash.write(command);
        HistoryHash(hash.finish())
    }

    /// The hash after an entry without a transaction.
    pub(crate) fn after_blank(self, at: LogPosition) -> HistoryHash {
        let mut hash = self.begin(at);
        write(&mut hash, [at.term.0]);
        HistoryHash(hash.finish())
    }

    /// A hash with a key that no other entry has.
    pub(crate) fn begin(self, at: LogPosition) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, at.zxid.0)
    }
}

fn write<const N: usize>(hash: &mut SipHasher13, words: [u64; N]) {
    hash.write(words.map(u64::to_le_bytes).as_flattened());
}

fn refusal_words(refusal: &Refusal) -> (u64, u64) {
    let op_index = refusal.op_index.map_or(0, |index| u64::from(index) + 1);
    (u64::MAX, u64::from(refusal.error.code().cast_unsigned()) << 32 | op_index)
}

/// Number of the kind of reply, as in its encoding, and the value that tells the most about it.
fn reply_words(reply: &Reply) -> (u64, u64) {
    match reply {
        Reply::Done => (0, 0),
        Reply::Created { stat, .. } => (1, stat.czxid.0),
        Reply::Set { stat } => (2, u64::from(stat.version.cast_unsigned())),
        Reply::SessionOpened { session, timeout_ms } => (3 | u64::from(*timeout_ms) << 8, session.0),
        Reply::Multi(replies) => (4, replies.len() as u64),
        Reply::Acquired { held, .. } => held.map_or((5, 0), |held| (5 | u64::from(held.holds) << 8, held.token.0)),
        Reply::Released { holds } => (6, u64::from(*holds)),
        Reply::Withdrawn => (7, 0),
        Reply::StillHeld(held) => (8 | u64::from(held.holds) << 8, held.token.0),
        Reply::Superseded => (9, 0),
        Reply::Removed { count } => (10, u64::from(*count)),
        Reply::Revoking { tickets } => (11, tickets.len() as u64),
        Reply::Deadlock { cycle } => (12, cycle.len() as u64),
        Reply::Scrubbed { hash, .. } => (13, *hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventKind, Reply, Term, ZPath, Zxid};

    #[test]
    fn each_part_of_an_entry_counts_and_the_hash_is_frozen() {
        let (at, root) = (LogPosition { term: Term(3), zxid: Zxid(300) }, ZPath::root());
        let event = |kind| Event { zxid: at.zxid, kind, path: root.clone() }.into();
        let events: [EventRecord; 2] = [event(EventKind::Created), event(EventKind::ChildrenChanged)];
        let outcome = |zxid, reply| TxnOutcome { zxid: Zxid(zxid), reply, events: Vec::new() };
        let (done, start) = (outcome(300, Ok(Reply::Done)), HistoryHash(7));
        let after = start.after(at, b"command", &done, &events);
        assert_eq!(after.to_string(), "7a20f6feb6fc38f0");
        let others = [
            HistoryHash(8).after(at, b"command", &done, &events),
            start.after(LogPosition { term: Term(4), ..at }, b"command", &done, &events),
            start.after(LogPosition { zxid: Zxid(301), ..at }, b"command", &done, &events),
            start.after(at, b"dommand", &done, &events),
            start.after(at, b"command", &outcome(299, Ok(Reply::Done)), &events),
            start.after(at, b"command", &outcome(300, Ok(Reply::Withdrawn)), &events),
            start.after(at, b"command", &done, &events[..1]),
            start.after_blank(at),
        ];
        assert!(others.iter().all(|other| *other != after && *other != start), "{others:?}");
    }
}

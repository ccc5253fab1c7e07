//! Hash of all entries that a state has applied, and of what came of them. Nodes compare their
//! hashes at equal zxids, to find a node whose state differs.

use std::fmt;

use bincode::enc::Encoder;
use bincode::error::EncodeError;
use bincode::{Decode, Encode};

use crate::entry::codec::keyed_hash;
use crate::words::ids::{LogPosition, Term};
use crate::{EventRecord, TxnOutcome};

/// Hash of all entries that a state has applied, and of their outcomes. Each entry makes the next
/// hash: SipHash-1-3 of the entry and its outcome, with the hash before and the zxid as key.
///
/// The algorithm never changes within a format level, because nodes that run different programs
/// compare their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct HistoryHash(pub u64);

impl fmt::Display for HistoryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Parts of one entry that make the next hash.
struct Link<'a> {
    term: Term,
    command: &'a [u8],
    outcome: &'a TxnOutcome,
    events: &'a [EventRecord],
}

impl Encode for Link<'_> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        (self.term, self.command, self.outcome.zxid, &self.outcome.reply).encode(encoder)?;
        // All events have the zxid of the entry, so only the other fields are hashed.
        self.events.len().encode(encoder)?;
        self.events.iter().try_for_each(|EventRecord { event, .. }| (event.kind, &event.path).encode(encoder))
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
        self.with(at, Link { term: at.term, command, outcome, events })
    }

    /// The hash after an entry without a transaction.
    pub(crate) fn after_blank(self, at: LogPosition) -> HistoryHash {
        self.with(at, at.term)
    }

    fn with(self, at: LogPosition, link: impl Encode) -> HistoryHash {
        HistoryHash(keyed_hash((self.0, at.zxid.0), link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventKind, Reply, ZPath, Zxid};

    #[test]
    fn each_part_of_an_entry_counts_and_the_hash_is_frozen() {
        let (at, root) = (LogPosition { term: Term(3), zxid: Zxid(300) }, ZPath::root());
        let event = |kind| Event { zxid: at.zxid, kind, path: root.clone() }.into();
        let events: [EventRecord; 2] = [event(EventKind::Created), event(EventKind::ChildrenChanged)];
        let outcome = |zxid, reply| TxnOutcome { zxid: Zxid(zxid), reply, events: Vec::new() };
        let (done, start) = (outcome(300, Ok(Reply::Done)), HistoryHash(7));
        let after = start.after(at, b"command", &done, &events);
        assert_eq!(after.to_string(), "5636ea88e0c18682");
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

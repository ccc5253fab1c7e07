//! Pages of the sequence of a snapshot's records. A page begins after any record, so a reader can
//! go through the sequence while the state changes.

use std::hash::Hasher as _;
use std::iter::once;
use std::mem::discriminant;
use std::ops::Bound;

use crate::entry::codec::encode_to;
use crate::snapshot::record::{Record, request_records, session_record, znode_record};
use crate::{RecordKey, Reply, SessionId, State, ZPath, Zxid};

/// Number of records at which a page ends. The hash of a page is a part of the outcome of an entry,
/// so this bound and the next one never change within a format level.
const RECORDS_MAX: usize = 128;
/// Length of the encoded records at which a page ends, in bytes. A longer record has a page of its
/// own; it costs no more than the entry that wrote it.
const BYTES_ENOUGH: usize = 64 << 10;
/// Text that is greater than all paths: each path begins with a slash, and `0` follows the slash.
const AFTER_ALL: &str = "0";

impl State {
    /// Passes the encoded records after the record `after` to `take`, until a page is full; begins
    /// with the first record for `None`. Returns the key of the page's last record, or `None` if
    /// the page has reached the end of the sequence.
    pub(crate) fn page(&self, after: Option<&RecordKey>, mut take: impl FnMut(&[u8])) -> Option<RecordKey> {
        let (mut encoded, mut records, mut bytes, level) = (Vec::new(), 0, 0, self.level());
        for record in self.records_after(after) {
            assert!(record.level() <= level, "a cluster at level {level} has nothing of a later one");
            encoded.clear();
            encode_to(&record, &mut encoded);
            records += 1;
            bytes += encoded.len();
            take(&encoded);
            if records == RECORDS_MAX || bytes >= BYTES_ENOUGH {
                return Some(record.key());
            }
        }
        None
    }

    /// Hashes the page after the record `after`. The hash is a part of the outcome of the entry, so
    /// it shows a record that differs on one node. Each entry has another key for the hash.
    pub(crate) fn scrub(&self, after: Option<&RecordKey>) -> Reply {
        let mut hash = self.history_hash().begin(self.last());
        let last = self.page(after, |record| {
            hash.write(&(record.len() as u64).to_le_bytes());
            hash.write(record);
        });
        Reply::Scrubbed { hash: hash.finish(), last }
    }

    /// The records after the record `after`, without the tail. The record `after` need not exist
    /// any more.
    fn records_after<'a>(&'a self, after: Option<&'a RecordKey>) -> impl Iterator<Item = Record> + 'a {
        let heads = after.is_none().then(|| self.heads()).into_iter().flatten();
        let znodes = self.tree().after(path_after(after, RecordKey::Znode));
        let znodes = znodes.map(|(path, node)| znode_record(self.tree(), path.clone(), node));
        let multis = self.locks().multis().range((Bound::Excluded(multi_after(after)), Bound::Unbounded));
        let multis = multis.map(|(czxid, multi)| {
            let (policy, tickets) = (multi.policy, multi.tickets.clone());
            Record::MultiLock { czxid: *czxid, policy, tickets }
        });
        let unsettled = self.locks().unsettled().range::<_, str>(behind(path_after(after, RecordKey::Unsettled)));
        let unsettled = unsettled.map(|lock| Record::Unsettled { lock: lock.clone() });
        let revocations = self.locks().revocations.all();
        let revocations = revocations.range::<_, str>(behind(path_after(after, RecordKey::Revocation)));
        let revocations = revocations.map(|(ticket, revocation)| {
            let (ticket, revocation) = (ticket.clone(), revocation.clone());
            Record::Revocation { ticket, revocation }
        });
        let histories = self.locks().histories.after(path_after(after, RecordKey::History));
        let histories =
            histories.map(|(lock, history)| Record::History { lock: lock.clone(), history: history.clone() });
        let ended = self.locks().histories.sessions_after(ended_after(after));
        let ended = ended.map(|session| Record::EndedSession(session.clone()));
        let beside = multis.chain(unsettled).chain(revocations).chain(histories).chain(ended);
        heads.chain(self.sessions_after(after)).chain(znodes).chain(beside)
    }

    /// The records of the state as a whole and of the cluster.
    fn heads(&self) -> impl Iterator<Item = Record> {
        let head = Record::Head {
            last_zxid: self.last_zxid(),
            last_term: self.last_term(),
            history_hash: self.history_hash(),
            time_ms: self.time_ms(),
            limits: self.limits().clone(),
        };
        let cluster = self.cluster().map(|cluster| Record::Cluster {
            founding: cluster.founding,
            level: cluster.level,
            removed: cluster.removed().collect(),
            more: cluster.more.iter().map(|(number, field)| (*number, field.to_vec())).collect(),
        });
        #[cfg(feature = "next-level")]
        let cluster = {
            let note = self.cluster().and_then(crate::Cluster::note);
            cluster.into_iter().chain(note.map(|text| Record::Note { text: text.to_owned() }))
        };
        once(head).chain(cluster)
    }

    fn sessions_after(&self, after: Option<&RecordKey>) -> impl Iterator<Item = Record> {
        let (id, request) = match after {
            None | Some(RecordKey::Head) => (SessionId(0), None),
            Some(RecordKey::Session(id, request)) => (*id, *request),
            Some(_) => (SessionId(u64::MAX), None),
        };
        let begun = self.sessions().get(id).into_iter().flat_map(move |session| request_records(session, request));
        let others = self.sessions().from(id).flat_map(|session| {
            let ending = self.sessions().is_ending(session.id);
            once(session_record(session, ending)).chain(request_records(session, None))
        });
        begun.chain(others)
    }
}

/// The path after which the records of a kind begin, if the sequence begins after the record
/// `after`. `kind` makes the key of such a record.
fn path_after(after: Option<&RecordKey>, kind: fn(ZPath) -> RecordKey) -> &str {
    let first = kind(ZPath::root());
    let Some(key) = after.filter(|key| **key >= first) else { return "" };
    match key {
        RecordKey::Znode(path)
        | RecordKey::Unsettled(path)
        | RecordKey::Revocation(path)
        | RecordKey::History(path)
            if discriminant(key) == discriminant(&first) =>
        {
            path.as_str()
        }
        _ => AFTER_ALL,
    }
}

fn multi_after(after: Option<&RecordKey>) -> Zxid {
    match after {
        Some(RecordKey::MultiLock(czxid)) => *czxid,
        Some(key) if *key > RecordKey::MultiLock(Zxid(0)) => Zxid(u64::MAX),
        _ => Zxid(0),
    }
}

fn ended_after(after: Option<&RecordKey>) -> SessionId {
    match after {
        Some(RecordKey::EndedSession(id)) => *id,
        _ => SessionId(0),
    }
}

fn behind(path: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Excluded(path), Bound::Unbounded)
}

//! Records of a snapshot, and their making from sessions and znodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use bincode::{Decode, Encode};

use crate::queue::Position;
use crate::queue::ended::{EndedSession, Grant, History};
use crate::queue::revocations::Revocation;
use crate::state::session::RequestRecord;
use crate::tree::Tree;
use crate::tree::znode::Changes;
use crate::{
    Acl, ClientInfo, Contender, FencingToken, Founding, HistoryHash, Kind, Limits, LockSettings, Policy, RecordKey,
    RequestKey, SecretHash, Session, SessionId, Term, ZPath, Znode, Zxid,
};

/// A record of a snapshot. Sessions come before their znodes, parents before children, and znodes
/// before multi-locks, revocations and histories. The order of the enum's variants and fields is
/// the format on disk.
#[derive(Encode, Decode)]
pub(crate) enum Record {
    Head {
        last_zxid: Zxid,
        last_term: Term,
        history_hash: HistoryHash,
        time_ms: u64,
        limits: Limits,
    },
    /// Facts about the cluster; the record is absent before the cluster is founded.
    Cluster {
        founding: Founding,
        level: u16,
        removed: BTreeMap<u64, Zxid>,
        more: BTreeMap<u16, Vec<u8>>,
    },
    Session {
        id: SessionId,
        secret_hash: SecretHash,
        timeout_ms: u32,
        label: String,
        opened_ms: u64,
        address: Option<IpAddr>,
        client: Arc<ClientInfo>,
        connection: u64,
        turn: u64,
        /// True if the session has expired and a later entry will remove it.
        ending: bool,
    },
    Request {
        session: SessionId,
        key: RequestKey,
        answered: RequestRecord,
    },
    Znode(Box<ZnodeRecord>),
    MultiLock {
        czxid: Zxid,
        policy: Policy,
        tickets: Vec<ZPath>,
    },
    /// A lock with grants that are left over for later entries ([`State::is_unsettled`]).
    Unsettled {
        lock: ZPath,
    },
    Revocation {
        ticket: ZPath,
        revocation: Revocation,
    },
    History {
        lock: ZPath,
        history: History,
    },
    EndedSession(EndedSession),
    /// The last record, with the number of records before it.
    Tail {
        records: u64,
    },
    /// The cluster's note (a text for people), after `Cluster`; absent if there is no note.
    #[cfg(feature = "next-level")]
    Note {
        text: String,
    },
}

#[derive(Encode, Decode)]
pub(crate) struct ZnodeRecord {
    pub(crate) path: ZPath,
    pub(crate) kind: Kind,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) czxid: Zxid,
    pub(crate) changes: Changes,
    pub(crate) contender: Option<Contender>,
    /// The queue of a lock, without its tickets; `None` if there is no queue.
    pub(crate) queue: Option<QueueRecord>,
    /// The grant of a ticket that holds its lock, or the priority of a ticket that waits; `None`
    /// for other znodes.
    pub(crate) standing: Option<Standing>,
}

#[derive(Encode, Decode)]
pub(crate) struct QueueRecord {
    pub(crate) settings: LockSettings,
    pub(crate) top_token: FencingToken,
    /// Name and czxid of the write ticket of an upgrade. The second ticket is the upgrade's read
    /// ticket, `None` after it was removed.
    pub(crate) upgrade: Option<(TicketId, Option<TicketId>)>,
}

pub(crate) type TicketId = (String, Zxid);

impl Record {
    /// The format level (version of the snapshots' format) that introduced this kind of record. The
    /// match has no wildcard, so that a new kind must get a level.
    pub(crate) fn level(&self) -> u16 {
        use Record::*;
        match self {
            Head { .. } | Cluster { .. } | Session { .. } | Request { .. } | Znode(_) | MultiLock { .. } => 1,
            Unsettled { .. } | Revocation { .. } | History { .. } | EndedSession(_) | Tail { .. } => 1,
            #[cfg(feature = "next-level")]
            Note { .. } => 2,
        }
    }

    /// The key of the record. The records of the state as a whole share one key, and the tail has a
    /// key above all others.
    pub(crate) fn key(&self) -> RecordKey {
        match self {
            Record::Head { .. } | Record::Cluster { .. } => RecordKey::Head,
            #[cfg(feature = "next-level")]
            Record::Note { .. } => RecordKey::Head,
            Record::Session { id, .. } => RecordKey::Session(*id, None),
            Record::Request { session, key, .. } => RecordKey::Session(*session, Some(*key)),
            Record::Znode(record) => RecordKey::Znode(record.path.clone()),
            Record::MultiLock { czxid, .. } => RecordKey::MultiLock(*czxid),
            Record::Unsettled { lock } => RecordKey::Unsettled(lock.clone()),
            Record::Revocation { ticket, .. } => RecordKey::Revocation(ticket.clone()),
            Record::History { lock, .. } => RecordKey::History(lock.clone()),
            Record::EndedSession(session) => RecordKey::EndedSession(session.id),
            Record::Tail { .. } => RecordKey::EndedSession(SessionId(u64::MAX)),
        }
    }
}

#[derive(Encode, Decode)]
pub(crate) enum Standing {
    Waits { priority: u32 },
    Holds(Grant),
}

pub(crate) fn session_record(session: &Session, ending: bool) -> Record {
    let &Session { id, secret_hash, timeout_ms, opened_ms, address, connection, turn, .. } = session;
    let (label, client) = (session.label.to_string(), session.client.clone());
    Record::Session { id, secret_hash, timeout_ms, label, opened_ms, address, client, connection, turn, ending }
}

/// The records of a session's remembered requests with keys above `after`; of all of them for
/// `None`.
pub(crate) fn request_records(session: &Session, after: Option<RequestKey>) -> impl Iterator<Item = Record> {
    let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    session.requests.by_key.range(behind).map(|(key, answered)| Record::Request {
        session: session.id,
        key: *key,
        answered: (**answered).clone(),
    })
}

pub(crate) fn znode_record(tree: &Tree, path: ZPath, node: &Znode) -> Record {
    let standing = standing(tree, &path, node);
    let queue = node.family.queue.as_deref().map(|queue| {
        let ticket = |position: &Position| (position.name.to_string(), position.czxid);
        let upgrade = queue.upgrade().map(|upgrade| (ticket(&upgrade.writer), upgrade.reader.as_ref().map(ticket)));
        QueueRecord { settings: queue.settings(), top_token: queue.top_token(), upgrade }
    });
    Record::Znode(Box::new(ZnodeRecord {
        path,
        kind: node.kind,
        data: node.data.to_vec(),
        acl: node.acl.to_vec(),
        czxid: node.czxid,
        changes: node.changes,
        contender: node.contender.as_deref().cloned(),
        queue,
        standing,
    }))
}

fn standing(tree: &Tree, path: &ZPath, node: &Znode) -> Option<Standing> {
    let position = node.position(path.name())?;
    let queue = tree.queue(path.parent_str()?)?;
    Some(match queue.holder(&position) {
        Some(holder) => Standing::Holds(holder.grant),
        None => Standing::Waits { priority: queue.priority_of(&position) },
    })
}

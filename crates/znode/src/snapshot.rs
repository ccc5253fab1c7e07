//! The state as a row of records, and back. The same state gives the same bytes on every replica.

use std::net::IpAddr;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdMap;

use crate::codec::{DecodeError, decode, encode};
use crate::ledger_records::{self, LedgerRecord};
use crate::lock::records::{self, LockRecord};
use crate::session::{Answered, Requests, Session};
use crate::state::State;
use crate::tree::shared_acl;
use crate::znode::{Contender, Family, Kind, Znode};
use crate::{Acl, ClientInfo, Limits, RequestKey, SessionId, Term, Usage, ZPath, Zxid, weight};

/// One record. Sessions come before what they own, parents before children. The order of variants and fields is the
/// format on disk: append only.
#[derive(Encode, Decode)]
enum Record {
    Head {
        last_zxid: Zxid,
        last_term: Term,
        time_ms: u64,
        limits: Limits,
    },
    Session {
        id: SessionId,
        secret_hash: [u8; 32],
        timeout_ms: u32,
        label: String,
        opened_ms: u64,
        address: Option<IpAddr>,
        client: Arc<ClientInfo>,
    },
    Request {
        session: SessionId,
        key: RequestKey,
        answered: Answered,
    },
    Znode(Box<ZnodeRecord>),
    Tail {
        sessions: u64,
        requests: u64,
        znodes: u64,
    },
    Lock(LockRecord),
    /// In place of `Session`, for one that has written in turn or moved to another connection.
    AttachedSession {
        id: SessionId,
        secret_hash: [u8; 32],
        timeout_ms: u32,
        label: String,
        opened_ms: u64,
        address: Option<IpAddr>,
        client: Arc<ClientInfo>,
        connection: u64,
        turn: u64,
    },
    /// What ledgers say.
    Ledger(LedgerRecord),
}

#[derive(Encode, Decode)]
struct ZnodeRecord {
    path: ZPath,
    kind: Kind,
    data: Vec<u8>,
    acl: Vec<Acl>,
    czxid: Zxid,
    mzxid: Zxid,
    pzxid: Zxid,
    ctime_ms: u64,
    mtime_ms: u64,
    emptied_ms: u64,
    version: i32,
    aversion: i32,
    creates: u64,
    deletes: u64,
    contender: Option<Contender>,
}

impl State {
    /// The state as records, each below 2 MiB with the default limits. Walks a clone, so the state itself may go on.
    pub fn records(&self) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        let head = Record::Head {
            last_zxid: self.last_zxid,
            last_term: self.last_term,
            time_ms: self.time_ms,
            limits: (*self.limits).clone(),
        };
        let requests: usize = self.sessions.values().map(|session| session.requests.by_key.len()).sum();
        let tail = Record::Tail {
            sessions: self.sessions.len() as u64,
            requests: requests as u64,
            znodes: self.nodes.len() as u64,
        };
        let sessions = self.sessions.clone().into_iter().flat_map(|(_, session)| session_records(&session));
        let nodes = self.nodes.clone();
        let znodes = nodes.clone().into_iter().flat_map(move |(path, node)| znode_records(&nodes, path, &node));
        let multis = ledger_records::multis(self).map(Record::Ledger);
        let locks = records::records(self).map(Record::Lock);
        // Counted as they go by: finding them takes a walk over all znodes.
        let mut ledgers = 0;
        let mut rest = znodes.chain(multis).chain(locks).chain(std::iter::once(tail));
        let mut tail = None;
        let rest = std::iter::from_fn(move || {
            let record = tail.take().or_else(|| rest.next())?;
            ledgers += u64::from(matches!(record, Record::Ledger(_)));
            if matches!(record, Record::Tail { .. }) && ledgers > 0 {
                let counted = Record::Ledger(LedgerRecord::Tail { records: std::mem::take(&mut ledgers) });
                tail = Some(record);
                return Some(counted);
            }
            Some(record)
        });
        std::iter::once(encode(&head)).chain(sessions).chain(rest.map(|record| encode(&record)))
    }
}

fn session_records(session: &Session) -> Vec<Vec<u8>> {
    let &Session { id, secret_hash, timeout_ms, opened_ms, address, connection, turn, .. } = session;
    let (label, client) = (session.label.to_string(), session.client.clone());
    let open = match (connection, turn) {
        (0, 0) => Record::Session { id, secret_hash, timeout_ms, label, opened_ms, address, client },
        _ => {
            Record::AttachedSession { id, secret_hash, timeout_ms, label, opened_ms, address, client, connection, turn }
        }
    };
    let requests = session.requests.by_key.iter().map(|(key, answered)| {
        encode(&Record::Request { session: session.id, key: *key, answered: (**answered).clone() })
    });
    std::iter::once(encode(&open)).chain(requests).collect()
}

/// The znode, and what a ledger says of it.
fn znode_records(nodes: &OrdMap<ZPath, Arc<Znode>>, path: ZPath, node: &Znode) -> Vec<Record> {
    let ledger = ledger_records::of(nodes, &path, node).map(Record::Ledger);
    std::iter::once(znode_record(path, node)).chain(ledger).collect()
}

fn znode_record(path: ZPath, node: &Znode) -> Record {
    Record::Znode(Box::new(ZnodeRecord {
        path,
        kind: node.kind,
        data: node.data.to_vec(),
        acl: node.acl.to_vec(),
        czxid: node.czxid,
        mzxid: node.mzxid,
        pzxid: node.pzxid,
        ctime_ms: node.ctime_ms,
        mtime_ms: node.mtime_ms,
        emptied_ms: node.emptied_ms,
        version: node.version,
        aversion: node.aversion,
        creates: node.creates,
        deletes: node.deletes,
        contender: node.contender.as_deref().cloned(),
    }))
}

/// Reads a state back from its records, pushed in order.
#[derive(Debug, Default)]
pub struct StateBuilder {
    state: Option<State>,
    requests: u64,
    /// Records of ledgers that no tail of theirs has counted.
    ledgers: u64,
    /// Records of locks that no tail of theirs has counted.
    locks: u64,
    finished: bool,
}

impl StateBuilder {
    /// Waits for the first record.
    pub fn new() -> StateBuilder {
        StateBuilder::default()
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`DecodeError`] when it cannot be read or does not fit to those before it.
    pub fn push(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        let record = decode(record)?;
        if self.finished {
            return Err(damaged("a record after the last one"));
        }
        if let Record::Head { last_zxid, last_term, time_ms, limits } = record {
            let state = State { last_zxid, last_term, time_ms, ..State::empty(limits) };
            return match self.state.replace(state) {
                None => Ok(()),
                Some(_) => Err(damaged("two heads")),
            };
        }
        let state = self.state.as_mut().ok_or_else(|| damaged("no head"))?;
        match record {
            Record::Head { .. } => unreachable!("the head was handled above"),
            Record::Session { id, secret_hash, timeout_ms, label, opened_ms, address, client } => {
                let session = Session { address, client, ..session(id, secret_hash, timeout_ms, &label, opened_ms) };
                push_session(state, session)?;
            }
            Record::AttachedSession {
                id,
                secret_hash,
                timeout_ms,
                label,
                opened_ms,
                address,
                client,
                connection,
                turn,
            } => {
                let session = Session { address, client, ..session(id, secret_hash, timeout_ms, &label, opened_ms) };
                push_session(state, Session { connection, turn, ..session })?;
            }
            Record::Request { session, key, answered } => {
                let session = state.sessions.get_mut(&session).ok_or_else(|| damaged("a request of no session"))?;
                state.weight.bytes += weight::answered(&answered);
                Arc::make_mut(session).requests.restore(key, answered);
                self.requests += 1;
            }
            Record::Znode(record) => push_znode(state, *record)?,
            Record::Ledger(record) => ledger_records::push(state, record, &mut self.ledgers)?,
            Record::Tail { .. } if self.ledgers > 0 => return Err(damaged("records of ledgers are missing")),
            Record::Lock(record) => records::push(state, record, &mut self.locks)?,
            Record::Tail { .. } if self.locks > 0 => return Err(records::missing()),
            Record::Tail { sessions, requests, znodes } => {
                let counts = (state.sessions.len() as u64, self.requests, state.nodes.len() as u64);
                if counts != (sessions, requests, znodes) {
                    return Err(damaged("records are missing"));
                }
                self.finished = true;
            }
        }
        Ok(())
    }

    /// The state, once all records are in.
    ///
    /// # Errors
    /// [`DecodeError`] when the last record was not pushed.
    pub fn finish(self) -> Result<State, DecodeError> {
        match self.state {
            Some(mut state) if self.finished && state.nodes.contains_key(&ZPath::root()) => {
                state.find_quotas();
                Ok(state)
            }
            _ => Err(damaged("the last record is missing")),
        }
    }
}

fn session(id: SessionId, secret_hash: [u8; 32], timeout_ms: u32, label: &str, opened_ms: u64) -> Session {
    Session {
        id,
        secret_hash,
        timeout_ms,
        label: label.into(),
        opened_ms,
        address: None,
        client: Arc::default(),
        connection: 0,
        turn: 0,
        ephemerals: imbl::OrdSet::new(),
        tickets: imbl::OrdMap::new(),
        keyless: imbl::OrdSet::new(),
        requests: Requests::default(),
    }
}

fn push_session(state: &mut State, session: Session) -> Result<(), DecodeError> {
    state.weight.bytes += weight::session(&session.label, &session.client);
    state.count_session(session.address);
    match state.sessions.insert(session.id, Arc::new(session)) {
        None => Ok(()),
        Some(_) => Err(damaged("a session twice")),
    }
}

fn push_znode(state: &mut State, record: ZnodeRecord) -> Result<(), DecodeError> {
    let path = record.path;
    let parent = path.parent();
    let above = parent.as_ref().and_then(|parent| state.node(parent));
    let acl = match above {
        Some(above) => shared_acl(record.acl, above),
        None => record.acl.into(),
    };
    let may_have_children = above.is_some_and(|above| above.owner().is_none());
    let node = Znode {
        kind: record.kind,
        data: record.data.into(),
        acl,
        czxid: record.czxid,
        mzxid: record.mzxid,
        pzxid: record.pzxid,
        ctime_ms: record.ctime_ms,
        mtime_ms: record.mtime_ms,
        emptied_ms: record.emptied_ms,
        version: record.version,
        aversion: record.aversion,
        creates: record.creates,
        deletes: record.deletes,
        below: Usage::default(),
        family: Family::default(),
        contender: record.contender.map(Arc::new),
    };
    if state.nodes.contains_key(&path) {
        return Err(damaged("a znode twice"));
    }
    if node.contender().is_some_and(|contender| contender.count() == 0) {
        return Err(damaged("a ticket of nobody"));
    }
    // Only a lingering lock node outlives its session.
    let owned = node.owner().is_none_or(|owner| state.sessions.contains_key(&owner));
    if !owned && node.lingers_until_ms().is_none() {
        return Err(damaged("an ephemeral znode of no session"));
    }
    match parent {
        None => {
            state.data_bytes += node.data.len() as u64;
            let acl = state.acls.take(Arc::clone(&node.acl));
            state.nodes.insert(path, Arc::new(Znode { acl, ..node }));
        }
        Some(parent) if may_have_children => {
            state.link(&path, &parent, node, |_| ());
        }
        Some(_) => return Err(damaged("a znode without a parent that can have it")),
    }
    Ok(())
}

pub(crate) fn damaged(what: &str) -> DecodeError {
    DecodeError::Damaged(what.into())
}

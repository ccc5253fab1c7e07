//! The state as a row of records, and back. The same state gives the same bytes on every replica.

use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdMap;

use crate::codec::{DecodeError, decode, encode};
use crate::ledger::{Grant, Ledger, demand_of};
use crate::multilock::MultiLock;
use crate::session::{Answered, Requests, Session};
use crate::state::State;
use crate::znode::{Contender, Family, Kind, Place, Znode};
use crate::{Acl, FencingToken, Limits, LockSettings, Policy, RequestKey, SessionId, Term, ZPath, Zxid};

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
    /// A lock with a ledger; behind its directory.
    Ledger {
        lock: ZPath,
        settings: LockSettings,
        passed: bool,
    },
    /// Somebody who waits with a priority; behind the lock node.
    Priority {
        ticket: ZPath,
        priority: u32,
    },
    /// Somebody who is written in a ledger as a holder; behind the lock node.
    Grant {
        ticket: ZPath,
        token: FencingToken,
    },
    /// Behind all znodes.
    MultiLock {
        czxid: Zxid,
        policy: Policy,
        tickets: Vec<ZPath>,
    },
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
        let multis = self.multis.clone().into_iter().map(|(czxid, multi)| multi_record(czxid, &multi));
        let head = std::iter::once(encode(&head));
        let rest = znodes.chain(multis).map(|record| encode(&record)).chain(std::iter::once(encode(&tail)));
        head.chain(sessions).chain(rest)
    }
}

fn session_records(session: &Session) -> Vec<Vec<u8>> {
    let open = Record::Session {
        id: session.id,
        secret_hash: session.secret_hash,
        timeout_ms: session.timeout_ms,
        label: session.label.to_string(),
        opened_ms: session.opened_ms,
    };
    let requests = session.requests.by_key.iter().map(|(key, answered)| {
        encode(&Record::Request { session: session.id, key: *key, answered: (**answered).clone() })
    });
    std::iter::once(encode(&open)).chain(requests).collect()
}

/// The znode, and what a ledger says of it.
fn znode_records(nodes: &OrdMap<ZPath, Arc<Znode>>, path: ZPath, node: &Znode) -> Vec<Record> {
    let standing = Place::of(path.name(), node.czxid).and_then(|place| {
        let ledger = nodes.get(&path.parent()?)?.family.ledger.as_ref()?;
        let ticket = path.clone();
        match (ledger.grant_of(&place), ledger.priority_of(&place)) {
            (Some(Grant { token, .. }), _) => Some(Record::Grant { ticket, token: *token }),
            (None, 0) => None,
            (None, priority) => Some(Record::Priority { ticket, priority }),
        }
    });
    let ledger = node.family.ledger.as_ref();
    let ledger = ledger.map(|ledger| {
        let (lock, settings, passed) = (path.clone(), ledger.settings, ledger.passed);
        Record::Ledger { lock, settings, passed }
    });
    std::iter::once(znode_record(path, node)).chain(standing).chain(ledger).collect()
}

fn multi_record(czxid: Zxid, multi: &MultiLock) -> Record {
    Record::MultiLock { czxid, policy: multi.policy, tickets: multi.tickets.clone() }
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
            Record::Session { id, secret_hash, timeout_ms, label, opened_ms } => {
                let session = Session {
                    id,
                    secret_hash,
                    timeout_ms,
                    label: label.into(),
                    opened_ms,
                    ephemerals: imbl::OrdSet::new(),
                    tickets: imbl::OrdMap::new(),
                    requests: Requests::default(),
                };
                if state.sessions.insert(id, Arc::new(session)).is_some() {
                    return Err(damaged("a session twice"));
                }
            }
            Record::Request { session, key, answered } => {
                let session = state.sessions.get_mut(&session).ok_or_else(|| damaged("a request of no session"))?;
                Arc::make_mut(session).requests.restore(key, answered);
                self.requests += 1;
            }
            Record::Znode(record) => push_znode(state, *record)?,
            Record::Ledger { lock, settings, passed } => push_ledger(state, &lock, settings, passed)?,
            Record::Priority { ticket, priority } => push_priority(state, &ticket, priority)?,
            Record::Grant { ticket, token } => push_grant(state, &ticket, token)?,
            Record::MultiLock { czxid, policy, tickets } => push_multi(state, czxid, policy, tickets)?,
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
            Some(state) if self.finished && state.nodes.contains_key(&ZPath::root()) => Ok(state),
            _ => Err(damaged("the last record is missing")),
        }
    }
}

fn push_znode(state: &mut State, record: ZnodeRecord) -> Result<(), DecodeError> {
    let path = record.path;
    let node = Znode {
        kind: record.kind,
        data: record.data.into(),
        acl: record.acl.into(),
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
    match path.parent() {
        None => {
            state.data_bytes += node.data.len() as u64;
            state.nodes.insert(path, Arc::new(node));
        }
        Some(parent) if state.node(&parent).is_some_and(|parent| parent.owner().is_none()) => {
            state.link(&path, &parent, node);
        }
        Some(_) => return Err(damaged("a znode without a parent that can have it")),
    }
    Ok(())
}

fn push_ledger(state: &mut State, lock: &ZPath, settings: LockSettings, passed: bool) -> Result<(), DecodeError> {
    let alone = state.node(lock).is_some_and(|node| node.family.names.is_empty() && node.family.ledger.is_none());
    if !alone {
        return Err(damaged("a ledger of no lock, or behind those who are in it"));
    }
    let ledger = Ledger::restored(settings, passed);
    state.edit(lock, |node| node.family.ledger = Some(Arc::new(ledger)));
    Ok(())
}

fn push_priority(state: &mut State, ticket: &ZPath, priority: u32) -> Result<(), DecodeError> {
    let place = state.node(ticket).and_then(|node| Place::of(ticket.name(), node.czxid));
    let ledger = ticket.parent().and_then(|lock| state.ledger(&lock));
    match (place, ledger) {
        (Some(place), Some(ledger)) if priority > 0 && ledger.waits(&place) && ledger.priority_of(&place) == 0 => {
            state.prioritize(ticket, priority);
            Ok(())
        }
        _ => Err(damaged("a priority of nobody")),
    }
}

fn push_grant(state: &mut State, ticket: &ZPath, token: FencingToken) -> Result<(), DecodeError> {
    let lost = || damaged("a grant of no ticket");
    let lock = ticket.parent().ok_or_else(lost)?;
    let node = state.node(ticket).ok_or_else(lost)?;
    let place = Place::of(ticket.name(), node.czxid).ok_or_else(lost)?;
    let ledger = state.ledger(&lock).ok_or_else(lost)?;
    if !ledger.waits(&place) {
        return Err(lost());
    }
    let demand = demand_of(ticket.name(), node, ledger.settings);
    state.edit_ledger(&lock, |ledger| ledger.grant(&place, demand, token));
    Ok(())
}

fn push_multi(state: &mut State, czxid: Zxid, policy: Policy, tickets: Vec<ZPath>) -> Result<(), DecodeError> {
    let part = |ticket: &ZPath| {
        let ledger = ticket.parent().is_some_and(|lock| state.ledger(&lock).is_some());
        ledger && state.node(ticket).is_some_and(|node| node.czxid == czxid && node.contender().is_some())
    };
    if tickets.is_empty() || !tickets.iter().all(part) {
        return Err(damaged("a multi-lock without its parts"));
    }
    match state.multis.insert(czxid, Arc::new(MultiLock { policy, tickets })) {
        None => Ok(()),
        Some(_) => Err(damaged("a multi-lock twice")),
    }
}

fn damaged(what: &str) -> DecodeError {
    DecodeError::Damaged(what.into())
}

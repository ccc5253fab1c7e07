//! One session: its znodes, and the remembered answers to its requests.

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::words::ticket_name::TicketName;
use crate::words::weight::{KEY, text};
use crate::{ClientInfo, Contender, Limits, LockMode, Refusal, Reply, RequestKey, SecretHash, SessionId, ZPath, Zxid};

/// A session. Only the leader knows its deadline, which is not part of the state.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The id: the zxid of the entry that opened the session.
    pub id: SessionId,
    /// The hash of the session's secret.
    pub secret_hash: SecretHash,
    /// The timeout that the session got, in milliseconds.
    pub timeout_ms: u32,
    /// The label that the client gave: free text for people.
    pub label: Arc<str>,
    /// Time at which the session was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// The address of the client that opened the session; `None` if it does not count for the limit
    /// of sessions per address.
    pub address: Option<IpAddr>,
    /// The description of the client that opened the session.
    pub client: Arc<ClientInfo>,
    /// Number of the connection that the session is attached to, which alone may send ordered
    /// writes (`WriteTurn`); 0 for the connection that opened the session.
    pub connection: u64,
    /// The number of the connection's last applied write; 0 if there was none.
    pub turn: u64,
    pub(crate) ephemerals: OrdSet<ZPath>,
    /// The ticket of each owner (user of a lock within the session), so that another acquire by the
    /// owner adds a hold to it. Tickets without owner are not listed.
    pub(crate) tickets: OrdMap<TicketKey, ZPath>,
    /// The tickets made by acquires, by the idempotency key in the name and the owner.
    pub(crate) named: OrdMap<NamedKey, ZPath>,
    /// The tickets that were acquired without idempotency key and owner, by their locks.
    pub(crate) keyless: OrdMap<ZPath, ZPath>,
    pub(crate) requests: Requests,
}

/// Key of an owner's ticket: the lock, the mode, and the owner.
pub(crate) type TicketKey = (ZPath, LockMode, Arc<str>);

/// Key of a ticket by its name: the lock, the mode, the idempotency key in the name, and the owner.
pub(crate) type NamedKey = (ZPath, LockMode, RequestKey, Arc<str>);

impl Session {
    /// The ephemeral znodes, sorted by path.
    pub fn ephemerals(&self) -> impl Iterator<Item = &ZPath> {
        self.ephemerals.iter()
    }

    /// The ephemeral znodes after `after`, or all for `None`, sorted by path. For reading page by
    /// page.
    pub fn ephemerals_from<'a>(&'a self, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ephemerals.range::<_, ZPath>((after, Bound::Unbounded))
    }

    /// Adds an ephemeral znode to the session.
    pub(crate) fn own(&mut self, path: &ZPath, parent: &ZPath, contender: Option<&Contender>) {
        self.ephemerals.insert(path.clone());
        let Some(contender) = contender else { return };
        let key = ticket_key(parent, contender);
        if let Some(key) = named_key(path, &key) {
            self.named.insert(key, path.clone());
        }
        if !contender.owner.is_empty() {
            self.tickets.insert(key, path.clone());
        }
        if contender.keyless {
            self.keyless.insert(parent.clone(), path.clone());
        }
    }

    /// Removes an ephemeral znode from the session.
    pub(crate) fn disown(&mut self, path: &ZPath, parent: &ZPath, contender: Option<&Contender>) {
        self.ephemerals.remove(path);
        let Some(contender) = contender else { return };
        if contender.keyless {
            self.keyless.remove(parent);
        }
        let key = ticket_key(parent, contender);
        if let Some(key) = named_key(path, &key) {
            self.named.remove(&key);
        }
        if self.tickets.get(&key) == Some(path) {
            self.tickets.remove(&key);
        }
    }

    /// Number of ephemeral znodes that the session owns.
    pub fn ephemeral_count(&self) -> usize {
        self.ephemerals.len()
    }
}

/// The key of a ticket in [`Session::tickets`].
fn ticket_key(lock: &ZPath, contender: &Contender) -> TicketKey {
    let owner = if contender.owner.is_empty() { Arc::default() } else { (*contender.owner).into() };
    (lock.clone(), contender.mode.of_any_limit(), owner)
}

/// The key of a ticket in [`Session::named`]; `Some` for every ticket that an acquire made.
fn named_key(ticket: &ZPath, (lock, mode, owner): &TicketKey) -> Option<NamedKey> {
    TicketName::parse(ticket.name()).map(|name| (lock.clone(), *mode, name.key, Arc::clone(owner)))
}

/// The record of an applied request that had an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RequestRecord {
    pub(crate) zxid: Zxid,
    /// The fingerprint of the operation and its guard. It shows whether the key is used again for
    /// another request.
    pub(crate) fingerprint: u64,
    /// The answer; `None` if it was dropped and only the key is remembered.
    pub(crate) answer: Option<Result<Reply, Refusal>>,
}

/// The remembered requests of a session: the last ones with their answers, and the keys of some
/// earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) by_key: OrdMap<RequestKey, Arc<RequestRecord>>,
    /// Keys with an answer, by the zxid of the request.
    kept: OrdMap<Zxid, RequestKey>,
    /// Keys without an answer, by the zxid of the request.
    used: OrdMap<Zxid, RequestKey>,
    /// Estimated memory of all keys and answers, in bytes.
    pub(crate) bytes: u64,
}

impl Requests {
    pub(crate) fn get(&self, key: &RequestKey) -> Option<&Arc<RequestRecord>> {
        self.by_key.get(key)
    }

    /// Remembers an answer, and drops the oldest answers and keys beyond the limits.
    pub(crate) fn keep(&mut self, key: RequestKey, answered: RequestRecord, max: &Limits) {
        let new = self.restore(key, answered);
        assert!(new, "the key was looked for before, and each entry has a zxid of its own");
        while self.kept.len() > max.replies_max as usize {
            self.drop_oldest();
        }
        while self.used.len() > max.used_keys_max as usize {
            let (zxid, key) = *self.used.get_min().expect("it is not empty");
            self.used.remove(&zxid);
            let old = self.by_key.remove(&key).expect("every used key is known");
            self.bytes -= old.weight();
        }
    }

    /// Drops the two oldest answers to make room, but never the newest answer. Their idempotency
    /// keys stay remembered as used.
    pub(crate) fn drop_answers(&mut self) {
        for _ in 0..2 {
            if self.kept.len() > 1 {
                self.drop_oldest();
            }
        }
    }

    fn drop_oldest(&mut self) {
        let (zxid, key) = *self.kept.get_min().expect("it is not empty");
        self.kept.remove(&zxid);
        let old = self.by_key.get_mut(&key).expect("every kept key has an answer");
        self.bytes -= old.weight();
        let old = Arc::make_mut(old);
        old.answer = None;
        self.bytes += old.weight();
        self.used.insert(zxid, key);
    }

    /// Adds a record from a snapshot. Returns false if its key or its zxid exists already.
    pub(crate) fn restore(&mut self, key: RequestKey, answered: RequestRecord) -> bool {
        let zxid = &answered.zxid;
        if self.by_key.contains_key(&key) || self.kept.contains_key(zxid) || self.used.contains_key(zxid) {
            return false;
        }
        if answered.answer.is_some() {
            self.kept.insert(answered.zxid, key);
        } else {
            self.used.insert(answered.zxid, key);
        }
        self.bytes += answered.weight();
        self.by_key.insert(key, Arc::new(answered));
        true
    }

    /// Forgets a key, so that it may be used again.
    pub(crate) fn forget(&mut self, key: &RequestKey) {
        if let Some(answered) = self.by_key.remove(key) {
            self.bytes -= answered.weight();
            self.kept.remove(&answered.zxid);
            self.used.remove(&answered.zxid);
        }
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        if self.by_key.len() != self.kept.len() + self.used.len() {
            return Err(format!("{} keys, {} kept, {} used", self.by_key.len(), self.kept.len(), self.used.len()));
        }
        for (key, answered) in &self.by_key {
            let index = if answered.answer.is_some() { &self.kept } else { &self.used };
            if index.get(&answered.zxid) != Some(key) {
                return Err(format!("request {key} is not indexed at {}", answered.zxid));
            }
        }
        Ok(())
    }
}

impl RequestRecord {
    /// Estimated memory of the answer and its key, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        KEY + match &self.answer {
            None => 0,
            Some(Ok(reply)) => reply.weight(),
            Some(Err(Refusal { path, .. })) => path.as_ref().map_or(0, |path| text(path.as_str())),
        }
    }
}

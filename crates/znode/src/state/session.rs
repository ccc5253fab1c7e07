//! One session: what it owns, and which of its requests were answered already.

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::words::ticket_name::TicketName;
use crate::words::weight::{KEY, text};
use crate::{ClientInfo, Contender, Limits, LockMode, Refusal, Reply, RequestKey, SecretHash, SessionId, ZPath, Zxid};

/// A session. Its deadline is the leader's knowledge and not part of the state.
#[derive(Clone, Debug)]
pub struct Session {
    /// The id: the zxid of the entry that opened it.
    pub id: SessionId,
    /// The hash of its secret.
    pub secret_hash: SecretHash,
    /// The agreed timeout, in milliseconds.
    pub timeout_ms: u32,
    /// Free text for people.
    pub label: Arc<str>,
    /// Time at which it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// The address that the client came from which opened it, if that counts.
    pub address: Option<IpAddr>,
    /// The client that opened it.
    pub client: Arc<ClientInfo>,
    /// The connection that may write in turn; 0 for the one that opened the session.
    pub connection: u64,
    /// The last turn that it took.
    pub turn: u64,
    pub(crate) ephemerals: OrdSet<ZPath>,
    /// The ticket of each named owner, for acquiring once more.
    pub(crate) tickets: OrdMap<TicketKey, ZPath>,
    /// The ticket that each acquire has made, by the key in its name.
    pub(crate) named: OrdMap<NamedKey, ZPath>,
    /// The ticket of each lock that was acquired without key and owner.
    pub(crate) keyless: OrdMap<ZPath, ZPath>,
    pub(crate) requests: Requests,
}

/// Key of an owner's ticket: the lock, how, and the owner within the session.
pub(crate) type TicketKey = (ZPath, LockMode, Arc<str>);

/// Place of a ticket by its name: the lock, how it is wanted, and the key.
pub(crate) type NamedKey = (ZPath, LockMode, RequestKey);

impl Session {
    /// The ephemeral znodes, sorted by path.
    pub fn ephemerals(&self) -> impl Iterator<Item = &ZPath> {
        self.ephemerals.iter()
    }

    /// The ephemeral znodes behind `after`, or all: one page follows another.
    pub fn ephemerals_from<'a>(&'a self, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ephemerals.range::<_, ZPath>((after, Bound::Unbounded))
    }

    /// Takes in one more ephemeral znode.
    pub(crate) fn own(&mut self, path: &ZPath, parent: &ZPath, contender: Option<&Contender>) {
        self.ephemerals.insert(path.clone());
        let Some(contender) = contender else { return };
        if let Some(key) = named_key(path, parent, contender) {
            self.named.insert(key, path.clone());
        }
        if !contender.owner.is_empty() {
            self.tickets.insert(ticket_key(parent, contender), path.clone());
        }
        if contender.keyless {
            self.keyless.insert(parent.clone(), path.clone());
        }
    }

    /// Takes out one ephemeral znode.
    pub(crate) fn disown(&mut self, path: &ZPath, parent: &ZPath, contender: Option<&Contender>) {
        self.ephemerals.remove(path);
        let Some(contender) = contender else { return };
        if contender.keyless {
            self.keyless.remove(parent);
        }
        let named = named_key(path, parent, contender);
        if let Some(key) = named.filter(|key| self.named.get(key) == Some(path)) {
            self.named.remove(&key);
        }
        let key = ticket_key(parent, contender);
        if self.tickets.get(&key) == Some(path) {
            self.tickets.remove(&key);
        }
    }

    /// Number of ephemeral znodes that it owns.
    pub fn ephemeral_count(&self) -> usize {
        self.ephemerals.len()
    }
}

/// The key by which a session finds the ticket of an owner.
fn ticket_key(lock: &ZPath, contender: &Contender) -> TicketKey {
    (lock.clone(), contender.mode.of_any_limit(), (*contender.owner).into())
}

/// The key of a ticket by its name. Every ticket with a record has a name with a key: only acquires
/// make them.
fn named_key(ticket: &ZPath, lock: &ZPath, contender: &Contender) -> Option<NamedKey> {
    TicketName::parse(ticket.name()).map(|name| (lock.clone(), contender.mode.of_any_limit(), name.key))
}

/// The record of an applied request that had an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RequestRecord {
    pub(crate) zxid: Zxid,
    /// The fingerprint of what was asked, and under which guard: tells whether a key is used again
    /// for something else.
    pub(crate) fingerprint: u64,
    /// `None` when the answer was dropped and only the key is remembered.
    pub(crate) answer: Option<Result<Reply, Refusal>>,
}

/// The idempotency window of a session: the last answers in full, and before them some more keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) by_key: OrdMap<RequestKey, Arc<RequestRecord>>,
    /// Keys with an answer, by age.
    kept: OrdMap<Zxid, RequestKey>,
    /// Keys without, by age.
    used: OrdMap<Zxid, RequestKey>,
    /// Weight of all of them.
    pub(crate) bytes: u64,
}

impl Requests {
    pub(crate) fn get(&self, key: &RequestKey) -> Option<&Arc<RequestRecord>> {
        self.by_key.get(key)
    }

    /// Remembers an answer, and drops the oldest of what is too much.
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

    /// Makes room: drops the two oldest answers, but not the newest. Their keys stay.
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

    /// Puts a record back as it was, from a snapshot. False when its key or its zxid is there
    /// already.
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

    /// Forgets a key, so that it may be used afresh.
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
    /// Weight of the answer, with its key.
    pub(crate) fn weight(&self) -> u64 {
        KEY + match &self.answer {
            None => 0,
            Some(Ok(reply)) => reply.weight(),
            Some(Err(Refusal { path, .. })) => path.as_ref().map_or(0, |path| text(path.as_str())),
        }
    }
}

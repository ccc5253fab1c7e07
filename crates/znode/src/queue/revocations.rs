//! Revocations: tickets whose holders were asked to release, with their deadlines.

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::queue::ended::Moment;
use crate::words::weight::{REVOCATION, text};
use crate::{Actor, ZPath};

/// A request to a holder to release its ticket.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Revocation {
    /// The entry of the first request to release the ticket.
    pub at: Moment,
    /// The client that set the deadline; without a deadline, the client that first asked for the
    /// release. Empty if the client asked by writing the lock node's data.
    pub by: Actor,
    /// Deadline at which the leader deletes the ticket, in milliseconds since 1970; `None` for no
    /// deadline.
    pub due_ms: Option<u64>,
}

/// The revocations of all locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revocations {
    by_ticket: OrdMap<ZPath, Revocation>,
    /// Tickets with a deadline, sorted by the deadline.
    due: OrdSet<(u64, ZPath)>,
    /// Estimated memory of all revocations, in bytes.
    bytes: u64,
}

impl Revocations {
    pub(crate) fn get(&self, ticket: &ZPath) -> Option<&Revocation> {
        self.by_ticket.get(ticket)
    }

    pub(crate) fn all(&self) -> &OrdMap<ZPath, Revocation> {
        &self.by_ticket
    }

    /// Tickets whose deadline has passed at `now_ms`, the longest overdue first.
    pub(crate) fn due(&self, now_ms: u64) -> impl Iterator<Item = &ZPath> {
        self.due.iter().take_while(move |(due_ms, _)| *due_ms <= now_ms).map(|(_, ticket)| ticket)
    }

    /// Estimated memory of all revocations, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Compares the index of deadlines and the memory estimate with the revocations, for tests.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let mut anew = Revocations::default();
        self.by_ticket.iter().for_each(|(ticket, revocation)| anew.put(ticket, revocation.clone()));
        let same = anew.due == self.due && anew.bytes == self.bytes;
        if same { Ok(()) } else { Err(format!("revocations are {anew:?} and kept as {self:?}")) }
    }

    pub(crate) fn put(&mut self, ticket: &ZPath, revocation: Revocation) {
        self.remove(ticket);
        self.due.extend(revocation.due_ms.map(|due_ms| (due_ms, ticket.clone())));
        self.bytes += weight(ticket, &revocation.by);
        self.by_ticket.insert(ticket.clone(), revocation);
    }

    pub(crate) fn remove(&mut self, ticket: &ZPath) -> Option<Revocation> {
        let old = self.by_ticket.remove(ticket);
        if let Some(old) = &old {
            self.bytes -= weight(ticket, &old.by);
        }
        if let Some(due_ms) = old.as_ref().and_then(|old| old.due_ms) {
            self.due.remove(&(due_ms, ticket.clone()));
        }
        old
    }

    pub(crate) fn due_ms(&self, ticket: &ZPath) -> Option<u64> {
        self.by_ticket.get(ticket)?.due_ms
    }
}

/// Estimated memory of a revocation, in bytes.
pub(crate) fn weight(ticket: &ZPath, by: &Actor) -> u64 {
    REVOCATION + text(ticket.as_str()) + by.weight()
}

/// The data that Curator's `Revoker` writes into the lock node of a holder to make it release.
const CURATOR: &str = "__REVOKE__";

/// The data that ZooKeeper's recipe for revocable locks writes into the lock node of a holder.
const RECIPE: &str = "unlock";

/// Tells whether this data of a lock node asks its client to release the lock.
pub(crate) fn asks_to_give_up(data: &[u8]) -> bool {
    [CURATOR, RECIPE].iter().any(|word| *data == *word.as_bytes())
}

/// The data that asks the client of a lock node with this name to release the lock. `None` for most
/// names: clients of those names do not look at the data, and keep other data there.
pub(crate) fn word_for(name: &str) -> Option<&'static str> {
    let family = &name[..name.len().saturating_sub(10)];
    let ends = |families: &[&str]| families.iter().any(|end| family.ends_with(end));
    let guid = family.strip_prefix("_c_").and_then(|rest| rest.get(..37));
    let protected = guid.is_some_and(|guid| guid.ends_with('-') && guid.matches('-').count() == 5);
    if protected && ends(&["-lock-", "-__READ__", "-__WRIT__"]) {
        Some(CURATOR)
    } else if ends(&["lock-", "read-", "write-"]) {
        Some(RECIPE)
    } else {
        None
    }
}

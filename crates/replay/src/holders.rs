//! Holders of all locks, and the grants and ends that follow from a change of the holders.

use std::collections::{BTreeMap, BTreeSet};

use znode::lock::{self, Grant};
use znode::{Error, LockMode, SessionId, State, ZPath};

use crate::Fact;

/// Number of tickets (contenders' znodes in a lock's queue) that are read at a time. The tickets of
/// holders precede those of waiters.
const PAGE: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    session: SessionId,
    mode: LockMode,
    grant: Grant,
}

/// Holders of all locks as of the last call of [`Holders::look`].
#[derive(Debug, Default)]
pub struct Holders {
    locks: BTreeMap<ZPath, BTreeMap<String, Held>>,
}

impl Holders {
    /// Returns all locks that are known to be held.
    pub fn known(&self) -> Vec<ZPath> {
        self.locks.keys().cloned().collect()
    }

    /// Compares the holders of these locks in `state`, after the entry `zxid`, with the known
    /// holders before it. Returns the ends of holds and the grants, and keeps the new holders.
    pub fn look(&mut self, state: &State, locks: impl IntoIterator<Item = ZPath>, zxid: u64) -> Vec<Fact> {
        let mut facts = Vec::new();
        for lock in locks.into_iter().collect::<BTreeSet<_>>() {
            let now = holders(state, &lock);
            let before = self.locks.remove(&lock).unwrap_or_default();
            let ended = before.iter().filter(|(ticket, held)| now.get(*ticket) != Some(held));
            facts.extend(ended.map(|(ticket, held)| Fact::Ended {
                zxid,
                lock: lock.to_string(),
                ticket: ticket.clone(),
                session: held.session.0,
                token: held.grant.token.0,
            }));
            let granted = now.iter().filter(|(ticket, held)| before.get(*ticket) != Some(held));
            facts.extend(granted.map(|(ticket, held)| Fact::Granted {
                zxid: held.grant.at.zxid.0,
                lock: lock.to_string(),
                ticket: ticket.clone(),
                session: held.session.0,
                token: held.grant.token.0,
                mode: held.mode,
            }));
            if !now.is_empty() {
                self.locks.insert(lock, now);
            }
        }
        facts
    }

    /// Returns the locks whose holders in `state` differ from the known holders.
    pub fn differences(&self, state: &State) -> Vec<ZPath> {
        let root = ZPath::root();
        let all: BTreeSet<ZPath> = lock::paths(state, &root, None).cloned().chain(self.known()).collect();
        let known = |lock: &ZPath| self.locks.get(lock).cloned().unwrap_or_default();
        all.into_iter().filter(|lock| holders(state, lock) != known(lock)).collect()
    }
}

fn holders(state: &State, lock: &ZPath) -> BTreeMap<String, Held> {
    let mut holders = BTreeMap::new();
    for from in (0..).step_by(PAGE) {
        let entries = match lock::queue(state, lock, from, PAGE) {
            Ok(queue) => queue.entries,
            Err(Error::NoNode) => break,
            Err(_) => Vec::new(),
        };
        let count = entries.len();
        let held = entries.into_iter().filter(|entry| entry.held);
        let held: Vec<_> = held
            .filter_map(|entry| {
                let held = Held { session: entry.session?, mode: entry.mode, grant: entry.grant? };
                Some((entry.ticket.name().to_owned(), held))
            })
            .collect();
        let more = count == PAGE && !held.is_empty();
        holders.extend(held);
        if !more {
            break;
        }
    }
    holders
}

//! What must be true of every state. Each property test and each simulation step asks.

use std::collections::BTreeSet;

use crate::lock::{self, LockStatus};
use crate::state::State;
use crate::tree::{idle_since, timed_at};
use crate::znode::{Place, Znode, is_shared};
use crate::{SessionId, ZPath};

impl State {
    /// Checks the whole state. O(n log n): for tests.
    ///
    /// # Errors
    /// A sentence on the first thing that is not as it must be.
    pub fn check_invariants(&self) -> Result<(), String> {
        if self.node(&ZPath::root()).is_none() {
            return Err("there is no root".into());
        }
        let mut sums = Sums::default();
        for (path, node) in &self.nodes {
            self.check_node(path, node, &mut sums).map_err(|why| format!("{path}: {why}"))?;
        }
        if sums.children + 1 != self.nodes.len() {
            return Err(format!("{} children for {} znodes", sums.children, self.nodes.len()));
        }
        if sums.data_bytes != self.data_bytes {
            return Err(format!("{} data bytes counted as {}", sums.data_bytes, self.data_bytes));
        }
        same("timed", sums.timed, &self.timed.iter().cloned().collect())?;
        same("idle", sums.idle, &self.idle.iter().cloned().collect())?;
        same("locks", sums.locks, &self.locks.iter().cloned().collect())?;
        self.check_multis()?;
        self.check_sessions(&sums.owned)
    }

    fn check_node(&self, path: &ZPath, node: &Znode, sums: &mut Sums) -> Result<(), String> {
        sums.children += node.family.names.len();
        sums.data_bytes += node.data.len() as u64;
        sums.timed.extend(timed_at(node).map(|due_ms| (due_ms, path.clone())));
        sums.idle.extend(idle_since(node).map(|emptied_ms| (emptied_ms, path.clone())));
        if let Some(parent) = path.parent() {
            let parent = self.node(&parent).ok_or("it has no parent")?;
            if !parent.family.names.contains(path.name()) {
                return Err("its parent does not list it".into());
            }
            if parent.owner().is_some() {
                return Err("its parent is ephemeral".into());
            }
        }
        if node.czxid > node.mzxid || node.czxid > node.pzxid || node.mzxid.max(node.pzxid) > self.last_zxid {
            return Err(format!("zxids out of order: {:?} at {}", node.stat(), self.last_zxid));
        }
        if node.creates - node.deletes != node.family.names.len() as u64 {
            return Err("creates less deletes is not the number of children".into());
        }
        match (node.owner(), node.lingers_until_ms()) {
            (Some(owner), None) => {
                sums.owned.insert((owner, path.clone()));
            }
            // The session of a lingering node ended; it must not come back to it.
            (Some(owner), Some(_)) if self.session(owner).is_some() => {
                return Err("it lingers beside its session".into());
            }
            (None, Some(_)) => return Err("it lingers without having been ephemeral".into()),
            _ => {}
        }
        if node.contender().is_some_and(|contender| contender.count() == 0) {
            return Err("nobody holds or waits with this ticket".into());
        }
        self.check_family(path, node, sums)
    }

    fn check_family(&self, path: &ZPath, node: &Znode, sums: &mut Sums) -> Result<(), String> {
        let mut places = BTreeSet::new();
        for name in &node.family.names {
            let child = path.child(name).map_err(|_| format!("child {name:?} has a bad name"))?;
            let child = self.node(&child).ok_or_else(|| format!("child {name} does not exist"))?;
            places.extend(Place::of(name, child.czxid));
        }
        let writers: BTreeSet<_> = places.iter().filter(|place| !is_shared(&place.name)).cloned().collect();
        let tokens: BTreeSet<_> = places.iter().map(|place| (place.czxid, place.name.clone())).collect();
        same("contenders", node.family.contenders.iter().cloned().collect(), &places)?;
        same("writers", node.family.writers.iter().cloned().collect(), &writers)?;
        same("tokens", node.family.tokens.iter().cloned().collect(), &tokens)?;
        if !places.is_empty() {
            sums.locks.insert(path.clone());
        }
        match &node.family.ledger {
            None => self.check_holders(path, &places),
            Some(ledger) => {
                ledger.check_invariants(&node.family.contenders)?;
                match self.next_in(path) {
                    None => Ok(()),
                    Some(turn) => Err(format!("{turn:?} could hold and waits")),
                }
            }
        }
    }

    /// All parts of a multi-lock hold, or none.
    fn check_multis(&self) -> Result<(), String> {
        for (czxid, multi) in &self.multis {
            let mut held = 0;
            for ticket in &multi.tickets {
                let node = self.node(ticket).filter(|node| node.czxid == *czxid && node.contender().is_some());
                let lock = ticket.parent().filter(|_| node.is_some()).ok_or_else(|| format!("no part {ticket}"))?;
                let place = Place::of(ticket.name(), *czxid).ok_or_else(|| format!("{ticket} has no number"))?;
                let ledger = self.ledger(&lock).ok_or_else(|| format!("{lock} has no ledger for {ticket}"))?;
                held += usize::from(ledger.grant_of(&place).is_some());
            }
            if held != 0 && held != multi.tickets.len() {
                return Err(format!("{held} parts of {multi:?} are held"));
            }
        }
        Ok(())
    }

    /// At most one holder, or readers only; a writer and its own downgraded reader count as one.
    fn check_holders(&self, lock: &ZPath, places: &BTreeSet<Place>) -> Result<(), String> {
        let mut writers = BTreeSet::new();
        let mut readers = BTreeSet::new();
        for Place { name, .. } in places {
            let ticket = lock.child(name).map_err(|error| error.to_string())?;
            let Ok(LockStatus::Held { token, .. }) = lock::status(self, &ticket) else {
                continue;
            };
            if !lock::is_held_with(self, lock, token) {
                return Err(format!("{ticket} holds, but its token does not"));
            }
            let owner = self.node(&ticket).and_then(Znode::owner);
            if is_shared(name) {
                readers.insert(owner)
            } else {
                writers.insert((owner, ticket))
            };
        }
        let alone = writers.len() <= 1 && writers.iter().all(|(owner, _)| readers.iter().all(|reader| reader == owner));
        if alone { Ok(()) } else { Err(format!("held by {writers:?} and readers of {readers:?}")) }
    }

    fn check_sessions(&self, owned: &BTreeSet<(SessionId, ZPath)>) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        for (id, session) in &self.sessions {
            if *id != session.id || id.0 == 0 || id.0 > self.last_zxid.0 {
                return Err(format!("session {id} calls itself {}", session.id));
            }
            listed.extend(session.ephemerals().map(|path| (*id, path.clone())));
            session.requests.check_invariants().map_err(|why| format!("session {id}: {why}"))?;
            for ((lock, mode, owner), ticket) in &session.tickets {
                let contender = self.node(ticket).and_then(Znode::contender);
                let fits = contender.is_some_and(|contender| contender.mode == *mode && *contender.owner == **owner);
                if !fits || ticket.parent().as_ref() != Some(lock) || !session.ephemerals.contains(ticket) {
                    return Err(format!("session {id}: {owner} has no such ticket {ticket}"));
                }
            }
        }
        same("ephemerals", listed, owned)
    }
}

/// What the walk over the znodes adds up.
#[derive(Default)]
struct Sums {
    children: usize,
    data_bytes: u64,
    timed: BTreeSet<(u64, ZPath)>,
    idle: BTreeSet<(u64, ZPath)>,
    locks: BTreeSet<ZPath>,
    owned: BTreeSet<(SessionId, ZPath)>,
}

fn same<T: Ord + std::fmt::Debug>(what: &str, counted: BTreeSet<T>, indexed: &BTreeSet<T>) -> Result<(), String> {
    match counted.symmetric_difference(indexed).next() {
        None => Ok(()),
        Some(odd) => Err(format!("{what}: {odd:?} is on one side only")),
    }
}

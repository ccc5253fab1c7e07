//! What must be true of every state. Each property test and each simulation step asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::lock::{self, LockStatus};
use crate::sessions::source;
use crate::state::State;
use crate::tree::{idle_since, timed_at};
use crate::znode::{Place, Znode, is_shared};
use crate::{SessionId, ZPath, Zxid};

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
        if sums.contenders != self.contenders {
            return Err(format!("{} contenders counted as {}", sums.contenders, self.contenders));
        }
        same("timed", sums.timed, &self.timed.iter().cloned().collect())?;
        same("idle", sums.idle, &self.idle.iter().cloned().collect())?;
        same("locks", sums.locks, &self.locks.iter().cloned().collect())?;
        self.check_multis()?;
        same("grants", sums.granted, &self.grants.keys().cloned().collect())?;
        self.past.check_invariants()?;
        self.check_revocations()?;
        self.check_upgrades()?;
        self.check_namings()?;
        self.check_acls()?;
        self.check_weight()?;
        self.check_subtrees()?;
        self.check_quotas()?;
        self.check_sessions(&sums.owned)
    }

    fn check_node(&self, path: &ZPath, node: &Znode, sums: &mut Sums) -> Result<(), String> {
        sums.children += node.family.names.len();
        sums.data_bytes += node.data.len() as u64;
        sums.contenders += node.family.contenders.len() as u64;
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
        let (mut places, mut pending) = (BTreeSet::new(), BTreeSet::new());
        for name in &node.family.names {
            let child = path.child(name).map_err(|_| format!("child {name:?} has a bad name"))?;
            let child = self.node(&child).ok_or_else(|| format!("child {name} does not exist"))?;
            let place = Place::of(name, child.czxid);
            // Each lock node of a session waits for its grant or has had it.
            if child.owner().is_some() && child.lingers_until_ms().is_none() {
                let waits = |place: &Place| node.family.pending.contains(place);
                let settled = place.as_ref().filter(|place| !waits(place)).map(|place| path.child(&place.name));
                sums.granted.extend(settled.transpose().map_err(|error| error.to_string())?);
                pending.extend(place.clone().filter(waits));
            }
            places.extend(place);
        }
        let writers: BTreeSet<_> = places.iter().filter(|place| !is_shared(&place.name)).cloned().collect();
        let token = |place: &Place| {
            let ticket = path.child(&place.name).ok();
            let grant = ticket.and_then(|ticket| self.grants.get(&ticket));
            grant.map_or(place.czxid, |grant| Zxid(grant.token.0))
        };
        let tokens: BTreeSet<_> = places.iter().map(|place| (token(place), place.name.clone())).collect();
        same("contenders", node.family.contenders.iter().cloned().collect(), &places)?;
        same("pending", node.family.pending.iter().cloned().collect(), &pending)?;
        same("writers", node.family.writers.iter().cloned().collect(), &writers)?;
        same("tokens", node.family.tokens.iter().cloned().collect(), &tokens)?;
        if !places.is_empty() {
            sums.locks.insert(path.clone());
        }
        match &node.family.ledger {
            None => self.check_holders(path, &places),
            Some(ledger) => {
                ledger.check_invariants(&node.family.contenders)?;
                match self.next_in(path).filter(|_| !self.unsettled.contains(path)) {
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

    fn check_revocations(&self) -> Result<(), String> {
        let asked = &self.revocations.by_ticket;
        let due = asked.iter().filter_map(|(ticket, asked)| asked.due_ms.map(|due_ms| (due_ms, ticket.clone())));
        same("deadlines", due.collect(), &self.revocations.due.iter().cloned().collect())?;
        let owned = |ticket: &ZPath| self.node(ticket).is_some_and(|node| node.owner().is_some());
        let lingers = |ticket: &ZPath| self.node(ticket).and_then(Znode::lingers_until_ms).is_some();
        match asked.keys().find(|ticket| !owned(ticket) || lingers(ticket)) {
            Some(ticket) => Err(format!("{ticket} is asked for, and no session has it")),
            None => Ok(()),
        }
    }

    fn check_upgrades(&self) -> Result<(), String> {
        for (lock, upgraded) in &self.upgrades {
            let names = self.node(lock).map(|node| &node.family.names).ok_or_else(|| format!("{lock}: upgraded"))?;
            let pair = upgraded.pair.iter().flat_map(|pair| [&*pair.writer, &*pair.reader]);
            if names.is_empty() || pair.into_iter().any(|name| !names.contains(name)) {
                return Err(format!("{lock}: {upgraded:?} of {names:?}"));
            }
        }
        Ok(())
    }

    fn check_sessions(&self, owned: &BTreeSet<(SessionId, ZPath)>) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        let mut by_source = BTreeMap::new();
        for (id, session) in &self.sessions {
            let keyless = session
                .ephemerals()
                .filter(|path| self.node(path).and_then(Znode::contender).is_some_and(|contender| contender.keyless));
            if !keyless.eq(&session.keyless) {
                return Err(format!("session {id}: {:?} are not those without a key", session.keyless));
            }
            if let Some(address) = session.address {
                *by_source.entry(source(address)).or_insert(0) += 1;
            }
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
        if !self.sessions_by_source.iter().eq(&by_source) {
            return Err(format!("sessions {by_source:?} of addresses counted as {:?}", self.sessions_by_source));
        }
        if let Some(id) = self.ending.iter().find(|id| !self.sessions.contains_key(*id)) {
            return Err(format!("session {id} is being ended and is not there"));
        }
        same("ephemerals", listed, owned)
    }
}

/// What the walk over the znodes adds up.
#[derive(Default)]
struct Sums {
    children: usize,
    data_bytes: u64,
    contenders: u64,
    timed: BTreeSet<(u64, ZPath)>,
    idle: BTreeSet<(u64, ZPath)>,
    locks: BTreeSet<ZPath>,
    owned: BTreeSet<(SessionId, ZPath)>,
    granted: BTreeSet<ZPath>,
}

fn same<T: Ord + std::fmt::Debug>(what: &str, counted: BTreeSet<T>, indexed: &BTreeSet<T>) -> Result<(), String> {
    match counted.symmetric_difference(indexed).next() {
        None => Ok(()),
        Some(odd) => Err(format!("{what}: {odd:?} is on one side only")),
    }
}

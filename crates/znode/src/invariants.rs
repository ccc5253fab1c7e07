//! Invariants of every state. Property tests and simulations check them after each step.

use std::collections::BTreeSet;

use crate::edits::positions::holds_lock;
use crate::queue::demand::Demand;
use crate::queue::{Origin, Position, Queue};
use crate::tree::znode::Changes;
use crate::{SessionId, State, ZPath, Znode};

impl State {
    /// Checks the invariants of the whole state, for tests. Costs O(n log n).
    ///
    /// # Errors
    /// A sentence about the first violation.
    pub fn check_invariants(&self) -> Result<(), String> {
        if self.node(&ZPath::root()).is_none() {
            return Err("there is no root".into());
        }
        let mut sums = Sums::default();
        for (path, node) in self.tree().iter() {
            self.check_node(path, node, &mut sums).map_err(|why| format!("{path}: {why}"))?;
        }
        if sums.children + 1 != self.tree().len() {
            return Err(format!("{} children for {} znodes", sums.children, self.tree().len()));
        }
        let counted = (sums.tickets, sums.holders, sums.locks.len());
        if counted != (self.locks().ticket_count(), self.locks().holder_count(), self.locks().directory_count()) {
            return Err(format!("tickets, holders and locks are {counted:?}: {:?}", self.locks()));
        }
        same("locks", sums.locks, &self.locks().directories_from("").cloned().collect())?;
        self.check_multis()?;
        self.tree().check_invariants()?;
        self.sessions().check_invariants()?;
        self.locks().histories.check_invariants()?;
        self.locks().revocations.check_invariants()?;
        self.locks().mixed_clients.check(self.tree().iter())?;
        self.check_revocations()?;
        self.check_quotas()?;
        self.check_sessions(&sums.owned)
    }

    fn check_node(&self, path: &ZPath, node: &Znode, sums: &mut Sums) -> Result<(), String> {
        sums.children += node.family.names.len();
        if let Some(parent) = path.parent() {
            let parent = self.node(&parent).ok_or("it has no parent")?;
            if !parent.family.names.contains(path.name()) {
                return Err("its parent does not list it".into());
            }
            if parent.owner().is_some() {
                return Err("its parent is ephemeral".into());
            }
        }
        let Changes { mzxid, pzxid, creates, deletes, .. } = node.changes;
        if node.czxid > mzxid || node.czxid > pzxid || mzxid.max(pzxid) > self.last_zxid() {
            return Err(format!("zxids out of order: {:?} at {}", node.stat(), self.last_zxid()));
        }
        if creates - deletes != node.family.names.len() as u64 {
            return Err("creates less deletes is not the number of children".into());
        }
        match (node.owner(), node.lingers_until_ms()) {
            (Some(owner), None) => {
                sums.owned.insert((owner, path.clone()));
            }
            // A lock node kept for a lock-delay has an ended session, whose id is never used again.
            (Some(owner), Some(_)) if self.session(owner).is_some() => {
                return Err("it lingers beside its session".into());
            }
            (None, Some(_)) => return Err("it lingers without having been ephemeral".into()),
            _ => {}
        }
        if node.contender().is_some_and(|contender| contender.count() == 0) {
            return Err("no holder and no waiter has this ticket".into());
        }
        self.check_family(path, node, sums)
    }

    fn check_family(&self, path: &ZPath, node: &Znode, sums: &mut Sums) -> Result<(), String> {
        let mut tickets = BTreeSet::new();
        for name in &node.family.names {
            let child = path.child(name).map_err(|_| format!("child {name:?} has a bad name"))?;
            let child_node = self.node(&child).ok_or_else(|| format!("child {name} does not exist"))?;
            let Some(position) = child_node.position(name) else { continue };
            let queue = node.family.queue.as_ref().ok_or("it has tickets and no queue")?;
            let holder = queue.holder(&position);
            let known = holder.map(|holder| &holder.ticket).or_else(|| queue.waiter(&position));
            if known != Some(&child_node.ticket(child.name())) {
                return Err(format!("{name} is in the queue as {known:?}"));
            }
            let counts = child_node.owner().is_some() && child_node.lingers_until_ms().is_none();
            sums.holders += u64::from(counts && holder.is_some());
            if child_node.lingers_until_ms().is_some() && holder.is_none() {
                return Err(format!("{name} lingers and does not hold"));
            }
            tickets.insert(position);
        }
        sums.tickets += tickets.len() as u64;
        if !tickets.is_empty() {
            sums.locks.insert(path.clone());
        }
        let Some(queue) = &node.family.queue else { return Ok(()) };
        queue.check_invariants()?;
        same("tickets", queue.tickets().cloned().collect(), &tickets)?;
        self.check_nobody_is_next(path)?;
        self.check_order_of_names(path, queue)
    }

    /// Checks for every multi-lock that either all of its tickets hold their locks, or none.
    fn check_multis(&self) -> Result<(), String> {
        for (czxid, multi) in self.locks().multis() {
            let mut held = 0;
            for ticket in &multi.tickets {
                let node = self.node(ticket).filter(|node| node.czxid == *czxid);
                let part = node.and_then(Znode::contender).is_some_and(|contender| contender.in_multi_lock);
                if !part {
                    return Err(format!("no part {ticket}"));
                }
                held += usize::from(holds_lock(self, ticket));
            }
            if held != 0 && held != multi.tickets.len() {
                return Err(format!("{held} parts of {multi:?} are held"));
            }
        }
        Ok(())
    }

    /// Checks that the holders are those that ZooKeeper's clients would find by comparing the names
    /// of lock nodes: the first ticket, or all readers before the first writer. Queues whose grants
    /// may differ from the order of names are skipped, for example with a multi-lock, an upgrade,
    /// or numbers out of order.
    fn check_order_of_names(&self, lock: &ZPath, queue: &Queue) -> Result<(), String> {
        let all: BTreeSet<_> = queue.tickets().cloned().collect();
        let in_turn = all.iter().is_sorted_by_key(|position| position.czxid)
            && all.iter().map(|position| position.number).collect::<BTreeSet<_>>().len() == all.len();
        let known = |position: &Position| {
            queue.holder(position).map_or_else(|| queue.waiter(position), |holder| Some(&holder.ticket)).copied()
        };
        let plain = |position: &Position| {
            let ticket = known(position);
            let lingers =
                self.node(&self.ticket_at(lock, position)).is_some_and(|node| node.lingers_until_ms().is_some());
            ticket.is_some_and(|ticket| matches!(ticket.demand, Demand::Alone | Demand::Shared))
                && ticket.is_some_and(|ticket| ticket.origin != Origin::MultiLock)
                && !lingers
        };
        // A downgrade's read ticket was granted the lock out of turn, and may keep holding after
        // its write ticket has been released.
        let first_waits = queue.waiters().map(|(position, _)| position).min();
        let downgraded = queue.holders().any(|(position, holder)| {
            holder.ticket.demand == Demand::Shared
                && holder.grant.at.zxid == position.czxid
                && first_waits.is_some_and(|first| first < position)
        });
        let left_over = self.locks().unsettled().contains(lock) || self.sessions().are_ending();
        if left_over
            || downgraded
            || !in_turn
            || queue.upgrade().is_some()
            || queue.settings().managed
            || !all.iter().all(plain)
        {
            return Ok(());
        }
        let reads = |position: &&Position| known(position).is_some_and(|ticket| ticket.demand == Demand::Shared);
        let readers: BTreeSet<_> = all.iter().take_while(reads).cloned().collect();
        let by_name = if readers.is_empty() { all.iter().take(1).cloned().collect() } else { readers };
        same("holders by name", queue.holders().map(|(position, _)| position.clone()).collect(), &by_name)
    }

    fn check_revocations(&self) -> Result<(), String> {
        let asked = self.locks().revocations.all();
        let owned = |ticket: &ZPath| self.node(ticket).is_some_and(|node| node.owner().is_some());
        let lingers = |ticket: &ZPath| self.node(ticket).and_then(Znode::lingers_until_ms).is_some();
        match asked.keys().find(|ticket| !owned(ticket) || lingers(ticket)) {
            Some(ticket) => Err(format!("{ticket} is asked for, and no session has it")),
            None => Ok(()),
        }
    }

    fn check_sessions(&self, owned: &BTreeSet<(SessionId, ZPath)>) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        for session in self.sessions().from(SessionId(0)) {
            let id = session.id;
            let keyless = |path: &&ZPath| self.node(path).and_then(Znode::contender).is_some_and(|it| it.keyless);
            if session.ephemerals().filter(keyless).collect::<BTreeSet<_>>() != session.keyless.values().collect() {
                return Err(format!("session {id}: {:?} are not those without a key", session.keyless));
            }
            let acquired = |path: &&ZPath| self.node(path).is_some_and(|node| node.contender().is_some());
            if session.ephemerals().filter(acquired).collect::<BTreeSet<_>>() != session.named.values().collect() {
                return Err(format!("session {id}: {:?} are not its tickets", session.named));
            }
            if id.0 > self.last_zxid().0 {
                return Err(format!("session {id} was opened by no entry"));
            }
            listed.extend(session.ephemerals().map(|path| (id, path.clone())));
            for ((lock, mode, owner), ticket) in &session.tickets {
                let contender = self.node(ticket).and_then(Znode::contender);
                let fits = contender
                    .is_some_and(|contender| contender.mode.of_any_limit() == *mode && *contender.owner == **owner);
                if !fits || ticket.parent().as_ref() != Some(lock) || !session.ephemerals.contains(ticket) {
                    return Err(format!("session {id}: {owner} has no such ticket {ticket}"));
                }
            }
        }
        same("ephemerals", listed, owned)
    }
}

/// Sums over all znodes, counted anew, which must equal the counters that the state keeps.
#[derive(Default)]
struct Sums {
    children: usize,
    tickets: u64,
    locks: BTreeSet<ZPath>,
    owned: BTreeSet<(SessionId, ZPath)>,
    holders: u64,
}

fn same<T: Ord + std::fmt::Debug>(what: &str, counted: BTreeSet<T>, indexed: &BTreeSet<T>) -> Result<(), String> {
    match counted.symmetric_difference(indexed).next() {
        None => Ok(()),
        Some(odd) => Err(format!("{what}: {odd:?} is on one side only")),
    }
}

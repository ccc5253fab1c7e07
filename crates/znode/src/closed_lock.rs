//! Locks that are closed to recipe clients: only acquires enter their queues, so the order need not be that of the names.
//!
//! That is what priorities and a hand-over to a named waiter need. A client that lists the lock nodes and takes the first
//! for the holder would be wrong here, so it is not let in.

use std::sync::Arc;

use crate::ledger::{Ledger, demand_of};
use crate::lock::revoke::REVOKE;
use crate::quota::Growth;
use crate::state::{Changes, State};
use crate::system_paths::check_client_path;
use crate::tree::{NewNode, permit};
use crate::znode::{Kind, Place, sequence_of};
use crate::{Acl, CREATE, Error, LockSettings, Refusal, Reply, SessionId, ZPath, weight};

impl State {
    /// Sets what a lock is. Its directory is made, or made persistent: settings must not go with a container, nor after a time.
    pub(crate) fn set_lock(
        &mut self,
        lock: &ZPath,
        settings: LockSettings,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, lock);
        // The holders of a semaphore are told apart by their czxids, and a closed lock does not go by those.
        let both = settings.closed && settings.limit.is_some();
        if lock.is_root() || settings.limit == Some(0) || both {
            return Err(refuse(Error::BadArguments));
        }
        check_client_path(lock)?;
        let (base, missing) = self.missing_on_the_way(lock).map_err(refuse)?;
        // A directory that is made for its settings has the same ACL.
        let acl = Arc::clone(&self.nodes[&base].acl);
        permit(&acl, REVOKE, changes).map_err(refuse)?;
        if !missing.is_empty() {
            permit(&acl, CREATE, changes).map_err(refuse)?;
        }
        self.check_closed_on_the_way(&base, &missing)?;
        if missing.is_empty() {
            let node = &self.nodes[lock];
            if node.owner().is_some() {
                return Err(refuse(Error::NoChildrenForEphemerals));
            }
            let known = self.ledger(lock).map(|ledger| ledger.settings).unwrap_or_default();
            let same = LockSettings { waiters_max: known.waiters_max, ..settings } == known;
            if !same && !node.family.contenders.is_empty() {
                return Err(refuse(Error::NotEmpty));
            }
        } else {
            self.check_room(&self.nodes[&base], lock, 0, missing.len() as u64).map_err(refuse)?;
            self.check_quota(lock, Growth { count: missing.len() as u64, bytes: 0 })?;
        }
        let opens = settings != LockSettings::default();
        if opens {
            self.check_ledger(lock).map_err(refuse)?;
            if self.ledger(lock).is_none() {
                let made = weight::made(lock, 0, missing.len() as u64);
                self.check_bytes(weight::ledger() + made).map_err(refuse)?;
            }
        }
        self.make_containers(&missing, &acl, changes);
        if opens {
            self.open_ledger(lock, None, settings);
        }
        self.edit(lock, |node| {
            if settings != LockSettings::default() && matches!(node.kind, Kind::Container | Kind::Ttl { .. }) {
                node.kind = Kind::Persistent;
            }
            if let Some(ledger) = &mut node.family.ledger {
                Arc::make_mut(ledger).set(settings);
            }
            node.family.ledger.take_if(|ledger| ledger.is_over());
        });
        Ok(Reply::Done)
    }

    /// Gives a waiter its priority before anybody has a turn.
    pub(crate) fn prioritize(&mut self, ticket: &ZPath, priority: u32) {
        let place = Place::of(ticket.name(), self.nodes[ticket].czxid).expect("a lock node has a number");
        let lock = ticket.parent().expect("a lock node has a parent");
        self.edit_ledger(&lock, |ledger| ledger.prioritize(&place, priority));
    }

    /// Releases a ticket and grants the lock to the named waiter, before all others.
    pub(crate) fn hand_over(
        &mut self,
        ticket: &ZPath,
        to: &ZPath,
        session: Option<SessionId>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, ticket);
        self.check_ticket(ticket, session).map_err(refuse)?;
        let lock = ticket.parent().ok_or_else(|| refuse(Error::BadArguments))?;
        let ledger = self.ledger(&lock).filter(|ledger| ledger.settings.closed);
        let ledger = ledger.ok_or_else(|| Refusal::at(Error::LockNotClosed, &lock))?;
        let place = |path: &ZPath| Place::of(path.name(), self.node(path)?.czxid);
        let held = place(ticket).is_some_and(|place| ledger.grant_of(&place).is_some());
        if !held || self.multi_of(ticket, &self.nodes[ticket]).is_some() {
            return Err(refuse(Error::LockNotHeld));
        }
        let refuse = Refusal::at(Error::HandOverRefused, to);
        let waits = place(to).filter(|place| ledger.waits(place) && to.parent().as_ref() == Some(&lock));
        let free = |_: &Place| self.multi_of(to, &self.nodes[to]).is_none() && !self.waits_in_vain(to, &self.nodes[to]);
        let Some(place) = waits.filter(free) else {
            return Err(refuse);
        };
        let demand = demand_of(to.name(), &self.nodes[to], ledger.settings);
        if !ledger.fits_without(&self.place_of(ticket), demand) {
            return Err(refuse);
        }
        self.remove(ticket, changes);
        self.grant_out_of_turn(&lock, &place, changes);
        Ok(Reply::Released { holds: 0 })
    }

    pub(crate) fn place_of(&self, ticket: &ZPath) -> Place {
        Place::of(ticket.name(), self.nodes[ticket].czxid).expect("a lock node has a number")
    }

    /// Whether as many wait as may: one more has to hold at once.
    pub(crate) fn is_full(&self, lock: &ZPath) -> bool {
        let waiters_max = self.ledger(lock).and_then(|ledger| Some((ledger, ledger.settings.waiters_max?)));
        waiters_max.is_some_and(|(ledger, max)| ledger.waiters() >= max as usize)
    }

    /// Whether one who has just come may stay. Asked when all who can hold do: whether somebody has to wait depends on his
    /// priority, on his own tickets, on whom he may pass, and for a part of a multi-lock on other locks.
    ///
    /// # Errors
    /// `TooManyWaiters` when he waits and is one too many.
    pub(crate) fn check_waiters(&self, ticket: &ZPath) -> Result<(), Refusal> {
        let lock = ticket.parent().expect("a lock node has a parent");
        let waits = self.ledger(&lock).filter(|ledger| ledger.waits(&self.place_of(ticket)));
        let over = |ledger: &Ledger| ledger.settings.waiters_max.is_some_and(|max| ledger.waiters() > max as usize);
        if waits.is_some_and(over) { Err(Refusal::at(Error::TooManyWaiters, &lock)) } else { Ok(()) }
    }

    /// Whether a name may be made below a znode otherwise than as the lock node of an acquire.
    pub(crate) fn check_closed(&self, parent: &ZPath, name: &str) -> Result<(), Refusal> {
        let closed = || self.ledger(parent).is_some_and(|ledger| ledger.settings.closed);
        if sequence_of(name).is_some() && closed() { Err(Refusal::at(Error::LockClosed, parent)) } else { Ok(()) }
    }

    /// The same for directories that are missing below `base`, given deepest first. Only the uppermost can be in a queue:
    /// what is made with it has no settings.
    pub(crate) fn check_closed_on_the_way(&self, base: &ZPath, missing: &[ZPath]) -> Result<(), Refusal> {
        missing.last().map_or(Ok(()), |first| self.check_closed(base, first.name()))
    }

    /// Makes directories that are missing, given deepest first, as containers with the ACL of what they are made in.
    pub(crate) fn make_containers(&mut self, missing: &[ZPath], acl: &Arc<[Acl]>, changes: &mut Changes) {
        for path in missing.iter().rev() {
            let container =
                NewNode { kind: Kind::Container, data: Arc::new([]), acl: Arc::clone(acl), contender: None };
            self.insert(path, container, changes);
        }
    }
}

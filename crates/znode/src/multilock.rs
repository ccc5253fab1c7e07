//! Several locks at once: all of them or none.
//!
//! A multi-lock has a lock node, its part, in the queue of each of its locks; all are made by one entry and so stand in the
//! same order in every queue, which is why multi-locks do not wait for each other in a circle. Until all parts can hold,
//! none does. They go together too, whatever takes the first of them away.

use crate::acquire::Entered;
use crate::state::{Changes, State};
use crate::znode::{Hold, Znode};
use crate::{
    Acquire, AcquireAll, Error, Idempotency, LockMode, LockSettings, Policy, Refusal, Reply, RequestKey, SessionId,
    ZPath, Zxid,
};

/// The most locks that one multi-lock may have. Bounds the work of a grant.
const PARTS_MAX: usize = 64;

/// A multi-lock that waits or holds. Named by its zxid, which is the czxid of all its lock nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MultiLock {
    pub(crate) policy: Policy,
    /// The lock nodes, in the order of the request. The first stands for all in requests.
    pub(crate) tickets: Vec<ZPath>,
}

impl State {
    pub(crate) fn acquire_all(
        &mut self,
        wish: &AcquireAll,
        session: Option<SessionId>,
        idempotency: Option<&Idempotency>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let Some(id) = session else {
            return Err(Error::SessionRequired.into());
        };
        let Some(key) = idempotency.map(|idempotency| idempotency.key) else {
            return Err(Error::BadArguments.into());
        };
        self.check_parts(wish)?;
        if wish.label.len() > self.limits.label_bytes_max as usize {
            return Err(Error::DataTooLarge.into());
        }
        if let Some(ticket) = self.ticket_with(id, &wish.first(), key) {
            return self.acquire_again(&ticket, id, key, wish.attempt);
        }
        let before = self.clone();
        match self.enqueue_all(wish, id, key, changes) {
            Ok(first) => {
                self.settle(changes);
                self.acquired(&first)
            }
            Err(refusal) => {
                *self = before;
                changes.clear();
                Err(refusal)
            }
        }
    }

    fn check_parts(&self, wish: &AcquireAll) -> Result<(), Refusal> {
        if wish.parts.len() > PARTS_MAX.min(self.limits.ops_max as usize) {
            return Err(Error::TooManyOps.into());
        }
        if wish.parts.is_empty() {
            return Err(Error::BadArguments.into());
        }
        for (index, (lock, mode)) in (0..).zip(&wish.parts) {
            let again = wish.parts[..index as usize].iter().any(|(other, _)| other == lock);
            // Who leads an election is one, not one of several that a multi-lock ties together.
            if lock.is_root() || again || *mode == LockMode::Latch {
                return Err(Refusal { op_index: Some(index), ..Refusal::at(Error::BadArguments, lock) });
            }
        }
        Ok(())
    }

    fn enqueue_all(
        &mut self,
        wish: &AcquireAll,
        id: SessionId,
        key: RequestKey,
        changes: &mut Changes,
    ) -> Result<ZPath, Refusal> {
        let mut tickets: Vec<ZPath> = Vec::with_capacity(wish.parts.len());
        for index in 0..wish.parts.len() {
            let acquire = wish.part(index);
            let hold = Hold { key, attempts: vec![wish.attempt] };
            let at = |refusal| Refusal { op_index: u32::try_from(index).ok(), ..refusal };
            let refuse = |error| at(Refusal::at(error, &acquire.lock));
            self.check_ledger(&acquire.lock).map_err(refuse)?;
            let Entered::At(ticket) = self.enqueue_in_mode(&acquire, id, hold, changes).map_err(at)? else {
                // Only who has a name can close a circle.
                return Err(refuse(Error::Deadlock));
            };
            self.open_ledger(&acquire.lock, Some(&ticket), LockSettings::default());
            changes.touch(&acquire.lock);
            tickets.push(ticket);
        }
        let first = tickets[0].clone();
        self.multis.insert(changes.zxid, MultiLock { policy: wish.policy, tickets }.into());
        Ok(first)
    }

    /// The multi-lock that a lock node is a part of.
    pub(crate) fn multi_of(&self, ticket: &ZPath, node: &Znode) -> Option<&MultiLock> {
        let multi = self.multis.get(&node.czxid)?;
        // A directory that the same entry made has the same czxid.
        multi.tickets.contains(ticket).then_some(&**multi)
    }

    /// Takes the multi-lock of a lock node that goes apart: the other parts have to go as well.
    pub(crate) fn take_multi(&mut self, ticket: &ZPath, czxid: Zxid) -> Vec<ZPath> {
        let part = self.multis.get(&czxid).is_some_and(|multi| multi.tickets.contains(ticket));
        let taken = if part { self.multis.remove(&czxid) } else { None };
        let mut tickets = taken.map(|multi| multi.tickets.clone()).unwrap_or_default();
        tickets.retain(|other| other != ticket);
        tickets
    }
}

impl AcquireAll {
    /// The acquire of one part.
    fn part(&self, index: usize) -> Acquire {
        let (lock, mode) = self.parts[index].clone();
        Acquire {
            lock,
            mode,
            owner: String::new(),
            label: self.label.clone(),
            lock_delay_ms: self.lock_delay_ms,
            attempt: self.attempt,
        }
    }

    /// The acquire of the part that stands for all.
    pub(crate) fn first(&self) -> Acquire {
        self.part(0)
    }
}

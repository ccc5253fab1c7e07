//! Upgrades from reading to writing without a release in between, and downgrades back.
//!
//! An upgrade adds a write ticket to the queue, ahead of all waiters. The read ticket of the same
//! upgrade does not block the write ticket, which is granted the lock once all other readers have
//! gone. A downgrade is a new read ticket of the session that holds the lock with a write ticket.
//! The read ticket has the write ticket's sequence number, as in Curator's downgrade. It is granted
//! the lock at once, and keeps the lock after the write ticket is released.

use std::sync::Arc;

use crate::edits::edit::{NewNode, next_number};
use crate::edits::effects::Effects;
use crate::edits::permissions::permit;
use crate::operations::deadlock::Newcomer;
use crate::operations::readings::held;
use crate::queue::demand::Demand;
use crate::queue::{Position, Queue};
use crate::tree::quota::Growth;
use crate::words::ticket_name::{Shape, TicketName};
use crate::words::weight;
use crate::{
    CREATE, Contender, Error, Kind, LockMode, Refusal, Reply, RequestKey, SessionId, State, Upgrade, ZPath, Znode,
};

impl State {
    pub(crate) fn upgrade(&mut self, upgrade: &Upgrade, effects: &mut Effects) -> Result<Reply, Refusal> {
        let reader = &upgrade.ticket;
        let refuse = |error| Refusal::at(error, reader);
        let id = self.check_ticket(reader, &effects.context).map_err(refuse)?;
        let hold = effects.context.hold().map_err(refuse)?;
        let key = hold.key;
        if upgrade.label.len() > self.limits().label_bytes_max as usize {
            return Err(refuse(Error::DataTooLarge));
        }
        // The answer and the key may be forgotten in the session, but the ticket still has the key
        // of a retry.
        if let Some(writer) = self.upgraded_with(id, upgrade, key) {
            return self.acquire_again(&writer, &effects.context);
        }
        let contender = self.tree()[reader].contender().filter(|contender| contender.mode == LockMode::Read).cloned();
        let contender = contender.ok_or_else(|| refuse(Error::BadArguments))?;
        if !matches!(held(self, reader), Ok(Some(_))) {
            return Err(refuse(Error::LockNotHeld));
        }
        let lock = reader.parent().expect("a lock node has a parent");
        if let Some(writer) = self.ticket_of(id, &lock, LockMode::Write, &contender.owner) {
            return self.hold_once_more(&writer, hold);
        }
        permit(&self.tree()[&lock].acl, CREATE, &effects.context).map_err(|error| Refusal::at(error, &lock))?;
        let writer = self.writer_for(reader, &lock, key).map_err(refuse)?;
        let (_, reading) = self.position_of(reader);
        let upgraded = Position::of(writer.name(), effects.context.zxid).zip(Some(&reading));
        let owner = &*contender.owner;
        let newcomer = Newcomer { lock: &lock, session: id, owner, mode: LockMode::Write, upgraded };
        if let Some(cycle) = self.deadlock(&newcomer) {
            return Ok(self.refuse_deadlock(&newcomer, &upgrade.label, cycle, effects));
        }
        self.check_upgrade(&lock, &writer, id, upgrade, &reading)?;
        let acl = Arc::clone(&self.tree()[&lock].acl);
        if let Some(writing) = Position::of(writer.name(), effects.context.zxid) {
            self.edit_queue(&lock, |queue| queue.expect_upgraded(writing, reading));
        }
        let contender = Contender {
            mode: LockMode::Write,
            holds: vec![hold],
            released: 0,
            keyless: false,
            in_multi_lock: false,
            ..contender
        };
        let data = upgrade.label.as_bytes().into();
        let kind = Kind::Ephemeral { owner: id };
        self.insert(&writer, NewNode { kind, data, acl, contender: Some(contender) }, effects);
        self.grant_ready(effects);
        self.acquired(&writer)
    }

    /// The path for the new write ticket of an upgrade. Its sequence number comes before the
    /// numbers of the waiters where possible, for clients that compare the names of lock nodes.
    fn writer_for(&self, reader: &ZPath, lock: &ZPath, key: RequestKey) -> Result<ZPath, Error> {
        let parent = &self.tree()[lock];
        let queue = self.queue(lock).ok_or(Error::NoNode)?;
        // Each of two upgrades would wait for the other's reader.
        if queue.upgrade().is_some() {
            return Err(Error::UpgradeConflict);
        }
        let next = next_number(parent)?;
        let number = queue.waiters().next().map_or(next, |(first, _)| {
            let last = queue.holders().next_back().map(|(last, _)| last.number);
            last.filter(|last| *last < first.number).unwrap_or_else(|| self.position_of(reader).1.number)
        });
        lock.child(&TicketName { shape: Shape::Alone, key, number }.text())
    }

    /// Checks the new write ticket of an upgrade against the limits that apply to tickets of
    /// acquires.
    fn check_upgrade(
        &self,
        lock: &ZPath,
        writer: &ZPath,
        id: SessionId,
        upgrade: &Upgrade,
        reading: &Position,
    ) -> Result<(), Refusal> {
        let refuse = |error| Refusal::at(error, lock);
        let parent = &self.tree()[lock];
        if self.tree().contains(writer) {
            return Err(Refusal::at(Error::NodeExists, writer));
        }
        self.check_room(parent, writer, upgrade.label.len(), 1).map_err(refuse)?;
        self.check_bytes(weight::made(writer, upgrade.label.len(), 1) + weight::QUEUED).map_err(refuse)?;
        self.check_quota(writer, Growth { count: 1, bytes: upgrade.label.len() as u64 })?;
        self.check_ephemerals(Kind::Ephemeral { owner: id }).map_err(refuse)?;
        let waits = |queue: &Queue| !queue.fits_after(reading, reading, Demand::Alone);
        let full = parent.family.ticket_count() >= self.limits().waiters_max as usize
            || self.queue(lock).is_some_and(|queue| queue.is_full() && waits(queue));
        if full { Err(refuse(Error::TooManyWaiters)) } else { Ok(()) }
    }

    /// The write ticket of an earlier upgrade with this idempotency key, so that this upgrade is a
    /// retry. The write ticket is found by the owner of the read ticket, or only by the key in its
    /// own name if the read ticket is gone.
    pub(crate) fn upgraded_with(&self, id: SessionId, upgrade: &Upgrade, key: RequestKey) -> Option<ZPath> {
        let lock = upgrade.ticket.parent()?;
        match self.node(&upgrade.ticket).and_then(Znode::contender) {
            Some(reader) => self.ticket_of_key(id, &lock, LockMode::Write, &reader.owner, key),
            None => self.writer_named(id, &lock, key),
        }
    }
}

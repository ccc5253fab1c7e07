//! The model's upgrades.

use znode::lock::LockStatus;
use znode::{CREATE, Error, LockMode, RequestKey, SessionId, Upgrade};

use super::{Answer, LockNode, Model, Stay, join, name_of, number, parent_of, refused, ticket_name};

/// A bound above all sequence numbers.
const SEQUENCE_END: u64 = (1 << 31) - 1;

impl Model {
    pub(super) fn upgrade(&mut self, upgrade: &Upgrade, session: Option<SessionId>, key: Option<RequestKey>) -> Answer {
        let reader = upgrade.ticket.as_str();
        if let Err(error) = self.may_give_back(reader, session) {
            return refused(error, reader);
        }
        let (Some(id), Some(key)) = (session, key) else {
            return refused(Error::BadArguments, reader);
        };
        if upgrade.label.len() > self.limits.label_bytes_max as usize {
            return refused(Error::DataTooLarge, reader);
        }
        if let Some(writer) = self.upgraded_with(id, upgrade, key) {
            return self.stands(id, &writer, key);
        }
        let Some(node) = self.nodes[reader].lock.clone().filter(|lock| lock.mode == LockMode::Read) else {
            return refused(Error::BadArguments, reader);
        };
        if !matches!(self.status(reader), Ok(LockStatus::Held { .. })) {
            return refused(Error::LockNotHeld, reader);
        }
        let lock = parent_of(reader).unwrap();
        let of_owner = |path: &&String| {
            let other = &self.nodes[*path];
            other.stay == Stay::Session(id)
                && other.lock.as_ref().is_some_and(|lock| lock.mode == LockMode::Write && lock.owner == node.owner)
        };
        let contenders = self.contenders(lock);
        if let Some(writer) = contenders.iter().find(of_owner).filter(|_| !node.owner.is_empty()) {
            return self.once_more(writer, key);
        }
        if !self.may(lock, CREATE) {
            return refused(Error::NoAuth, lock);
        }
        if self.upgrade_in(lock).is_some() {
            return refused(Error::UpgradeConflict, reader);
        }
        let Some(digits) = self.digits_for_writer(lock, reader) else {
            return refused(Error::SequenceExhausted, reader);
        };
        let writer = join(lock, &ticket_name(LockMode::Write, key, digits));
        if let Some(cycle) = self.cycle_of_upgrade(reader, (id, node.owner.clone())) {
            self.note_cycle(lock, LockMode::Write, id, &node.owner, &upgrade.label);
            return Ok(self.shown(cycle));
        }
        if self.nodes.contains_key(&writer) {
            return refused(Error::NodeExists, &writer);
        }
        if let Err(error) = self.room(lock, &writer, upgrade.label.len(), 1, Stay::Session(id)) {
            return refused(error, lock);
        }
        let mut others = self.holders(lock);
        others.retain(|other| other != reader);
        let waiters = self.waiters(lock).len();
        let full = self.settings(lock).waiters_max.is_some_and(|max| waiters >= max as usize);
        if self.contenders(lock).len() >= self.limits.waiters_max as usize || full && !others.is_empty() {
            return refused(Error::TooManyWaiters, lock);
        }
        let holds = vec![(key, vec![self.attempt])];
        let lock_node =
            LockNode { mode: LockMode::Write, holds, released: 0, lingers_until_ms: None, keyless: false, ..node };
        let (data, acl) = (upgrade.label.clone().into_bytes(), self.nodes[lock].acl.clone());
        self.put(&writer, Stay::Session(id), data, acl, Some(lock_node));
        let queue = self.nodes.get_mut(lock).unwrap().queue.as_mut().unwrap();
        queue.upgrade = Some((writer.clone(), Some(reader.into())));
        self.look_at_changed();
        self.acquired(&writer)
    }

    /// The sequence number for the write ticket of an upgrade. Without waiters it is the parent's
    /// next number. Otherwise it is the number of the last holder or of the read ticket, so that
    /// the write ticket comes before the waiters.
    fn digits_for_writer(&self, lock: &str, reader: &str) -> Option<u64> {
        let (holders, waiters) = (self.holders(lock), self.waiters(lock));
        let Some(first) = waiters.first() else {
            let next = self.nodes[lock].children_created;
            return (next < SEQUENCE_END).then_some(next);
        };
        let last = holders.last().and_then(|path| number(path)).unwrap();
        if Some(last) < number(first) { Some(last) } else { number(reader) }
    }

    /// The write ticket of an earlier upgrade with this idempotency key, so that this upgrade is a
    /// retry. The write ticket has the owner of the read ticket. If there is no owner, or the read
    /// ticket is gone, the write ticket has the key in its own name.
    pub(super) fn upgraded_with(&self, id: SessionId, upgrade: &Upgrade, key: RequestKey) -> Option<String> {
        let reader = self.nodes.get(upgrade.ticket.as_str()).and_then(|node| node.lock.as_ref());
        let owner = reader.map(|reader| &reader.owner);
        let counted = |path: &String| {
            let node = &self.nodes[path];
            let named = name_of(path) == ticket_name(LockMode::Write, key, number(path).unwrap());
            node.stay == Stay::Session(id)
                && node.lock.as_ref().is_some_and(|lock| {
                    lock.mode == LockMode::Write
                        && lock.holds.iter().any(|(other, _)| *other == key)
                        && owner.is_none_or(|owner| *owner == lock.owner)
                        && (named || owner.is_some_and(|owner| !owner.is_empty()))
                })
        };
        self.contenders(parent_of(upgrade.ticket.as_str())?).into_iter().find(counted)
    }
}

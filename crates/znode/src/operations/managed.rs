//! Managed locks: only acquires enter their queues, so the order of grants may differ from the
//! order of the lock nodes' names.
//!
//! Priorities and hand-overs to a named waiter need this. A client that creates a lock node itself
//! takes the first lock node by name for the holder, so its create is refused.

use std::sync::Arc;

use crate::edits::effects::Effects;
use crate::edits::permissions::REVOKE;
use crate::edits::permissions::{check_client_path, permit};
use crate::queue::Origin;
use crate::tree::quota::Growth;
use crate::words::weight;
use crate::{CREATE, Error, Kind, LockSettings, Refusal, Reply, State, ZPath};

impl State {
    /// Sets the settings of a lock. Its directory is made, or becomes persistent, because the
    /// deletion of a container or TTL znode would delete the settings, too.
    pub(crate) fn set_lock(
        &mut self,
        lock: &ZPath,
        settings: LockSettings,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, lock);
        // The holders of a semaphore are distinguished by their tokens. In a managed lock one entry
        // could grant tickets out of order, and all of them would get its zxid as token.
        let both = settings.managed && settings.limit.is_some();
        // A persistent directory with such a name would be a ticket of its parent.
        let named_as_ticket = Kind::Persistent.number(lock.name()).is_some();
        if lock.is_root() || settings.limit == Some(0) || both || named_as_ticket {
            return Err(refuse(Error::BadArguments));
        }
        check_client_path(lock)?;
        let (base, missing) = self.missing_on_the_way(lock).map_err(refuse)?;
        // The ACL of the lock, or of the ancestor from which a new directory takes its ACL.
        let acl = Arc::clone(&self.tree()[&base].acl);
        permit(&acl, REVOKE, &effects.context).map_err(refuse)?;
        if !missing.is_empty() {
            permit(&acl, CREATE, &effects.context).map_err(refuse)?;
        }
        if missing.is_empty() {
            let node = &self.tree()[lock];
            if node.owner().is_some() {
                return Err(refuse(Error::NoChildrenForEphemerals));
            }
            let known = self.queue(lock).map(|queue| queue.settings()).unwrap_or_default();
            // The limit of a semaphore may change while there are tickets. With a higher limit more
            // tickets may hold at once; with a lower one no ticket is granted until enough permits
            // are given back.
            let stays = (settings.managed, settings.limit.is_some()) == (known.managed, known.limit.is_some());
            if !stays && node.family.ticket_count() > 0 {
                return Err(refuse(Error::NotEmpty));
            }
            effects.queue_changed(lock);
        } else {
            self.check_room(&self.tree()[&base], lock, 0, missing.len() as u64).map_err(refuse)?;
            self.check_quota(lock, Growth { count: missing.len() as u64, bytes: 0 })?;
        }
        let queue = settings != LockSettings::default() && self.queue(lock).is_none();
        let made = if missing.is_empty() { 0 } else { weight::made(lock, 0, missing.len() as u64) };
        self.check_plain_bytes(lock, made + if queue { weight::QUEUE } else { 0 })?;
        self.make_containers(&missing, &acl, effects);
        self.edit_znode(lock, |node| {
            if settings != LockSettings::default() && matches!(node.kind, Kind::Container | Kind::Ttl { .. }) {
                node.kind = Kind::Persistent;
            }
            node.family.edit_queue(|queue| queue.set(settings));
        });
        Ok(Reply::Done)
    }

    /// Releases a ticket of a managed lock with all holds (acquires that share the ticket), and
    /// grants the lock to the ticket `to`, ahead of all other waiters.
    pub(crate) fn hand_over(&mut self, ticket: &ZPath, to: &ZPath, effects: &mut Effects) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, ticket);
        self.check_ticket(ticket, &effects.context).map_err(refuse)?;
        let lock = ticket.parent().ok_or_else(|| refuse(Error::BadArguments))?;
        let queue = self.queue(&lock).filter(|queue| queue.settings().managed);
        let queue = queue.ok_or_else(|| Refusal::at(Error::LockNotManaged, &lock))?;
        let (_, giving) = self.position_of(ticket);
        if queue.holder(&giving).is_none_or(|holder| holder.ticket.origin == Origin::MultiLock) {
            return Err(refuse(Error::LockNotHeld));
        }
        let refuse = Refusal::at(Error::HandOverRefused, to);
        let position = |path: &ZPath| self.node(path)?.position(path.name());
        let Some(taking) = position(to).filter(|_| to.parent().as_ref() == Some(&lock)) else {
            return Err(refuse);
        };
        let waiter = queue.waiter(&taking).filter(|waiter| waiter.origin != Origin::MultiLock);
        let waiter = waiter.filter(|_| !self.waits_in_vain(to, &self.tree()[to]));
        if !waiter.is_some_and(|waiter| queue.fits_after(&giving, &taking, waiter.demand)) {
            return Err(refuse);
        }
        self.remove(ticket, effects);
        self.grant_out_of_turn(&lock, &taking, effects);
        Ok(Reply::Released { holds: 0 })
    }
}

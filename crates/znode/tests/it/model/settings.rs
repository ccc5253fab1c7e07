//! The model's settings of locks, and hand-over.

use znode::{ADMIN, CREATE, DELETE, Error, LockSettings, Reply, SessionId};

use super::{Answer, Model, Stay, contends, parent_of, refused};

impl Model {
    pub(super) fn set_lock(&mut self, lock: &str, settings: LockSettings) -> Answer {
        let named_as_ticket = contends(lock, Stay::Persistent);
        if lock == "/" || settings.limit == Some(0) || (settings.managed && settings.limit.is_some()) || named_as_ticket
        {
            return refused(Error::BadArguments, lock);
        }
        let (base, to_make) = match self.way_to(lock) {
            Ok(way) => way,
            Err(error) => return refused(error, lock),
        };
        if !self.may(&base, DELETE | ADMIN) || !to_make.is_empty() && !self.may(&base, CREATE) {
            return refused(Error::NoAuth, lock);
        }
        let none = LockSettings::default();
        if to_make.is_empty() {
            if matches!(self.nodes[lock].stay, Stay::Session(_)) {
                return refused(Error::NoChildrenForEphemerals, lock);
            }
            let known = self.settings(lock);
            let as_before = (known.limit.is_some(), known.managed) == (settings.limit.is_some(), settings.managed);
            if !as_before && !self.contenders(lock).is_empty() {
                return refused(Error::NotEmpty, lock);
            }
        } else if let Err(error) = self.room(&base, lock, 0, to_make.len() as u64, Stay::Container) {
            return refused(error, lock);
        }
        for directory in to_make {
            let acl = self.nodes[&base].acl.clone();
            self.put(&directory, Stay::Container, Vec::new(), acl, None);
        }
        let directory = self.nodes.get_mut(lock).unwrap();
        if matches!(directory.stay, Stay::Container | Stay::Ttl(_)) && settings != none {
            directory.stay = Stay::Persistent;
        }
        directory.queue.get_or_insert_default().settings = settings;
        self.changed.insert(lock.into());
        self.end_queue(lock);
        Ok(Reply::Done)
    }

    pub(super) fn hand_over(&mut self, ticket: &str, to: &str, session: Option<SessionId>) -> Answer {
        if let Err(error) = self.may_give_back(ticket, session) {
            return refused(error, ticket);
        }
        let lock = parent_of(ticket).unwrap().to_string();
        if !self.settings(&lock).managed {
            return refused(Error::LockNotManaged, &lock);
        }
        if self.nodes[ticket].held.is_none() || self.parts(ticket).is_some() {
            return refused(Error::LockNotHeld, ticket);
        }
        let mut others = self.holders(&lock);
        others.retain(|other| other != ticket && Some(other) != self.reader_of(to));
        let waits = self.waiters(&lock).iter().any(|waiter| waiter == to) && self.parts(to).is_none();
        if !waits || !self.room_beside(&lock, self.demand(to), &others) {
            return refused(Error::HandOverRefused, to);
        }
        self.take_out(ticket);
        self.grant(to);
        Ok(Reply::Released { holds: 0 })
    }
}

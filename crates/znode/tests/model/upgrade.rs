//! The model's upgrades and circles of waits.

use znode::lock::{LockStatus, Moment, PastTicket, TicketEnd, WaitsFor};
use znode::{Acl, CREATE, Error, FencingToken, LockMode, Reply, RequestKey, SessionId, Upgrade};

use super::{Answer, LockNode, Model, Stay, join, name_of, number, parent_of, reads, refused, zpath};

/// Somebody who waits or wants to: session, owner, lock, whether it reads, and who is in its way, in the order of the
/// queue.
struct Waiting {
    who: (SessionId, String),
    lock: String,
    blockers: Vec<String>,
}

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
        if let Some(writer) = self.upgraded_with(upgrade, key) {
            return self.stands(id, &writer, key, upgrade.attempt);
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
            return self.once_more(writer, key, upgrade.attempt);
        }
        if self.upgrades.iter().any(|(writer, _)| parent_of(writer) == Some(lock)) {
            return refused(Error::UpgradeConflict, reader);
        }
        let first_writer = contenders.iter().position(|path| !reads(path));
        let Some(digits) = self.digits_for_writer(&contenders, first_writer, reader) else {
            return refused(Error::UpgradeConflict, reader);
        };
        let writer = join(lock, &format!("_c_{key}-__WRIT__{digits:010}"));
        let mut blockers = match first_writer {
            None => contenders.clone(),
            Some(at) => contenders[..at].to_vec(),
        };
        blockers.retain(|path| path != reader);
        let waiting = Waiting { who: (id, node.owner.clone()), lock: lock.into(), blockers };
        if let Some(cycle) = self.circle(waiting) {
            self.note_circle(lock, LockMode::Write, id, &node.owner, &upgrade.label);
            return Ok(Reply::Deadlock { cycle });
        }
        if !self.may(lock, CREATE) {
            return refused(Error::NoAuth, lock);
        }
        if self.nodes.contains_key(&writer) {
            return refused(Error::NodeExists, &writer);
        }
        if let Err(error) = self.room(lock, &writer, upgrade.label.len(), 1, Stay::Session(id)) {
            return refused(error, lock);
        }
        if contenders.len() >= self.limits.waiters_max as usize {
            return refused(Error::TooManyWaiters, lock);
        }
        if first_writer.is_some() {
            self.passed.insert(lock.into(), self.last_zxid);
        }
        self.upgrades.push((writer.clone(), reader.into()));
        let holds = vec![(key, vec![upgrade.attempt])];
        let node = LockNode { mode: LockMode::Write, holds, released: 0, lingers_until_ms: None, ..node };
        self.put(&writer, Stay::Session(id), upgrade.label.clone().into_bytes(), Acl::open(), Some(node));
        self.acquired(&writer)
    }

    /// The next number, or one in front of the first writer: there is room behind the last reader's.
    fn digits_for_writer(&self, contenders: &[String], first_writer: Option<usize>, reader: &str) -> Option<u64> {
        let Some(at) = first_writer else {
            return Some(self.nodes[parent_of(reader).unwrap()].children_created);
        };
        let readers = &contenders[..at];
        let last = readers.last().and_then(|path| number(path))?;
        (Some(last) < number(&contenders[at]) && readers.contains(&reader.to_string())).then_some(last)
    }

    /// The writer that an upgrade with this key made and that stands beside its reader.
    pub(super) fn upgraded_with(&self, upgrade: &Upgrade, key: RequestKey) -> Option<String> {
        let (writer, _) = self.upgrades.iter().find(|(_, reader)| reader == upgrade.ticket.as_str())?;
        let counted = self.nodes[writer].lock.as_ref()?.holds.iter().any(|(other, _)| *other == key);
        counted.then(|| writer.clone())
    }

    /// Forgets what is over when a node has gone.
    pub(super) fn end_upgrade(&mut self, path: &str) {
        self.upgrades.retain(|(writer, reader)| writer != path && reader != path);
        let lock = parent_of(path).unwrap();
        if self.contenders(lock).is_empty() {
            self.passed.remove(lock);
        }
    }

    /// The token of one that comes to hold now.
    pub(super) fn new_token(&self, path: &str) -> FencingToken {
        let made = self.nodes[path].created.0;
        let passed = self.passed.get(parent_of(path).unwrap()).is_some_and(|passed| made < *passed);
        FencingToken(if passed { self.last_zxid.0 } else { made.0 })
    }

    pub(crate) fn token(&self, path: &str) -> FencingToken {
        self.grants.get(path).map_or(FencingToken(self.nodes[path].created.0.0), |grant| grant.token)
    }

    /// The circle that an acquire at the end of the queue would close.
    pub(super) fn circle_at_end(
        &self,
        lock: &str,
        mode: LockMode,
        id: SessionId,
        owner: &str,
    ) -> Option<Vec<WaitsFor>> {
        let mut blockers = self.contenders(lock);
        blockers.retain(|path| mode != LockMode::Read || !reads(path));
        self.circle(Waiting { who: (id, owner.into()), lock: lock.into(), blockers })
    }

    /// Breadth first over everybody who waits; every way to go on is kept as the list of its edges.
    fn circle(&self, first: Waiting) -> Option<Vec<WaitsFor>> {
        let asker = first.who.clone();
        // Nobody waits for one that has no ticket.
        let has_ticket = || self.nodes.keys().any(|path| self.named(path).as_ref() == Some(&asker));
        if asker.1.is_empty() || self.lock_limits.deadlock_looks_max == 0 || !has_ticket() {
            return None;
        }
        let mut seen = Vec::new();
        let mut ways = vec![(Vec::new(), first)];
        while !ways.is_empty() {
            let (edges, waiting) = ways.remove(0);
            for blocker in waiting.blockers {
                let Some(who) = self.named(&blocker) else {
                    continue;
                };
                let mut edges: Vec<WaitsFor> = edges.clone();
                let (session, owner) = waiting.who.clone();
                edges.push(WaitsFor { session, owner, lock: zpath(&waiting.lock), blocker: zpath(&blocker) });
                if who == asker {
                    return Some(edges);
                }
                if !seen.contains(&who) {
                    seen.push(who.clone());
                    ways.extend(self.waits_of(&who).into_iter().map(|waiting| (edges.clone(), waiting)));
                }
            }
        }
        None
    }

    /// Who has a ticket, if that is somebody who can be told apart and still lives.
    fn named(&self, ticket: &str) -> Option<(SessionId, String)> {
        let node = &self.nodes[ticket];
        let lock = node.lock.as_ref().filter(|lock| !lock.owner.is_empty() && lock.lingers_until_ms.is_none())?;
        match node.stay {
            Stay::Session(id) => Some((id, lock.owner.clone())),
            _ => None,
        }
    }

    /// What an owner waits for, by lock and mode.
    fn waits_of(&self, who: &(SessionId, String)) -> Vec<Waiting> {
        let waits = |path: &&String| {
            self.named(path).as_ref() == Some(who) && matches!(self.status(path), Ok(LockStatus::Waiting { .. }))
        };
        let mut tickets: Vec<&String> = self.nodes.keys().filter(waits).collect();
        tickets.sort_by_key(|path| (zpath(parent_of(path).unwrap()), self.nodes[*path].lock.as_ref().unwrap().mode));
        let waiting = |path: &&String| {
            let mut blockers = self.contenders(parent_of(path).unwrap());
            blockers.truncate(blockers.iter().position(|other| other == *path).unwrap());
            blockers.retain(|other| !self.upgrades.contains(&((*path).clone(), other.clone())));
            if reads(path) {
                let own =
                    |other: &String| number(other) == number(path) && self.nodes[other].stay == self.nodes[*path].stay;
                blockers.retain(|other| !reads(other) && !own(other));
            }
            Waiting { who: who.clone(), lock: parent_of(path).unwrap().into(), blockers }
        };
        tickets.iter().map(waiting).collect()
    }

    /// A request that was not let in is remembered as a wait without a ticket.
    pub(super) fn note_circle(&mut self, lock: &str, mode: LockMode, session: SessionId, owner: &str, label: &str) {
        let now = Moment { zxid: self.last_zxid, time_ms: self.time_ms };
        let (name, owner, label) = (String::new(), owner.into(), label.into());
        let (grant, end) = (None, TicketEnd::Deadlock);
        let ticket = PastTicket { name, mode, session, owner, label, enqueued: now, grant, ended: now, end };
        self.remember(lock, ticket);
    }
}

/// The ticket that a writer made by an upgrade passes is not in its way.
pub(super) fn passes(upgrades: &[(String, String)], writer: &str, other: &str) -> bool {
    upgrades.iter().any(|(one, reader)| one == writer && name_of(reader) == name_of(other))
}

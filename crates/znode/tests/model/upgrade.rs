//! The model's upgrades and circles of waits.

use znode::lock::{LockStatus, Moment, PastTicket, TicketEnd, WaitsFor};
use znode::{CREATE, Error, FencingToken, LockMode, READ, Reply, RequestKey, SessionId, Upgrade};

use super::{Answer, LockNode, Model, Stay, join, name_of, number, parent_of, reads, refused, zpath};

/// Who waits: an owner, for all that it waits for; or one ticket, that another waits for until it holds.
type Waiter = ((SessionId, String), Option<String>);

/// Somebody who waits or wants to: who, for which lock, and who is in its way, in the order of the queue, and whether only
/// until that one holds.
struct Waiting {
    by: Waiter,
    lock: String,
    blockers: Vec<(String, bool)>,
}

fn until_they_go(blockers: Vec<String>) -> Vec<(String, bool)> {
    blockers.into_iter().map(|path| (path, false)).collect()
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
        if let Some(writer) = self.upgraded_with(id, upgrade, key) {
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
        if !self.may(lock, CREATE) {
            return refused(Error::NoAuth, lock);
        }
        let ledger = self.ledger_over(reader).is_some();
        if ledger || self.upgrades.iter().any(|(writer, _)| parent_of(writer) == Some(lock)) {
            return refused(Error::UpgradeConflict, reader);
        }
        let first_writer = contenders.iter().position(|path| !reads(path));
        let Some(digits) = self.digits_for_writer(&contenders, first_writer, reader) else {
            return refused(Error::UpgradeConflict, reader);
        };
        let writer = join(lock, &format!("_c_{key}-__WRIT__{digits:010}"));
        let mut blockers = contenders[..first_writer.unwrap_or(contenders.len())].to_vec();
        blockers.retain(|path| path != reader);
        let by = ((id, node.owner.clone()), None);
        let waiting = vec![Waiting { by, lock: lock.into(), blockers: until_they_go(blockers) }];
        if let Some(cycle) = self.circle((id, node.owner.clone()), waiting) {
            self.note_circle(lock, LockMode::Write, id, &node.owner, &upgrade.label);
            return Ok(self.shown(cycle));
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
        let (data, acl) = (upgrade.label.clone().into_bytes(), self.nodes[lock].acl.clone());
        self.put(&writer, Stay::Session(id), data, acl, Some(node));
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

    /// The writer on which an upgrade with this key was counted: of the same owner as its reader, or with the key in its name.
    pub(super) fn upgraded_with(&self, id: SessionId, upgrade: &Upgrade, key: RequestKey) -> Option<String> {
        let reader = self.nodes.get(upgrade.ticket.as_str()).and_then(|node| node.lock.as_ref());
        let owner = reader.map(|reader| &reader.owner).filter(|owner| !owner.is_empty());
        let counted = |path: &String| {
            let node = &self.nodes[path];
            let named = name_of(path).starts_with(&format!("_c_{key}-"));
            node.stay == Stay::Session(id)
                && node.lock.as_ref().is_some_and(|lock| {
                    lock.mode == LockMode::Write
                        && lock.holds.iter().any(|(other, _)| *other == key)
                        && owner.map_or(named, |owner| *owner == lock.owner)
                })
        };
        self.contenders(parent_of(upgrade.ticket.as_str())?).into_iter().find(counted)
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
        if let Some(token) = self.nodes[path].granted {
            return FencingToken(token);
        }
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
        let who = (id, owner.to_string());
        let blockers = if self.nodes.get(lock).is_some_and(|directory| directory.ledger.is_some()) {
            self.in_the_way_in_ledger(lock, mode, None)
        } else {
            let mut blockers = self.contenders(lock);
            blockers.retain(|path| mode != LockMode::Read || !reads(path));
            until_they_go(blockers)
        };
        if !self.has_ticket(&who) {
            return None;
        }
        self.circle(who.clone(), vec![Waiting { by: (who, None), lock: lock.into(), blockers }])
    }

    /// The circle that a multi-lock closes that has entered its queues.
    pub(super) fn circle_of(&self, who: (SessionId, String), first: &str) -> Option<Vec<WaitsFor>> {
        let tickets = self.parts(first).unwrap().1.clone();
        self.circle(who.clone(), self.waiting(&(who, None), &tickets))
    }

    /// Nobody waits for one that has no ticket.
    pub(super) fn has_ticket(&self, who: &(SessionId, String)) -> bool {
        let any = self.nodes.keys().any(|path| self.named(path).as_ref() == Some(who));
        any && !who.1.is_empty() && self.lock_limits.deadlock_looks_max > 0
    }

    /// Breadth first over everybody who waits; every way to go on is kept as the list of its edges.
    fn circle(&self, asker: (SessionId, String), first: Vec<Waiting>) -> Option<Vec<WaitsFor>> {
        if !self.has_ticket(&asker) {
            return None;
        }
        let mut seen: Vec<Waiter> = Vec::new();
        let mut ways: Vec<_> = first.into_iter().map(|waiting| (Vec::new(), waiting)).collect();
        while !ways.is_empty() {
            let (edges, waiting) = ways.remove(0);
            for (blocker, until_it_holds) in waiting.blockers {
                let Some(who) = self.named(&blocker) else {
                    continue;
                };
                let mut edges: Vec<WaitsFor> = edges.clone();
                let (session, owner) = waiting.by.0.clone();
                edges.push(WaitsFor { session, owner, lock: zpath(&waiting.lock), blocker: zpath(&blocker) });
                if who == asker && !until_it_holds {
                    return Some(edges);
                }
                let next = (who, until_it_holds.then_some(blocker));
                if !seen.contains(&next) {
                    seen.push(next.clone());
                    ways.extend(self.waits_of(&next).into_iter().map(|waiting| (edges.clone(), waiting)));
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

    /// What an owner waits for, by lock and mode; or what one ticket does, with the others of its multi-lock.
    fn waits_of(&self, waiter: &Waiter) -> Vec<Waiting> {
        let tickets = match waiter {
            (who, None) => {
                let own = |path: &&String| self.named(path).as_ref() == Some(who);
                let mut tickets: Vec<String> = self.nodes.keys().filter(own).cloned().collect();
                let mode = |path: &String| self.nodes[path].lock.as_ref().unwrap().mode;
                tickets.sort_by_key(|path| (zpath(parent_of(path).unwrap()), mode(path)));
                tickets
            }
            (_, Some(ticket)) => self.parts(ticket).map_or_else(|| vec![ticket.clone()], |(_, parts)| parts.clone()),
        };
        self.waiting(waiter, &tickets)
    }

    /// What those of the tickets wait for that wait.
    fn waiting(&self, by: &Waiter, tickets: &[String]) -> Vec<Waiting> {
        let waits = |path: &&String| matches!(self.status(path), Ok(LockStatus::Waiting { .. }));
        let waiting = |path: &String| {
            let lock = parent_of(path).unwrap();
            if self.ledger_over(path).is_some() {
                let mode = self.nodes[path].lock.as_ref().unwrap().mode;
                let mut blockers = self.in_the_way_in_ledger(lock, mode, Some(path));
                blockers.retain(|(other, _)| !self.is_own_writer(path, other));
                return Waiting { by: by.clone(), lock: lock.into(), blockers };
            }
            let mut blockers = self.contenders(lock);
            blockers.truncate(blockers.iter().position(|other| other == path).unwrap());
            blockers.retain(|other| !self.upgrades.contains(&(path.clone(), other.clone())));
            blockers.retain(|other| !reads(path) || (!reads(other) && !self.is_own_writer(path, other)));
            Waiting { by: by.clone(), lock: lock.into(), blockers: until_they_go(blockers) }
        };
        tickets.iter().filter(waits).map(waiting).collect()
    }

    /// Whether a reader is the downgrade of a writer.
    fn is_own_writer(&self, reader: &str, writer: &str) -> bool {
        reads(reader) && number(writer) == number(reader) && self.nodes[writer].stay == self.nodes[reader].stay
    }

    /// A circle without the locks that the asker may not read.
    pub(super) fn shown(&self, mut cycle: Vec<WaitsFor>) -> Reply {
        cycle.retain(|edge| !self.nodes.contains_key(edge.lock.as_str()) || self.may(edge.lock.as_str(), READ));
        Reply::Deadlock { cycle }
    }

    /// A request that was not let in is remembered as a wait without a ticket.
    pub(super) fn note_circle(&mut self, lock: &str, mode: LockMode, session: SessionId, owner: &str, label: &str) {
        let now = Moment { zxid: self.last_zxid, time_ms: self.time_ms };
        let (name, owner, label) = (String::new(), owner.into(), label.into());
        let (grant, end) = (None, TicketEnd::Deadlock);
        let (session_label, client) = self.who(session);
        let ticket = PastTicket {
            name,
            mode,
            session,
            owner,
            label,
            enqueued: now,
            grant,
            ended: now,
            end,
            session_label: session_label.into(),
            client: client.into(),
            by: None,
        };
        self.remember(lock, ticket);
    }
}

/// The ticket that a writer made by an upgrade passes is not in its way.
pub(super) fn passes(upgrades: &[(String, String)], writer: &str, other: &str) -> bool {
    upgrades.iter().any(|(one, reader)| one == writer && name_of(reader) == name_of(other))
}

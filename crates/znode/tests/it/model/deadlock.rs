//! The model's search for deadlocks: cycles of waits of owners (users of locks within a session).

use znode::lock::{EndedTicket, LockStatus, Moment, TicketEnd, WaitsFor};
use znode::{Acquire, LockMode, READ, Reply, SessionId};

use super::queue::{Demand, QueueTurn};
use super::{Model, Stay, number, parent_of, zpath};

/// A node of the search: an owner with all its waits (`None`), or one ticket of the owner (`Some`).
/// A single ticket is searched if it blocks another ticket only until it is granted the lock
/// itself.
type Waiter = ((SessionId, String), Option<String>);

/// A wait that exists, or that the examined request would begin: the waiter, the lock, and the
/// tickets that block the waiter (holders first, then waiters in the order of the queue). The flag
/// of a blocking ticket is true if it waits, too, and blocks only until it is granted the lock. It
/// is false if the ticket blocks until it is removed.
struct Waiting {
    by: Waiter,
    lock: String,
    blockers: Vec<(String, bool)>,
}

impl Model {
    /// The cycle of waits that an acquire would close by waiting at the sort key `turn` of an
    /// existing queue; `None` if it closes no cycle.
    pub(super) fn cycle_of_newcomer(
        &self,
        acquire: &Acquire,
        turn: &QueueTurn,
        id: SessionId,
    ) -> Option<Vec<WaitsFor>> {
        let (lock, who) = (acquire.lock.as_str(), (id, acquire.owner.clone()));
        let mut in_front = self.waiters(lock);
        in_front.retain(|other| self.turn(other) < *turn);
        let mut blockers = self.in_the_way(lock, acquire.mode.into(), &in_front);
        if acquire.mode == LockMode::Read {
            blockers.retain(|(other, _)| !self.is_twin(other, Some(turn.2.0), Stay::Session(id)));
        }
        self.cycle(who.clone(), vec![Waiting { by: (who, None), lock: lock.into(), blockers }])
    }

    /// The cycle of waits that an upgrade would close if its write ticket waited before all others;
    /// `None` if it closes no cycle.
    pub(super) fn cycle_of_upgrade(&self, reader: &str, who: (SessionId, String)) -> Option<Vec<WaitsFor>> {
        let lock = parent_of(reader).unwrap();
        let mut blockers = self.in_the_way(lock, Demand::Alone, &[]);
        blockers.retain(|(other, _)| other != reader);
        self.cycle(who.clone(), vec![Waiting { by: (who, None), lock: lock.into(), blockers }])
    }

    /// The cycle of waits that a multi-lock closes, after its tickets have entered their queues;
    /// `None` if it closes no cycle.
    pub(super) fn cycle_of_parts(&self, who: (SessionId, String), first: &str) -> Option<Vec<WaitsFor>> {
        let tickets = self.parts(first).unwrap().1.clone();
        self.cycle(who.clone(), self.waiting(&(who, None), &tickets))
    }

    /// The tickets that block a waiting ticket with this demand; `in_front` are the waiters before
    /// it. A holder blocks until it is removed (flag false), if the demand would not fit beside
    /// that holder alone. An earlier waiter blocks until it is removed (false) or, if both tickets
    /// fit together, only until it is granted the lock (true).
    fn in_the_way(&self, lock: &str, demand: Demand, in_front: &[String]) -> Vec<(String, bool)> {
        let room = |other: &String| self.room_beside(lock, demand, std::slice::from_ref(other));
        let mut blockers = Vec::new();
        for holder in self.holders(lock) {
            if !room(&holder) {
                blockers.push((holder, false));
            }
        }
        if self.settings(lock).managed {
            return blockers;
        }
        for waiter in in_front {
            let readers = [demand, self.demand(waiter)] == [Demand::Shared; 2] && self.parts(waiter).is_none();
            if !self.may_be_overtaken(waiter) && !readers {
                blockers.push((waiter.clone(), room(waiter)));
            }
        }
        blockers
    }

    /// Tells whether the ticket `other` has a reader's sequence number and belongs to the reader's
    /// session, so that the reader is a downgrade of `other`.
    fn is_twin(&self, other: &str, number_of_reader: Option<u64>, stay: Stay) -> bool {
        number(other) == number_of_reader && self.nodes[other].stay == stay
    }

    /// The waits of the given tickets; tickets that hold their locks are left out.
    fn waiting(&self, by: &Waiter, tickets: &[String]) -> Vec<Waiting> {
        let waits = |path: &&String| matches!(self.status(path), Ok(LockStatus::Waiting { .. }));
        let waiting = |path: &String| {
            let lock = parent_of(path).unwrap();
            let demand = self.demand(path);
            let mut blockers = self.in_the_way(lock, demand, &self.waiters_before(path));
            blockers.retain(|(other, _)| Some(other) != self.reader_of(path));
            let stay = self.nodes[path].stay;
            blockers.retain(|(other, _)| demand != Demand::Shared || !self.is_twin(other, number(path), stay));
            Waiting { by: by.clone(), lock: lock.into(), blockers }
        };
        tickets.iter().filter(waits).map(waiting).collect()
    }

    /// Tells whether an owner has a ticket. No ticket can wait for an owner without tickets.
    pub(super) fn has_ticket(&self, who: &(SessionId, String)) -> bool {
        let any = self.nodes.keys().any(|path| self.named(path).as_ref() == Some(who));
        any && !who.1.is_empty() && self.limits.deadlock_looks_max > 0
    }

    /// Searches for a cycle of waits from `asker` back to `asker`, breadth-first; each path is kept
    /// as the list of its edges.
    fn cycle(&self, asker: (SessionId, String), first: Vec<Waiting>) -> Option<Vec<WaitsFor>> {
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

    /// The owner of a ticket; `None` if the owner is empty or the session has ended.
    fn named(&self, ticket: &str) -> Option<(SessionId, String)> {
        let node = &self.nodes[ticket];
        let lock = node.lock.as_ref().filter(|lock| !lock.owner.is_empty() && lock.lingers_until_ms.is_none())?;
        match node.stay {
            Stay::Session(id) => Some((id, lock.owner.clone())),
            _ => None,
        }
    }

    /// The waits of an owner, sorted by lock and mode; or, for a single ticket, its wait and those
    /// of the other tickets of its multi-lock.
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

    /// The answer with a cycle of waits, without the edges at locks that the client may not read.
    pub(super) fn shown(&self, mut cycle: Vec<WaitsFor>) -> Reply {
        cycle.retain(|edge| !self.nodes.contains_key(edge.lock.as_str()) || self.may(edge.lock.as_str(), READ));
        Reply::Deadlock { cycle }
    }

    /// Adds an acquire that was refused for a deadlock to the lock's history, as an ended ticket
    /// that had no lock node.
    pub(super) fn note_cycle(&mut self, lock: &str, mode: LockMode, session: SessionId, owner: &str, label: &str) {
        let now = Moment { zxid: self.last_zxid, time_ms: self.time_ms };
        let (name, owner, label) = (String::new(), owner.into(), label.into());
        let (grant, end) = (None, TicketEnd::Deadlock);
        let (session_label, client) = self.who(session);
        let ticket = EndedTicket {
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

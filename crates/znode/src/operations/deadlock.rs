//! Deadlocks: an acquire or upgrade with an owner is refused if it would close a cycle in the
//! wait-for graph.
//!
//! The nodes of the graph are owners (an owner is a user of locks within a session, such as a
//! thread). A ticket waits for each holder that would block it even as the only holder. It also
//! waits for each earlier waiter that it may not overtake: until that waiter's ticket is removed
//! or, if both tickets fit into the lock together, only until that waiter is granted the lock. In a
//! managed lock no ticket waits for waiters, because a holder may hand the lock over to any of
//! them. A semaphore's holder blocks no ticket that could be granted if this holder were the only
//! one, since another holder may release first. So every edge is certain, and every cycle found is
//! a deadlock.
//!
//! New edges come with new tickets, so the last acquire of a cycle always closes it, and the search
//! finds it then. The search stops after [`crate::Limits::deadlock_looks_max`] tickets. A grant
//! that overtakes waiters makes new edges, too. It can close a cycle only if an owner waits for two
//! locks at once, and such a cycle is not found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::edits::actors::remembered;
use crate::edits::effects::Effects;
use crate::entry::txn_outcome::WaitsFor;
use crate::operations::grant::may_be_overtaken;
use crate::operations::readings;
use crate::queue::demand::Demand;
use crate::queue::ended::{EndedTicket, TicketEnd};
use crate::queue::{Origin, Position, QueueTurn};
use crate::words::client_info::short;
use crate::{LockMode, LockSettings, Reply, SessionId, State, ZPath};

type Owner = (SessionId, Arc<str>);

/// A node of the search: an owner with all its waits (`None`), or one ticket of the owner (`Some`).
/// A single ticket is searched if it blocks another ticket only until it is granted the lock
/// itself.
type Waiter = (Owner, Option<ZPath>);

/// A ticket that is about to enter a queue.
pub(crate) struct Newcomer<'a> {
    pub(crate) lock: &'a ZPath,
    pub(crate) session: SessionId,
    pub(crate) owner: &'a str,
    pub(crate) mode: LockMode,
    /// For an upgrade: the position of its write ticket, and the position of its read ticket, which
    /// does not block the write ticket. `None` for a ticket that enters at the end of the queue.
    pub(crate) upgraded: Option<(Position, &'a Position)>,
}

/// A wait in one queue, whose blocking tickets are still to be examined.
struct Wait {
    by: Waiter,
    lock: ZPath,
    demand: Demand,
    /// The sort key of the waiting ticket in the queue; `None` for a ticket at the end of the
    /// queue.
    turn: Option<QueueTurn>,
    /// The read ticket of an upgrade, which does not block the write ticket of the same upgrade.
    reader: Option<Position>,
}

/// Time for which a holder or an earlier waiter blocks a waiting ticket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InTheWay {
    No,
    /// Until the earlier waiter is granted the lock. The shares of the lock that both tickets want
    /// fit together, but no ticket is granted the lock before the waiters in front of it.
    UntilGranted,
    UntilGone,
}

struct Search<'a> {
    state: &'a State,
    asker: Owner,
    looks: u32,
    waits: VecDeque<Wait>,
    /// For each waiter that the search has reached: the edge that led to it, and the waiter at
    /// which that edge begins.
    reached: BTreeMap<Waiter, (WaitsFor, Waiter)>,
}

impl State {
    /// The cycle of waits that the newcomer would close by waiting; `None` if it closes no cycle.
    pub(crate) fn deadlock(&self, newcomer: &Newcomer<'_>) -> Option<Vec<WaitsFor>> {
        // Most owners have no ticket before their first acquire, and no ticket can wait for such an
        // owner.
        if !self.has_ticket(newcomer.session, newcomer.owner) {
            return None;
        }
        let owner: Owner = (newcomer.session, newcomer.owner.into());
        let first = Wait {
            by: (owner.clone(), None),
            lock: newcomer.lock.clone(),
            demand: Demand::of_mode(newcomer.mode),
            turn: newcomer.upgraded.as_ref().map(|(writer, _)| QueueTurn::upgraded(writer.clone())),
            reader: newcomer.upgraded.as_ref().map(|(_, reader)| (*reader).clone()),
        };
        let semaphore = self.made_a_semaphore_by(newcomer);
        Search::of(semaphore.as_ref().unwrap_or(self), owner, vec![first]).run()
    }

    /// A copy of the state in which the newcomer's lock is a semaphore, if the newcomer's acquire
    /// will make it one. The search needs it, because in a semaphore no ticket may be overtaken.
    /// `None` for other acquires.
    fn made_a_semaphore_by(&self, newcomer: &Newcomer<'_>) -> Option<State> {
        let LockMode::Lease { limit, .. } = newcomer.mode else { return None };
        let settings = self.queue(newcomer.lock)?.settings();
        settings.limit.is_none().then(|| {
            let mut state = self.clone();
            state.edit_queue(newcomer.lock, |queue| queue.set(LockSettings { limit: Some(limit), ..settings }));
            state
        })
    }

    /// The cycle of waits that the tickets of a multi-lock close by waiting; `None` if they close
    /// no cycle. The tickets must be in their queues already.
    pub(crate) fn deadlock_of_all(&self, id: SessionId, owner: &str, tickets: &[ZPath]) -> Option<Vec<WaitsFor>> {
        let owner: Owner = (id, owner.into());
        let by = (owner.clone(), None);
        let waits = tickets.iter().filter_map(|ticket| self.wait_of(&by, ticket)).collect();
        Search::of(self, owner, waits).run()
    }

    /// The wait of a ticket in its queue; `None` if the ticket holds its lock, or its session has
    /// expired.
    fn wait_of(&self, by: &Waiter, ticket: &ZPath) -> Option<Wait> {
        let node = self.node(ticket).filter(|node| !self.waits_in_vain(ticket, node))?;
        let lock = ticket.parent()?;
        let position = node.position(ticket.name())?;
        let queue = self.queue(&lock)?;
        let demand = queue.waiter(&position)?.demand;
        let upgrade = queue.upgrade().filter(|upgrade| upgrade.writer == position);
        let reader = upgrade.and_then(|upgrade| upgrade.reader.clone());
        Some(Wait { by: by.clone(), demand, turn: Some(queue.turn(&position)), reader, lock })
    }

    /// The holders and earlier waiters in the queue of a waiting ticket, each with how long it
    /// blocks that ticket.
    fn before<'a>(&'a self, wait: &'a Wait) -> Box<dyn Iterator<Item = (&'a Position, InTheWay)> + 'a> {
        let Some(queue) = self.queue(&wait.lock) else {
            return Box::new(std::iter::empty());
        };
        let together = |other| queue.fit_together(other, wait.demand);
        // If all holders are readers, they do not block a reader, so they need not be examined.
        let all_share = wait.demand == Demand::Shared && queue.all_share();
        let holders = queue.holders().take_while(move |_| !all_share);
        let held = holders.map(move |(position, holder)| {
            (position, if together(holder.ticket.demand) { InTheWay::No } else { InTheWay::UntilGone })
        });
        let waiting: Box<dyn Iterator<Item = _>> = match wait.demand {
            _ if queue.settings().managed => Box::new(std::iter::empty()),
            Demand::Shared => Box::new(queue.blockers_of_reader(wait.turn.as_ref())),
            _ => Box::new(queue.waiters_before(wait.turn.as_ref())),
        };
        let waiting = waiting.map(move |(position, ticket)| {
            let overtaken = || self.multi_at(&wait.lock, position).is_some_and(|multi| may_be_overtaken(multi, queue));
            let in_the_way = match together(ticket.demand) {
                _ if ticket.origin == Origin::MultiLock && overtaken() => InTheWay::No,
                true => InTheWay::UntilGranted,
                false => InTheWay::UntilGone,
            };
            (position, in_the_way)
        });
        Box::new(held.chain(waiting))
    }

    /// Makes the answer to an acquire that would close a cycle of waits, and adds the acquire to
    /// the lock's history. The answer omits edges at locks that the client may not read.
    pub(crate) fn refuse_deadlock(
        &mut self,
        newcomer: &Newcomer<'_>,
        label: &str,
        cycle: Vec<WaitsFor>,
        effects: &Effects,
    ) -> Reply {
        let now = effects.context.moment();
        let (session_label, client) = remembered(self.session_of(newcomer.session, effects));
        let ticket = EndedTicket {
            name: String::new(),
            mode: newcomer.mode,
            session: newcomer.session,
            owner: short(newcomer.owner),
            label: short(label),
            enqueued: now,
            grant: None,
            ended: now,
            end: TicketEnd::Deadlock,
            session_label,
            client,
            by: None,
        };
        self.remember_ticket(newcomer.lock, ticket, self.history_readers(newcomer.lock));
        // The client must not learn about tickets of locks that it may not read.
        let shown = cycle.into_iter().filter(|edge| self.may_read(&edge.lock, &effects.context.identities));
        Reply::Deadlock { cycle: shown.collect() }
    }
}

impl<'a> Search<'a> {
    fn of(state: &'a State, asker: Owner, waits: Vec<Wait>) -> Search<'a> {
        let looks = state.limits().deadlock_looks();
        Search { state, asker, looks, waits: waits.into(), reached: BTreeMap::new() }
    }

    /// Searches breadth-first, so that the cycle found is a shortest one.
    fn run(mut self) -> Option<Vec<WaitsFor>> {
        let state = self.state;
        while let Some(wait) = self.waits.pop_front() {
            for (position, in_the_way) in state.before(&wait) {
                self.looks = self.looks.checked_sub(1)?;
                if in_the_way != InTheWay::No
                    && let Some(cycle) = self.look(&wait, position, in_the_way)
                {
                    return Some(cycle);
                }
            }
        }
        None
    }

    /// Examines one ticket that blocks a wait. Returns the cycle if this ticket closes one;
    /// otherwise adds the waits of the ticket's owner to the search.
    fn look(&mut self, wait: &Wait, position: &Position, in_the_way: InTheWay) -> Option<Vec<WaitsFor>> {
        let blocker = wait.lock.child(&position.name).ok()?;
        let node = self.state.node(&blocker)?;
        let session = node.owner()?;
        let contender = node.contender().filter(|contender| !contender.owner.is_empty())?;
        let (waiting, _) = &wait.by;
        // A downgrade does not wait for its own write ticket.
        let downgrade = wait.demand == Demand::Shared
            && session == waiting.0
            && wait.turn.as_ref().is_some_and(|own| own.position.number == position.number);
        // An upgrade does not wait for its own reader. A lock node kept for its lock-delay belongs
        // to an ended session, which waits for no lock.
        if downgrade || wait.reader.as_ref() == Some(position) || node.lingers_until_ms().is_some() {
            return None;
        }
        let owner: Owner = (session, (*contender.owner).into());
        let (lock, by) = (wait.lock.clone(), blocker.clone());
        let edge = WaitsFor { session: waiting.0, owner: (*waiting.1).into(), lock, blocker: by };
        let until_gone = in_the_way == InTheWay::UntilGone;
        if until_gone && owner == self.asker {
            return Some(self.cycle(edge, &wait.by));
        }
        let next: Waiter = (owner, if until_gone { None } else { Some(blocker) });
        if !self.reached.contains_key(&next) {
            self.reached.insert(next.clone(), (edge, wait.by.clone()));
            self.expand(&next);
        }
        None
    }

    /// Adds the waits of a waiter to the search: those of all tickets of an owner, or those of a
    /// single ticket and the other tickets of its multi-lock.
    fn expand(&mut self, waiter: &Waiter) {
        let state = self.state;
        match waiter {
            ((id, owner), None) => {
                let tickets = state.session(*id).into_iter().flat_map(|session| &session.tickets);
                self.look_at(waiter, tickets.map(|((_, _, other), ticket)| (ticket, *other == *owner)));
            }
            (_, Some(ticket)) => {
                let parts = readings::parts(state, ticket).unwrap_or(std::slice::from_ref(ticket));
                self.look_at(waiter, parts.iter().map(|part| (part, true)));
            }
        }
    }

    /// Adds the waits of tickets to the search. The flag of a ticket is false if another owner has
    /// the ticket: then it counts towards the limit of the search, but its wait is not added.
    fn look_at<'b>(&mut self, waiter: &Waiter, tickets: impl Iterator<Item = (&'b ZPath, bool)>) {
        for (ticket, counts) in tickets {
            let Some(looks) = self.looks.checked_sub(1) else {
                return;
            };
            self.looks = looks;
            self.waits.extend(self.state.wait_of(waiter, ticket).filter(|_| counts));
        }
    }

    /// The edges of the cycle, from the requesting owner to the edge `last`, which begins at the
    /// waiter `by`.
    fn cycle(&self, last: WaitsFor, by: &Waiter) -> Vec<WaitsFor> {
        let mut cycle = vec![last];
        let mut at = by;
        while let Some((edge, by)) = self.reached.get(at) {
            cycle.push(edge.clone());
            at = by;
        }
        cycle.reverse();
        cycle
    }
}

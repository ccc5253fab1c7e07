//! Deadlocks: an acquire or upgrade with an owner is refused if it would close a cycle in the
//! wait-for graph.
//!
//! The nodes of the graph are owners within sessions. A ticket waits for each holder beside which
//! alone there is no room for it, and for each waiter before it that it may not overtake. Beside
//! such a waiter there may be room: then the ticket waits only until that one is granted, and what
//! its owner does elsewhere does not matter. No ticket waits for waiters in a managed lock, where a
//! holder may hand over to any of them, nor for one holder of a semaphore beside which there is
//! room, since any other may go first. So each edge is definite, and there are no false cycles.
//!
//! New edges come with new tickets, so a cycle is always closed by the last acquire in it, and
//! found there unless there is more to look at than [`crate::Limits::deadlock_looks_max`]. A grant
//! that overtakes others makes new edges, too; it takes an owner that waits for two things at once
//! to close a cycle by it, and that one is not found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::edits::actors::remembered;
use crate::edits::context::Context;
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

/// A waiter, as the search sees it: an owner with all that it waits for; or one ticket of
/// an owner's, where another waits only until that is granted, and not until it has gone.
type Waiter = (Owner, Option<ZPath>);

/// A ticket that wants to come into a queue.
pub(crate) struct Newcomer<'a> {
    pub(crate) lock: &'a ZPath,
    pub(crate) session: SessionId,
    pub(crate) owner: &'a str,
    pub(crate) mode: LockMode,
    /// The place where an upgraded writer will stand, and its reader, which is not in its way.
    /// Others stand at the end.
    pub(crate) upgraded: Option<(Position, &'a Position)>,
}

/// A ticket whose blockers are to be looked at.
struct Wait {
    by: Waiter,
    lock: ZPath,
    demand: Demand,
    /// The turn in the queue; `None` at the end.
    turn: Option<QueueTurn>,
    /// The reader of an upgraded writer.
    reader: Option<Position>,
}

/// Time for which a contender is in the way of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InTheWay {
    No,
    /// A waiter beside whom there is room, but whom no other ticket passes.
    UntilGranted,
    UntilGone,
}

struct Search<'a> {
    state: &'a State,
    asker: Owner,
    looks: u32,
    waits: VecDeque<Wait>,
    /// The way in which each waiter was reached: the edge that leads to it, and from whom.
    reached: BTreeMap<Waiter, (WaitsFor, Waiter)>,
}

impl State {
    /// The cycle that the newcomer would close by waiting.
    pub(crate) fn deadlock(&self, newcomer: &Newcomer<'_>) -> Option<Vec<WaitsFor>> {
        // No ticket waits for one that is not there yet. That is what most acquires are.
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

    /// The state in which a newcomer would wait that sets the limit of its lock: nobody may be
    /// overtaken in a semaphore.
    fn made_a_semaphore_by(&self, newcomer: &Newcomer<'_>) -> Option<State> {
        let LockMode::Lease { limit, .. } = newcomer.mode else { return None };
        let settings = self.queue(newcomer.lock)?.settings();
        settings.limit.is_none().then(|| {
            let mut state = self.clone();
            state.tree.edit_queue(newcomer.lock, |queue| queue.set(LockSettings { limit: Some(limit), ..settings }));
            state
        })
    }

    /// The cycle that the tickets of a multi-lock close by waiting: they are in their queues
    /// already.
    pub(crate) fn deadlock_of_all(&self, id: SessionId, owner: &str, tickets: &[ZPath]) -> Option<Vec<WaitsFor>> {
        let owner: Owner = (id, owner.into());
        let by = (owner.clone(), None);
        let waits = tickets.iter().filter_map(|ticket| self.wait_of(&by, ticket)).collect();
        Search::of(self, owner, waits).run()
    }

    /// The wait of a ticket; `None` when it does not wait.
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

    /// The tickets that stand before a wait in its queue, and whether they are in its way.
    fn before<'a>(&'a self, wait: &'a Wait) -> Box<dyn Iterator<Item = (&'a Position, InTheWay)> + 'a> {
        let Some(queue) = self.queue(&wait.lock) else {
            return Box::new(std::iter::empty());
        };
        let together = |other| queue.fit_together(other, wait.demand);
        // Readers that hold are not in the way of a reader, however many there are.
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

    /// Answers that waiting would close a cycle, as far as the asker may read the locks in it, and
    /// remembers it of the lock.
    pub(crate) fn refuse_deadlock(
        &mut self,
        newcomer: &Newcomer<'_>,
        label: &str,
        cycle: Vec<WaitsFor>,
        context: &Context,
        effects: &Effects,
    ) -> Reply {
        let now = context.moment();
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
        // Tickets of locks that the asker may not read are nobody's to name.
        let shown = cycle.into_iter().filter(|edge| self.may_read(&edge.lock, &context.identities));
        Reply::Deadlock { cycle: shown.collect() }
    }
}

impl<'a> Search<'a> {
    fn of(state: &'a State, asker: Owner, waits: Vec<Wait>) -> Search<'a> {
        let looks = state.limits.deadlock_looks();
        Search { state, asker, looks, waits: waits.into(), reached: BTreeMap::new() }
    }

    /// The nearest first, so that the cycle is a shortest one.
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

    /// Looks at one blocker of a wait.
    fn look(&mut self, wait: &Wait, position: &Position, in_the_way: InTheWay) -> Option<Vec<WaitsFor>> {
        let blocker = wait.lock.child(&position.name).ok()?;
        let node = self.state.node(&blocker)?;
        let session = node.owner()?;
        let contender = node.contender().filter(|contender| !contender.owner.is_empty())?;
        let (waiting, _) = &wait.by;
        // Curator's downgrade, and the reader that its own upgrade passes.
        let downgrade = wait.demand == Demand::Shared
            && session == waiting.0
            && wait.turn.as_ref().is_some_and(|own| own.position.number == position.number);
        // A dead session waits for nothing.
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

    /// Adds what a waiter waits for, itself.
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

    /// Adds what those of the tickets that count wait for.
    fn look_at<'b>(&mut self, waiter: &Waiter, tickets: impl Iterator<Item = (&'b ZPath, bool)>) {
        for (ticket, counts) in tickets {
            let Some(looks) = self.looks.checked_sub(1) else {
                return;
            };
            self.looks = looks;
            self.waits.extend(self.state.wait_of(waiter, ticket).filter(|_| counts));
        }
    }

    /// The way back from the last edge to the asker, turned around.
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

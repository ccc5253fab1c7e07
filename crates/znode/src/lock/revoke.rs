//! Asking a holder to give up, and taking the lock away when it does not.

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::lock::Moment;
use crate::lock::demand::sequence_of;
use crate::state::{Changes, State};
use crate::tree::ops::permit;
use crate::tree::system_paths::check_client_path;
use crate::tree::znode::Znode;
use crate::{ADMIN, Actor, DELETE, Error, Refusal, Reply, ZPath, weight};

/// A request to give a ticket up.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Revocation {
    /// When it was asked first.
    pub at: Moment,
    /// Who asked; not known when it was by the lock node's data.
    pub by: Actor,
    /// When the ticket may be taken away, in milliseconds since 1970; `None` for never.
    pub due_ms: Option<u64>,
}

/// What is asked of which ticket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revocations {
    by_ticket: OrdMap<ZPath, Revocation>,
    /// Those with a deadline.
    due: OrdSet<(u64, ZPath)>,
    /// What all of it weighs.
    bytes: u64,
}

impl Revocations {
    pub(crate) fn get(&self, ticket: &ZPath) -> Option<&Revocation> {
        self.by_ticket.get(ticket)
    }

    pub(crate) fn all(&self) -> &OrdMap<ZPath, Revocation> {
        &self.by_ticket
    }

    /// Tickets whose deadline is over, the longest overdue first.
    pub(crate) fn due(&self, now_ms: u64) -> impl Iterator<Item = &ZPath> {
        self.due.iter().take_while(move |(due_ms, _)| *due_ms <= now_ms).map(|(_, ticket)| ticket)
    }

    /// What all of it weighs.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// For tests: deadlines and weight, against the requests.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let mut anew = Revocations::default();
        self.by_ticket.iter().for_each(|(ticket, revocation)| anew.put(ticket, revocation.clone()));
        let same = anew.due == self.due && anew.bytes == self.bytes;
        if same { Ok(()) } else { Err(format!("revocations are {anew:?} and kept as {self:?}")) }
    }

    pub(crate) fn put(&mut self, ticket: &ZPath, revocation: Revocation) {
        self.remove(ticket);
        self.due.extend(revocation.due_ms.map(|due_ms| (due_ms, ticket.clone())));
        self.bytes += weight::revocation(ticket, &revocation.by);
        self.by_ticket.insert(ticket.clone(), revocation);
    }

    pub(crate) fn remove(&mut self, ticket: &ZPath) -> Option<Revocation> {
        let old = self.by_ticket.remove(ticket);
        if let Some(old) = &old {
            self.bytes -= weight::revocation(ticket, &old.by);
        }
        if let Some(due_ms) = old.as_ref().and_then(|old| old.due_ms) {
            self.due.remove(&(due_ms, ticket.clone()));
        }
        old
    }

    pub(crate) fn due_ms(&self, ticket: &ZPath) -> Option<u64> {
        self.by_ticket.get(ticket)?.due_ms
    }
}

/// What Curator's `Revoker` writes into the lock node of a holder that shall give up.
const CURATOR: &str = "__REVOKE__";
/// And what ZooKeeper's recipe for revocable locks has there.
const RECIPE: &str = "unlock";

/// Of a lock's directory: one of these permits to take tickets of the lock away from others, and to
/// set what the lock is.
pub(crate) const REVOKE: u32 = DELETE | ADMIN;

/// Whether this is a word that asks the one who holds to give up.
pub(crate) fn asks_to_give_up(data: &[u8]) -> bool {
    [CURATOR, RECIPE].iter().any(|word| *data == *word.as_bytes())
}

/// Holders that one request may ask.
const HOLDERS_MAX: usize = 1000;

/// Whether a client wants this ticket back: by [`crate::Op::Revoke`], or by setting the lock node's
/// data as Curator or ZooKeeper's recipe do.
pub fn revocation(state: &State, ticket: &ZPath) -> Option<Revocation> {
    if let Some(revocation) = state.locks.revocations.get(ticket) {
        return Some(revocation.clone());
    }
    let node = state.node(ticket).filter(|node| is_ticket(ticket, node))?;
    // Not what it was made with: that is a label.
    let told = node.version != 0 && asks_to_give_up(&node.data);
    let at = Moment { zxid: node.mzxid, time_ms: node.mtime_ms };
    told.then(|| Revocation { at, by: Actor::default(), due_ms: None })
}

/// The lock node of a session that is open.
fn is_ticket(path: &ZPath, node: &Znode) -> bool {
    node.owner().is_some() && node.lingers_until_ms().is_none() && sequence_of(path.name()).is_some()
}

/// What the client that made a lock node of that name looks for in its data. Most look for nothing,
/// and keep something of their own there.
fn word_for(name: &str) -> Option<&'static str> {
    let family = &name[..name.len().saturating_sub(10)];
    let ends = |families: &[&str]| families.iter().any(|end| family.ends_with(end));
    let guid = family.strip_prefix("_c_").and_then(|rest| rest.get(..37));
    let protected = guid.is_some_and(|guid| guid.ends_with('-') && guid.matches('-').count() == 5);
    if protected && ends(&["-lock-", "-__READ__", "-__WRIT__"]) {
        Some(CURATOR)
    } else if ends(&["lock-", "read-", "write-"]) {
        Some(RECIPE)
    } else {
        None
    }
}

impl State {
    /// Asks for a ticket, or for those of all who hold a lock. All of them are asked, or none.
    pub(crate) fn revoke(
        &mut self,
        path: &ZPath,
        deadline_ms: Option<u32>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        check_client_path(path)?;
        let node = self.node(path).ok_or_else(|| refuse(Error::NoNode))?;
        let lock = if node.owner().is_none() { path.clone() } else { path.parent().ok_or(Error::NoNode)? };
        permit(&self.tree[&lock].acl, REVOKE, changes).map_err(|error| Refusal::at(error, &lock))?;
        let tickets = match node.owner() {
            None => self.holders(path).map_err(refuse)?,
            Some(_) if is_ticket(path, node) => vec![path.clone()],
            // It lingers, or does not queue.
            Some(_) => return Err(refuse(Error::NoNode)),
        };
        let cost = |ticket| self.cost_of_removing(ticket);
        if deadline_ms == Some(0) && tickets.iter().map(cost).sum::<u64>() > self.steps_left(changes) {
            return Err(Error::TooManyOps.into());
        }
        let before = self.clone();
        for ticket in &tickets {
            let asked = self.ask_for(ticket, deadline_ms, changes);
            if let Err(refusal) = asked.and_then(|()| self.check_steps(changes)) {
                *self = before;
                changes.clear();
                return Err(refusal);
            }
        }
        Ok(Reply::Revoking { tickets })
    }

    /// Who holds a lock, of those whom a session owns.
    pub(crate) fn holders(&self, lock: &ZPath) -> Result<Vec<ZPath>, Error> {
        let Some(queue) = self.queue(lock) else { return Ok(Vec::new()) };
        if queue.holder_count() > HOLDERS_MAX {
            return Err(Error::TooManyOps);
        }
        let tickets: Vec<ZPath> = queue.holders().map(|(at, _)| lock.child(&at.name)).collect::<Result<_, _>>()?;
        Ok(tickets.into_iter().filter(|ticket| is_ticket(ticket, &self.tree[ticket])).collect())
    }

    fn ask_for(&mut self, ticket: &ZPath, deadline_ms: Option<u32>, changes: &mut Changes) -> Result<(), Refusal> {
        let node = &self.tree[ticket];
        if deadline_ms == Some(0) {
            self.remove(ticket, changes);
            return Ok(());
        }
        if self.locks.revocations.get(ticket).is_none() {
            self.check_bytes(weight::revocation(ticket, &self.actor(changes)))
                .map_err(|error| Refusal::at(error, ticket))?;
        }
        let due_ms = deadline_ms.map(|deadline_ms| self.time_ms.saturating_add(deadline_ms.into()));
        let asked = Revocation { at: self.moment(changes), by: self.actor(changes), due_ms };
        // A ticket that was asked for before stays so; the earlier deadline counts.
        let revocation = match self.locks.revocations.get(ticket) {
            Some(old) => Revocation { due_ms: old.due_ms.into_iter().chain(due_ms).min(), ..old.clone() },
            None => asked,
        };
        // Its holder watches the data. That of zlock's own holders is their label and stays; they
        // are told by the event.
        let word = if node.contender().is_none() { word_for(ticket.name()) } else { None };
        let data = word.map_or_else(|| node.data.to_vec(), |word| word.as_bytes().to_vec());
        self.set_data(ticket, data, -1, changes)?;
        self.locks.revocations.put(ticket, revocation);
        Ok(())
    }
}

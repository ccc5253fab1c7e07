//! Ledgers and multi-locks as records of a snapshot.

use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdMap;

use crate::codec::DecodeError;
use crate::ledger::{Grant, Ledger, demand_of};
use crate::multilock::MultiLock;
use crate::snapshot::damaged;
use crate::state::State;
use crate::znode::{Place, Znode};
use crate::{FencingToken, LockSettings, Policy, SessionId, ZPath, Zxid};

/// One record. A state without ledgers has none. The order of variants and fields is the format on disk: append only.
#[derive(Encode, Decode)]
pub(crate) enum LedgerRecord {
    /// A lock with a ledger; behind its directory.
    Ledger { lock: ZPath, settings: LockSettings, passed: bool },
    /// Somebody who is written in a ledger as a holder; behind the lock node.
    Grant { ticket: ZPath, token: FencingToken },
    /// Somebody who waits with a priority; behind the lock node.
    Priority { ticket: ZPath, priority: u32 },
    /// Behind all znodes.
    MultiLock { czxid: Zxid, policy: Policy, tickets: Vec<ZPath> },
    /// The last one: how many there were before it.
    Tail { records: u64 },
    /// Behind all znodes: a lock whose queue is still to be looked at.
    Unsettled { lock: ZPath },
    /// Behind all znodes: a session that is still to be ended.
    Ending { session: SessionId },
}

/// What ledgers say of a znode: of a lock node in one, and of a directory that has one.
pub(crate) fn of(
    nodes: &OrdMap<ZPath, Arc<Znode>>,
    path: &ZPath,
    node: &Znode,
) -> impl Iterator<Item = LedgerRecord> + use<> {
    let standing = Place::of(path.name(), node.czxid).and_then(|place| {
        let ledger = nodes.get(&path.parent()?)?.family.ledger.as_ref()?;
        let ticket = path.clone();
        match (ledger.grant_of(&place), ledger.priority_of(&place)) {
            (Some(Grant { token, .. }), _) => Some(LedgerRecord::Grant { ticket, token: *token }),
            (None, 0) => None,
            (None, priority) => Some(LedgerRecord::Priority { ticket, priority }),
        }
    });
    let ledger = node.family.ledger.as_ref().map(|ledger| {
        let (lock, settings, passed) = (path.clone(), ledger.settings, ledger.passed);
        LedgerRecord::Ledger { lock, settings, passed }
    });
    standing.into_iter().chain(ledger)
}

/// The multi-locks of a state, the locks that are still to be looked at, and the sessions that are still to be ended.
pub(crate) fn multis(state: &State) -> impl Iterator<Item = LedgerRecord> + Send + use<> {
    let multis = state.multis.clone().into_iter().map(|(czxid, multi)| {
        let (policy, tickets) = (multi.policy, multi.tickets.clone());
        LedgerRecord::MultiLock { czxid, policy, tickets }
    });
    let unsettled = state.unsettled.clone().into_iter().map(|lock| LedgerRecord::Unsettled { lock });
    let ending = state.ending.clone().into_iter().map(|session| LedgerRecord::Ending { session });
    multis.chain(unsettled).chain(ending)
}

/// Puts a record back; `seen` counts them.
pub(crate) fn push(state: &mut State, record: LedgerRecord, seen: &mut u64) -> Result<(), DecodeError> {
    *seen += 1;
    match record {
        LedgerRecord::Tail { records } if records + 1 == *seen => {
            *seen = 0;
            Ok(())
        }
        LedgerRecord::Tail { .. } => Err(damaged("records of ledgers are missing")),
        LedgerRecord::Ledger { lock, settings, passed } => push_ledger(state, &lock, settings, passed),
        LedgerRecord::Grant { ticket, token } => push_grant(state, &ticket, token),
        LedgerRecord::Priority { ticket, priority } => push_priority(state, &ticket, priority),
        LedgerRecord::MultiLock { czxid, policy, tickets } => push_multi(state, czxid, policy, tickets),
        LedgerRecord::Unsettled { lock } => match state.unsettled.insert(lock) {
            None => Ok(()),
            Some(_) => Err(damaged("an unsettled lock twice")),
        },
        LedgerRecord::Ending { session } => match state.sessions.get(&session).map(|_| state.ending.insert(session)) {
            Some(None) => Ok(()),
            _ => Err(damaged("a session ends twice, or was never open")),
        },
    }
}

fn push_ledger(state: &mut State, lock: &ZPath, settings: LockSettings, passed: bool) -> Result<(), DecodeError> {
    let alone = state.node(lock).is_some_and(|node| node.family.names.is_empty() && node.family.ledger.is_none());
    if !alone {
        return Err(damaged("a ledger of no lock, or behind those who are in it"));
    }
    let ledger = Ledger::restored(settings, passed);
    state.edit(lock, |node| node.family.ledger = Some(Arc::new(ledger)));
    Ok(())
}

fn push_priority(state: &mut State, ticket: &ZPath, priority: u32) -> Result<(), DecodeError> {
    let place = state.node(ticket).and_then(|node| Place::of(ticket.name(), node.czxid));
    let ledger = ticket.parent().and_then(|lock| state.ledger(&lock));
    match (place, ledger) {
        (Some(place), Some(ledger)) if priority > 0 && ledger.waits(&place) && ledger.priority_of(&place) == 0 => {
            state.prioritize(ticket, priority);
            Ok(())
        }
        _ => Err(damaged("a priority of nobody")),
    }
}

fn push_grant(state: &mut State, ticket: &ZPath, token: FencingToken) -> Result<(), DecodeError> {
    let lost = || damaged("a grant of no ticket");
    let lock = ticket.parent().ok_or_else(lost)?;
    let node = state.node(ticket).ok_or_else(lost)?;
    let place = Place::of(ticket.name(), node.czxid).ok_or_else(lost)?;
    let ledger = state.ledger(&lock).ok_or_else(lost)?;
    if !ledger.waits(&place) {
        return Err(lost());
    }
    let demand = demand_of(ticket.name(), node, ledger.settings);
    state.edit_ledger(&lock, |ledger| ledger.grant(&place, demand, token));
    Ok(())
}

fn push_multi(state: &mut State, czxid: Zxid, policy: Policy, tickets: Vec<ZPath>) -> Result<(), DecodeError> {
    let part = |ticket: &ZPath| {
        let ledger = ticket.parent().is_some_and(|lock| state.ledger(&lock).is_some());
        ledger && state.node(ticket).is_some_and(|node| node.czxid == czxid && node.contender().is_some())
    };
    let held = |ticket: &ZPath| {
        let place = Place::of(ticket.name(), czxid);
        let ledger = ticket.parent().and_then(|lock| state.ledger(&lock));
        place.is_some_and(|place| ledger.is_some_and(|ledger| ledger.grant_of(&place).is_some()))
    };
    let once: std::collections::BTreeSet<_> = tickets.iter().map(ZPath::parent).collect();
    let halves = tickets.iter().filter(|ticket| held(ticket)).count() % tickets.len().max(1) != 0;
    if tickets.is_empty() || once.len() != tickets.len() || halves || !tickets.iter().all(part) {
        return Err(damaged("a multi-lock without its parts"));
    }
    let multi = Arc::new(MultiLock { policy, tickets });
    if state.multis.insert(czxid, multi.clone()).is_some() {
        return Err(damaged("a multi-lock twice"));
    }
    state.note_owner(&multi);
    Ok(())
}

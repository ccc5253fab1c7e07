//! What is kept beside the znodes, as records of a snapshot.

use bincode::{Decode, Encode};

use crate::codec::DecodeError;
use crate::lock::past::History;
use crate::lock::upgrade::Upgraded;
use crate::lock::{EndedSession, Grant, LockLimits, Revocation};
use crate::snapshot::damaged;
use crate::state::State;
use crate::znode::sequence_of;
use crate::{ZPath, Znode};

/// One record. They come after the znodes, and there is none in a state that never had a lock. The order of variants and
/// fields is the format on disk: append only.
#[derive(Encode, Decode)]
pub(crate) enum LockRecord {
    Limits(LockLimits),
    Grant {
        ticket: ZPath,
        grant: Grant,
    },
    Revocation {
        ticket: ZPath,
        revocation: Revocation,
    },
    History {
        lock: ZPath,
        history: History,
    },
    Session(EndedSession),
    Upgraded {
        lock: ZPath,
        upgraded: Upgraded,
    },
    /// The last one: how many there were before it.
    Tail {
        records: u64,
    },
}

/// The records of a state, with the tail.
pub(crate) fn records(state: &State) -> impl Iterator<Item = LockRecord> + Send + 'static {
    let limits = (*state.lock_limits != LockLimits::FIRST).then(|| LockRecord::Limits((*state.lock_limits).clone()));
    let past = &state.past;
    let records = usize::from(limits.is_some()) + state.grants.len() + past.histories.len() + past.sessions.len();
    let revocations = state.revocations.by_ticket.clone();
    let records = records + revocations.len();
    let upgrades = state.upgrades.clone();
    let records = records + upgrades.len();
    let upgrades = upgrades.into_iter().map(|(lock, upgraded)| LockRecord::Upgraded { lock, upgraded });
    let tail = (records > 0).then_some(LockRecord::Tail { records: records as u64 });
    let grants = state.grants.clone().into_iter().map(|(ticket, grant)| LockRecord::Grant { ticket, grant });
    let revocations = revocations.into_iter().map(|(ticket, revocation)| LockRecord::Revocation { ticket, revocation });
    let histories = past.histories.clone().into_iter();
    let histories = histories.map(|(lock, history)| LockRecord::History { lock, history: (*history).clone() });
    let sessions = past.sessions.clone().into_iter().map(|(_, session)| LockRecord::Session((*session).clone()));
    limits.into_iter().chain(upgrades).chain(grants).chain(revocations).chain(histories).chain(sessions).chain(tail)
}

/// Puts a record back; `seen` counts them.
pub(crate) fn push(state: &mut State, record: LockRecord, seen: &mut u64) -> Result<(), DecodeError> {
    let good = match record {
        LockRecord::Limits(limits) => {
            state.lock_limits = limits.into();
            true
        }
        LockRecord::Grant { ticket, grant } => {
            let good = is_owned(state, &ticket) && !state.grants.contains_key(&ticket);
            if good {
                state.put_grant(&ticket, grant);
            }
            good
        }
        LockRecord::Revocation { ticket, revocation } => {
            let good = is_owned(state, &ticket) && !state.revocations.by_ticket.contains_key(&ticket);
            if good {
                state.revocations.put(&ticket, revocation);
            }
            good
        }
        LockRecord::History { lock, history } => state.past.restore_history(lock, history),
        LockRecord::Session(session) => state.past.restore_session(session),
        LockRecord::Upgraded { lock, upgraded } => {
            let stands = state.node(&lock).is_some_and(|lock| !lock.family.contenders.is_empty());
            stands && state.upgrades.insert(lock, upgraded).is_none()
        }
        LockRecord::Tail { records } if records == *seen => {
            *seen = 0;
            return Ok(());
        }
        LockRecord::Tail { .. } => return Err(missing()),
    };
    *seen += 1;
    if good { Ok(()) } else { Err(damaged("a lock's record does not fit")) }
}

/// Nothing may follow the tail but the end, and nothing may come without it.
pub(crate) fn missing() -> DecodeError {
    damaged("records of locks are missing")
}

/// Whether it is the lock node of a session that is open.
fn is_owned(state: &State, ticket: &ZPath) -> bool {
    let owned = |node: &Znode| node.owner().is_some() && node.lingers_until_ms().is_none();
    sequence_of(ticket.name()).is_some() && state.node(ticket).is_some_and(owned)
}

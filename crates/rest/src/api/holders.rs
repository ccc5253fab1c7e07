//! Present holders of a lock, for the answer to a request that did not get the lock or does not
//! hold it.

use zlock_client::api::{Contender, ProblemType, SimpleHolder};
use znode::lock::{self, QueueEntry};
use znode::{Identity, LockMode, SessionId, State, ZPath};

use crate::api::convert;
use crate::problem::Problem;
use crate::request::access::shows;

/// Returns the lock's first holder; `None` for a free lock, or if the request may not read the
/// lock.
fn first(identities: &[Identity], state: &State, lock: &ZPath) -> Option<Contender> {
    let readable = shows(identities, state, lock);
    let holder = lock::holder(state, lock).ok().flatten().filter(|_| readable)?;
    Some(convert::shown_contender(identities, state, holder))
}

/// Adds the present holder of the ticket's lock to the problem `not-acquired`. Other problems are
/// returned unchanged.
pub(crate) fn explained(
    problem: Problem,
    identities: &[Identity],
    state: &State,
    ticket: &ZPath,
    wait_ms: u64,
) -> Problem {
    let Some(lock) = ticket.parent().filter(|_| problem.kind == ProblemType::NotAcquired) else { return problem };
    let (begins, ends) = frame(wait_ms);
    match first(identities, state, &lock) {
        Some(holder) => {
            let words = format!("{begins}the lock is held by {}; {ends}", in_words(&holder, state));
            problem.because(&words).held_by(holder)
        }
        None if shows(identities, state, &lock) => {
            let why = match lingers(state, &lock) {
                true => "the session of its holder has expired, and its lock-delay is not over",
                false => "the lock was not free, and may be by now",
            };
            problem.because(&format!("{begins}{why}; {ends}"))
        }
        None => problem.because(&format!("{begins}the lock was not free; {ends}")),
    }
}

/// Returns the words before and after the holder's description in the text of `not-acquired`.
fn frame(wait_ms: u64) -> (&'static str, &'static str) {
    match wait_ms {
        0 => ("", "nothing is left of the try"),
        _ => ("the wait is over: ", "the waiter has left the queue"),
    }
}

/// Largest number of holders of one lock that the text of a refusal names.
const NAMED_MAX: usize = 3;
/// Number of contenders at the front of a queue that are examined to find holders.
const LOOKS_MAX: usize = 16;

/// Adds the obstacle to the problem `not-acquired` of a multi-lock (several locks acquired
/// together): the first of its locks that is held in a conflicting mode, and the holders of that
/// lock.
pub(crate) fn explained_all(
    problem: Problem,
    identities: &[Identity],
    state: &State,
    parts: &[(ZPath, LockMode)],
    wait_ms: u64,
) -> Problem {
    if problem.kind != ProblemType::NotAcquired {
        return problem;
    }
    let (begins, ends) = frame(wait_ms);
    let mut readable = parts.iter().filter(|(lock, _)| shows(identities, state, lock));
    let mut in_the_way = readable.clone().filter_map(|(lock, mode)| Some((lock, conflicting(state, lock, *mode)?)));
    let Some((lock, first)) = in_the_way.next() else {
        let why = match readable.find(|(lock, _)| lingers(state, lock)) {
            Some((lock, _)) => {
                format!("the session of the holder of {lock} has expired, and its lock-delay is not over")
            }
            None => "the locks were not all free at one moment".into(),
        };
        return problem.because(&format!("{begins}{why}; {ends}"));
    };
    let locks_more = in_the_way.count();
    // Further holders, which share the lock with the first one.
    let page = lock::queue(state, lock, 0, LOOKS_MAX).map(|queue| queue.entries).unwrap_or_default();
    let others: Vec<_> = page.into_iter().filter(|entry| entry.held && entry.ticket != first.ticket).collect();
    let first = convert::shown_contender(identities, state, first);
    let mut words = format!("{begins}the lock {lock} is held by {}", in_words(&first, state));
    let unnamed = others.len().saturating_sub(NAMED_MAX - 1);
    for other in others.into_iter().take(NAMED_MAX - 1) {
        words += &format!(", and by {}", in_words(&convert::shown_contender(identities, state, other), state));
    }
    if unnamed > 0 {
        words += ", and by others";
    }
    words += &match locks_more {
        0 => String::new(),
        1 => "; another one of the locks is held, too".into(),
        more => format!("; {more} more of the locks are held, too"),
    };
    problem.because(&format!("{words}; {ends}")).held_by(first)
}

/// Tells whether a lock-delay blocks the lock: for this time after the session of a holder expired,
/// the lock is not granted.
fn lingers(state: &State, lock: &ZPath) -> bool {
    let page = lock::queue(state, lock, 0, 1);
    page.is_ok_and(|queue| queue.entries.iter().any(|entry| entry.lingers_until_ms.is_some()))
}

/// Returns the lock's first holder, if an acquire in `mode` conflicts with it.
fn conflicting(state: &State, lock: &ZPath, mode: LockMode) -> Option<QueueEntry> {
    let holder = lock::holder(state, lock).ok().flatten()?;
    let permits = lock::queue(state, lock, 0, 0).ok().and_then(|queue| queue.permits);
    let shares = match (mode, permits) {
        (LockMode::Lease { permits: wanted, .. }, Some(permits)) => {
            wanted <= permits.limit.saturating_sub(permits.held)
        }
        (LockMode::Read, None) => holder.mode == LockMode::Read,
        _ => false,
    };
    (!shares).then_some(holder)
}

/// Adds the present holder to the problem of a session that does not hold the lock.
pub(crate) fn not_holder(problem: Problem, identities: &[Identity], state: &State, lock: &ZPath) -> Problem {
    let is_held = first(identities, state, lock);
    let words = match &is_held {
        Some(holder) => {
            format!(
                "this session does not hold the lock, or not with the mode, owner or fencing_token of the request; it \
                 is held by {}",
                in_words(holder, state)
            )
        }
        None => "this session does not hold the lock".into(),
    };
    let words = format!("{words}. To leave the queue of a lock, release the waiting ticket by its path");
    let problem = problem.because(&words);
    match is_held {
        Some(holder) => problem.held_by(holder),
        None => problem,
    }
}

/// Explains the problem `not-owner`: the ticket belongs to another session, or the znode to no
/// session.
pub(crate) fn not_owner(problem: Problem, owner: Option<SessionId>) -> Problem {
    match owner {
        Some(owner) => problem.because(&format!("the ticket belongs to session {owner}, not to this one")),
        None => problem.because(
            "this znode is no ticket: no session owns it; what this session holds of a lock is given back by DELETE \
             /v1/locks and the lock's path, and a persistent znode is deleted with its data by DELETE of /v1/znodes",
        ),
    }
}

/// Returns the problem (400) of a path that cannot be a ticket's, because of its last name.
pub(crate) fn no_ticket() -> Problem {
    let why = "this path is no ticket: the last name of a ticket's path ends with ten digits, as `ticket` in the \
               answer to an acquire shows; of a lock itself ask /v1/locks";
    Problem::bad("ticket", why)
}

/// Formats a holder, as in `session 12 "nightly" (web-1, pid 71, backup, 10.0.0.7) for 12 s, with
/// token 15`.
fn in_words(holder: &Contender, state: &State) -> String {
    let session = holder.session.map_or_else(|| "a znode of no session".into(), |id| format!("session {id}"));
    let named = [&holder.session_label, &holder.owner, &holder.label];
    let named: String = named.into_iter().filter(|name| !name.is_empty()).map(|name| format!(" {name:?}")).collect();
    let client = holder.client.as_ref().map(|client| format!(" ({client})")).unwrap_or_default();
    let held_ms = holder.granted_at_ms.map(|at_ms| state.time_ms().saturating_sub(at_ms));
    let held = held_ms.map(|ms| format!(" for {}.{} s", ms / 1_000, ms % 1_000 / 100)).unwrap_or_default();
    let token = holder.fencing_token.map(|token| format!(", with token {token}")).unwrap_or_default();
    format!("{session}{named}{client}{held}{token}")
}

/// Describes the holder of a simple lock (an ephemeral znode, without a queue); `None` for a free
/// lock.
pub(crate) fn simple(state: &State, path: &ZPath) -> Option<SimpleHolder> {
    let node = state.node(path)?;
    let owner = node.owner();
    let session = owner.and_then(|owner| state.session(owner));
    Some(SimpleHolder {
        session: owner.map(|session| session.0),
        session_label: session.map_or_else(String::new, |session| session.label.to_string()),
        client: session.and_then(|session| convert::client(&session.client)),
        owner: String::from_utf8_lossy(node.data()).into_owned(),
        fencing_token: node.stat().czxid.0,
        granted_at_ms: node.stat().ctime_ms,
    })
}

/// Adds the present holder to the problem of a simple lock (an ephemeral znode, without a queue)
/// that was not acquired.
pub(crate) fn of_simple(problem: Problem, identities: &[Identity], state: &State, path: &ZPath) -> Problem {
    match simple(state, path).filter(|_| shows(identities, state, path)) {
        Some(SimpleHolder { session: None, .. }) => problem.because(
            "a znode is in the way that is no simple lock, for example the directory of a lock with a queue: either \
             all clients of a lock use simple locks, or none does",
        ),
        Some(holder) => {
            let session = holder.session.map_or_else(String::new, |id| format!("session {id}"));
            let client = holder.client.map(|client| format!(" ({client})")).unwrap_or_default();
            let (owner, token) = (holder.owner, holder.fencing_token);
            problem.because(&format!("the lock is held by {session} {owner:?}{client}, with token {token}"))
        }
        None => problem.because("the lock was not free, and may be by now"),
    }
}

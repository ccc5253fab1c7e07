//! The fencing tokens of one lock's grants rise.
//!
//! Source: Kleppmann, "How to do distributed locking" (2016): a resource that refuses smaller
//! tokens than it has seen is safe only if the tokens never fall. The token is the czxid of the
//! holder's lock node. Tokens must also rise when sequence numbers are used up, and when the lock's
//! directory is created again.

use std::collections::BTreeMap;

use znode::lock::LockStatus;
use znode::{FencingToken, State, ZPath, lock};

use super::Invariant;
use crate::history::History;
use crate::observation::{Commit, Observation};

#[derive(Default)]
pub(super) struct TokensRise {
    /// The newest exclusive grant of each lock: its fencing token and its ticket.
    newest: BTreeMap<ZPath, (FencingToken, ZPath)>,
}

/// Locks of the workload.
const LOCKS: [&str; 3] = ["/locks/l0", "/locks/l1", "/locks/l2"];

impl Invariant for TokensRise {
    fn name(&self) -> &'static str {
        "tokens rise"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        for name in LOCKS {
            let Ok(lock) = ZPath::parse(name) else { continue };
            for (ticket, token) in writers(commit.after, &lock) {
                let newest = self.newest.entry(lock.clone()).or_insert((token, ticket.clone()));
                if newest.1 == ticket {
                    continue;
                }
                if newest.0 >= token {
                    return Err(format!("at {}: {ticket} got {token} after {}", commit.zxid, newest.0));
                }
                *newest = (token, ticket);
            }
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        let Observation::Granted { ticket, token, .. } = seen else { return Ok(()) };
        let granted = history.entry(znode::Zxid(token.0)).and_then(|entry| entry.state.node(ticket));
        match granted {
            Some(node) if node.stat().czxid.0 == token.0 => Ok(()),
            _ => Err(format!("a client has token {token} for {ticket}, which was not created there")),
        }
    }
}

/// Returns the tickets that hold the lock at `path` other than for reading, with their fencing
/// tokens.
fn writers(state: &State, path: &ZPath) -> Vec<(ZPath, FencingToken)> {
    let Ok(queue) = lock::queue(state, path, 0, 4) else { return Vec::new() };
    let alone = queue.entries.into_iter().filter(|entry| entry.mode != znode::LockMode::Read);
    let held = alone.filter_map(|entry| match lock::status(state, &entry.ticket) {
        Ok(LockStatus::Held { token, .. }) => Some((entry.ticket, token)),
        _ => None,
    });
    held.collect()
}

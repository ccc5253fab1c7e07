//! Invariants of the znodes in each committed state.

use znode::{Kind, State, ZPath};

use super::Invariant;
use crate::history::{Commit, History};

/// Every znode has a parent that lists it, and all counts and indexes are right.
///
/// Source: the data model of ZooKeeper (zookeeperProgrammers, "The ZooKeeper Data Model") and
/// docs/znode-model.md; `State::check_invariants` walks the whole state.
pub(super) struct ParentsExist;

impl Invariant for ParentsExist {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        commit.entry.state.check_invariants().map_err(|why| format!("at {}: {why}", commit.entry.zxid))
    }
}

/// The session of each ephemeral znode is open. The only exception is a ticket with a lock-delay,
/// which outlives its session for that delay.
///
/// Source: ZooKeeper (zookeeperProgrammers, "Ephemeral Nodes"). ZooKeeper itself broke this rule in
/// ZOOKEEPER-1208 and ZOOKEEPER-2355. In zlock one log entry removes an expired session together
/// with its znodes.
pub(super) struct EphemeralsHaveOwners;

/// Parents under which the workload creates ephemeral znodes.
const PLACES: [&str; 4] = ["/present", "/locks/l0", "/locks/l1", "/locks/l2"];

impl Invariant for EphemeralsHaveOwners {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        for place in PLACES {
            let Ok(place) = ZPath::parse(place) else { continue };
            check(&commit.entry.state, &place).map_err(|why| format!("at {}: {why}", commit.entry.zxid))?;
        }
        Ok(())
    }
}

fn check(state: &State, place: &ZPath) -> Result<(), String> {
    let Ok(names) = state.children(place) else { return Ok(()) };
    for name in names {
        let Ok(path) = place.child(name) else { continue };
        let Some(node) = state.node(&path) else { return Err(format!("{path} is listed and is not there")) };
        let Kind::Ephemeral { owner } = node.kind() else { continue };
        let lingers = node.contender().is_some_and(|contender| contender.lingers_until_ms.is_some());
        match state.session(owner) {
            Some(session) if !session.ephemerals().any(|owned| *owned == path) => {
                return Err(format!("{path} is not among the znodes of its session {owner}"));
            }
            None if !lingers => return Err(format!("{path} has outlived its session {owner}")),
            _ => {}
        }
    }
    Ok(())
}

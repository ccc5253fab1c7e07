//! A lock has one holder, or only readers as holders. This is true in every state. It is also true
//! for the clients' own beliefs: a client believes that it holds a lock until its session's lease
//! ends by the client's clock.
//!
//! Source: mutual exclusion, the promise of ZooKeeper's lock recipe (zookeeperRecipes, "Locks"). A
//! client may count on its lease until the timeout has passed since it sent the last acknowledged
//! heartbeat (Gray and Cheriton, "Leases", 1989), less the drift between clocks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::ZPath;

use super::{Invariant, World};
use crate::history::History;
use crate::observation::{Lease, Observation};

/// A client's belief that it holds a lock.
struct Belief {
    lock: ZPath,
    client: u64,
    shared: bool,
    lease: Rc<RefCell<Lease>>,
}

pub(super) struct OneHolder {
    world: World,
    beliefs: BTreeMap<ZPath, Belief>,
}

impl OneHolder {
    pub(super) fn new(world: World) -> OneHolder {
        OneHolder { world, beliefs: BTreeMap::new() }
    }

    fn lasts(&self, lease: &Lease, now_ms: u64) -> bool {
        !lease.over && now_ms < lease.sent_ms + self.world.at_least_ms(lease.timeout_ms.into())
    }
}

impl Invariant for OneHolder {
    fn name(&self) -> &'static str {
        "one holder"
    }

    // Each state by itself is checked by `State::check_invariants`; see `parents_exist`.

    fn client(&mut self, seen: &Observation, _: &History, now_ms: u64) -> Result<(), String> {
        match seen {
            Observation::LetGo { ticket, .. } => drop(self.beliefs.remove(ticket)),
            Observation::Granted { client, lock, ticket, lease, shared, .. } => {
                if !self.lasts(&lease.borrow(), now_ms) {
                    return Ok(());
                }
                for (other, belief) in &self.beliefs {
                    let apart = belief.lock != *lock || (belief.shared && *shared) || other == ticket;
                    // One session may read a lock that it writes (Curator's downgrade), or hold it
                    // twice.
                    let same = belief.lease.borrow().session == lease.borrow().session;
                    if !apart && !same && self.lasts(&belief.lease.borrow(), now_ms) {
                        return Err(format!(
                            "client {client} was granted {ticket} while client {} counts on {other}",
                            belief.client
                        ));
                    }
                }
                let belief = Belief { lock: lock.clone(), client: *client, shared: *shared, lease: Rc::clone(lease) };
                self.beliefs.insert(ticket.clone(), belief);
            }
            _ => {}
        }
        Ok(())
    }
}

//! Watchers get every event once, in order, over all nodes and restarts. No wait misses the change
//! that it waits for.
//!
//! Source: ZooKeeper (zookeeperProgrammers, "ZooKeeper Watches"), and `Replica::events`, which
//! promises more: no event between `since` and `upto` is missing.

use replica::WatchKey;
use znode::{Event, Zxid};

use super::Invariant;
use crate::history::History;
use crate::observation::Observation;

pub(super) struct WatchesFireOnce;

impl Invariant for WatchesFireOnce {
    fn name(&self) -> &'static str {
        "watches fire once"
    }

    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::Missed { client, what, zxid } => {
                Err(format!("client {client} waited in vain for {what}, which was so at {zxid}"))
            }
            Observation::Batch { client, key, since, batch } => {
                if batch.upto < *since {
                    return Err(format!("client {client} asked for events since {since} and got up to {}", batch.upto));
                }
                let expected = expected(key, *since, batch.upto, history)?;
                if batch.events == expected {
                    return Ok(());
                }
                let (got, wanted) = (batch.events.len(), expected.len());
                Err(format!(
                    "client {client} got {got} events of {key:?} in ({since}, {}], and there were {wanted}",
                    batch.upto
                ))
            }
            _ => Ok(()),
        }
    }
}

fn expected(key: &WatchKey, since: Zxid, upto: Zxid, history: &History) -> Result<Vec<Event>, String> {
    if history.last() < upto {
        return Err(format!("nothing is committed at {upto}"));
    }
    let events = history.between(since, upto).flat_map(|entry| &entry.applied).flat_map(|applied| &applied.events);
    Ok(events.filter(|event| concerns(key, event)).cloned().collect())
}

fn concerns(key: &WatchKey, event: &Event) -> bool {
    match key {
        WatchKey::Node(path) | WatchKey::Children(path) => event.path == *path,
        WatchKey::Subtree(path) => {
            let below = event.path.as_str().strip_prefix(path.as_str());
            path.is_root() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

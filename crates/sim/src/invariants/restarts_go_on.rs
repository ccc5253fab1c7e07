//! A node that was restarted with its disk shows no older state than the one that it showed shortly
//! before its end.
//!
//! Source: `Replica::read` and docs/dev/storage-format.md: after a kill a node comes back with at
//! least the state of 20 ms before its end. So a local read without a minimum zxid goes back by no
//! more than that. A loss of power may take unflushed data, and the loss of a disk takes
//! everything.

use std::collections::{BTreeMap, VecDeque};

use znode::Zxid;

use super::Invariant;
use crate::history::History;
use crate::hub::MachineId;
use crate::observation::{Observation, Standing};

/// Length of the last part of a process's life whose states a restart may lose: the 20 ms that
/// zlock permits, and the time that a flush and two steps of the simulation may take.
const FORGOTTEN_MS: u64 = 60;

#[derive(Default)]
struct Shown {
    boot: u64,
    losses: u64,
    /// States that the node has shown since its start, each as time and zxid: all states of the
    /// last [`FORGOTTEN_MS`], and the last state before that time.
    recent: VecDeque<(u64, Zxid)>,
    /// The time at which the previous process ended, and the lowest zxid that the node may show
    /// after it.
    floor: (u64, Zxid),
}

#[derive(Default)]
pub(super) struct RestartsGoOn {
    nodes: BTreeMap<MachineId, Shown>,
}

impl Invariant for RestartsGoOn {
    fn name(&self) -> &'static str {
        "restarts go on"
    }

    fn step(&mut self, standings: &[Standing], now_ms: u64) -> Result<(), String> {
        for standing in standings {
            let shown = self.nodes.entry(standing.node).or_default();
            if shown.boot != standing.boot {
                let ended_ms = shown.recent.back().map_or(0, |(at_ms, _)| *at_ms);
                let sure =
                    |(at_ms, _): &&(u64, Zxid)| at_ms + FORGOTTEN_MS <= ended_ms && shown.losses == standing.losses;
                let floor = shown.recent.iter().filter(sure).map(|(_, zxid)| *zxid).max().unwrap_or(Zxid(0));
                let floor = (ended_ms, floor);
                *shown = Shown { boot: standing.boot, losses: standing.losses, recent: VecDeque::new(), floor };
            }
            while shown.recent.get(1).is_some_and(|(at_ms, _)| at_ms + FORGOTTEN_MS <= now_ms) {
                shown.recent.pop_front();
            }
            shown.recent.push_back((now_ms, standing.applied));
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        let Observation::Glimpsed { node, asked_ms, zxid } = seen else { return Ok(()) };
        match self.nodes.get(node).map(|shown| shown.floor) {
            Some((ended_ms, floor)) if ended_ms < *asked_ms && *zxid < floor => Err(format!(
                "node {node} shows {zxid}, asked at {asked_ms} ms; before it ended at {ended_ms} ms it showed {floor}"
            )),
            _ => Ok(()),
        }
    }
}

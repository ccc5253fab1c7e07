//! Invariants of the state that each node has applied and shows.

use std::collections::{BTreeMap, VecDeque};

use replica::Replica;
use znode::Zxid;

use super::Invariant;
use crate::history::{Commit, History};
use crate::log_disk::LogDisk;
use crate::network::MachineId;
use crate::observation::{NodeView, Observation, Standing};

/// Replicas that have applied the same number of entries have applied the same entries, and have
/// the same state, byte for byte.
///
/// Source: Raft's State Machine Safety (Ongaro and Ousterhout 2014, section 5.4.3), and the
/// determinism of `znode` (docs/dev/architecture.md). The state of each node is compared by digest
/// with that of a plain loop over the committed entries.
pub(super) struct ReplicasAgree;

impl Invariant for ReplicasAgree {
    fn node(&mut self, view: &NodeView, log: &LogDisk, history: &mut History) -> Result<(), String> {
        let zxid = view.state.last_zxid();
        if zxid.0 == 0 {
            return Ok(());
        }
        let expected = history.digest(zxid).ok_or_else(|| format!("node {} has applied {zxid}, unknown", view.node))?;
        if Replica::digest(&view.state) != expected {
            return Err(format!("the state of node {} at {zxid} is another one", view.node));
        }
        let written = history
            .index(zxid)
            .and_then(|index| log.archived(index))
            .map(|archived| archived.entry.log_id.committed_leader_id().term);
        let committed = history.entry(zxid).map(|entry| entry.term.0);
        // A node that got this state by a snapshot may lack the entry in its log, or may have
        // another entry in its place.
        let by_entries = view.state.last_term().0 == committed.unwrap_or_default();
        match written {
            _ if by_entries => Ok(()),
            written => Err(format!("node {} applied {zxid} of term {written:?}, not {committed:?}", view.node)),
        }
    }
}

/// The state that a node shows never goes back while the node runs.
///
/// Source: ZooKeeper's guarantee of a single system image (zookeeperOver, "Guarantees"). After a
/// restart a node reads its log again, and may show an older state than before. Even then a client
/// never gets a state older than the newest zxid that the client has seen; `ReadsAreFresh` checks
/// that.
#[derive(Default)]
pub(super) struct AppliedRises {
    shown: BTreeMap<MachineId, (u64, Zxid, u64)>,
}

impl Invariant for AppliedRises {
    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let now = (view.boot, view.state.last_zxid(), view.state.time_ms());
        let before = self.shown.insert(view.node, now);
        match before.filter(|before| before.0 == view.boot) {
            Some((_, zxid, time_ms)) if zxid > now.1 || time_ms > now.2 => {
                Err(format!("node {} went from {zxid} back to {}", view.node, now.1))
            }
            _ => Ok(()),
        }
    }
}

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

/// A node that was restarted with its disk shows no older state than the one that it showed shortly
/// before its end.
///
/// Source: `Replica::read` and docs/dev/storage-format.md: after a kill a node comes back with at
/// least the state of 20 ms before its end. So a local read without a minimum zxid goes back by no
/// more than that. A loss of power may take unflushed data, and the loss of a disk takes
/// everything.
#[derive(Default)]
pub(super) struct RestartsGoOn {
    nodes: BTreeMap<MachineId, Shown>,
}

impl Invariant for RestartsGoOn {
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

/// A node's program knows the format level of the node's applied state, and no log entry needs a
/// higher format level than the one that the cluster had when the entry was applied.
///
/// Source: docs/dev/formats.md. A node ends if its program is older than the raised level, and the
/// last line of its log says that a newer release must be started.
pub(super) struct LevelsAreKnown;

impl Invariant for LevelsAreKnown {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(txn) = &commit.entry.txn else { return Ok(()) };
        let (row, level, at) = (txn.request.op.row(), commit.before.level(), commit.entry.zxid);
        if row.level > level {
            return Err(format!("`{}` came with level {}, and {at} is at {level}", row.name, row.level));
        }
        Ok(())
    }

    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let (level, known) = (view.state.level(), view.levels);
        if known.contains(level) {
            return Ok(());
        }
        Err(format!("node {} shows a state at level {level}, and its program knows {known}", view.node))
    }
}

/// The first words of `replica::Failure::Removed`.
pub(crate) const REMOVED: &str = "this node was removed from the cluster";

/// A node ends by itself for two reasons only: its disk has failed, or it was removed and the log
/// says so. No entry, frame or snapshot of a leader ends a node.
///
/// Source: Raft's Log Matching: every member can append and apply all that a leader sends.
pub(super) struct NodesCanApply;

impl Invariant for NodesCanApply {
    fn ended(&mut self, node: MachineId, why: &str, history: &History) -> Result<(), String> {
        if why.contains("the disk has failed") {
            return Ok(());
        }
        let cluster = history.state(history.last()).and_then(znode::State::cluster);
        let removed = cluster.is_some_and(|cluster| cluster.removed().any(|(id, _)| id == node));
        if why.starts_with(REMOVED) && removed {
            return Ok(());
        }
        Err(format!("node {node} ended itself: {why}"))
    }
}

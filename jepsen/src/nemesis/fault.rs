//! List of all faults, with their names, their requirements, and the functions that create them.

use super::disks::{BrokenDisk, DiskStall, PowerLoss, SlowDisk};
use super::kind::{AnyKind, Whom};
use super::links::{self, Cut, Flapping, HeldAnswers, Loss, Slow};
use super::members::Members;
use super::operator::{Restore, Rotation, Transfer};
use super::processes::{Change, ClockSteps, How, Jumps, RestartInLease, Scarce, Strike};
use super::upgrade::Upgrade;
use crate::cluster::Breakage;
use crate::cluster::cgroup::Resource;
use crate::rows::rows;

/// Requirement of a fault on this machine and on the kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No requirement.
    Nothing,
    /// Links that can delay messages: proxies, not namespaces.
    Delays,
    /// Connections to nodes over this machine's loopback address (proxies, not namespaces), because
    /// the fault sends an operator's password.
    Operator,
    /// A second, newer program, and the same as [`Need::Operator`].
    NextProgram,
    /// The library libfaketime, which changes a process's wall clock.
    Faketime,
    /// Control groups for this resource.
    Group(Resource),
    /// A separate disk for each node.
    Disk,
}

/// Properties of one kind of fault.
struct Row {
    name: &'static str,
    need: Need,
    make: fn() -> Box<dyn AnyKind>,
}

const fn row(name: &'static str, need: Need, make: fn() -> Box<dyn AnyKind>) -> Row {
    Row { name, need, make }
}

rows! {
    /// A kind of fault.
    Fault {
        /// kill -9 of one node.
        Kill("kill", Need::Nothing, || Box::new(Strike(How::Kill, Whom::One))),
        /// kill -9 of the leader.
        KillLeader("kill-leader", Need::Nothing, || Box::new(Strike(How::Kill, Whom::Leader))),
        /// kill -9 of a majority at once.
        KillMajority("kill-majority", Need::Nothing, || Box::new(Strike(How::Kill, Whom::Majority))),
        /// kill -9 of all nodes at once.
        KillAll("kill-all", Need::Nothing, || Box::new(Strike(How::Kill, Whom::All))),
        /// SIGTERM of one node, which stops cleanly.
        Stop("stop", Need::Nothing, || Box::new(Strike(How::Stop, Whom::One))),
        /// SIGTERM of the leader, which stops cleanly.
        StopLeader("stop-leader", Need::Nothing, || Box::new(Strike(How::Stop, Whom::Leader))),
        /// SIGSTOP of one node.
        Pause("pause", Need::Nothing, || Box::new(Strike(How::Pause, Whom::One))),
        /// SIGSTOP of the leader.
        PauseLeader("pause-leader", Need::Nothing, || Box::new(Strike(How::Pause, Whom::Leader))),
        /// The network is cut into two parts, one of which has a majority.
        Halves("halves", Need::Nothing, || Box::new(Cut(links::halves))),
        /// The leader is cut off from all other nodes.
        IsolateLeader("isolate-leader", Need::Nothing, || Box::new(Cut(links::isolate_leader))),
        /// Every node is connected to a majority, but no two nodes to the same majority.
        Ring("ring", Need::Nothing, || Box::new(Cut(links::ring))),
        /// All links from one node to the others are cut, or all links from the others to it.
        OneWay("one-way", Need::Nothing, || Box::new(Cut(links::one_way))),
        /// All links have a delay of tens of milliseconds, which varies.
        Slow("slow", Need::Delays, || Box::new(Slow)),
        /// Packets between nodes are lost; with proxies, connections break again and again.
        Loss("loss", Need::Nothing, || Box::new(Loss)),
        /// A node is killed and restarted with an empty data directory.
        Wipe("wipe", Need::Nothing, || Box::new(Strike(How::Wipe, Whom::One))),
        /// Wall clocks jump by up to an hour, forwards and backwards.
        Clock("clock", Need::Faketime, || Box::new(Jumps)),
        /// One node's disk is full.
        DiskFull("disk-full", Need::Disk, || Box::new(BrokenDisk(Breakage::Full))),
        /// One node's fsync fails, and the data that it should have written is lost.
        Fsync("fsync", Need::Disk, || Box::new(BrokenDisk(Breakage::LosesWrites))),
        /// One node or all nodes at once lose power, and with it data that they had not fsynced.
        PowerLoss("power-loss", Need::Disk, || Box::new(PowerLoss::default())),
        /// Messages of followers to a leader are held back until another node leads, and come late.
        HeldAnswers("held-answers", Need::Delays, || Box::new(HeldAnswers::default())),
        /// A follower or the leader is restarted before the leader's lease is over.
        RestartInLease("restart-in-lease", Need::Nothing, || Box::new(RestartInLease::default())),
        /// A link goes up and down again and again.
        Flapping("flapping", Need::Nothing, || Box::new(Flapping::default())),
        /// One direction of one link is cut.
        Asymmetric("asymmetric", Need::Nothing, || Box::new(Cut(links::asymmetric))),
        /// Wall clocks of single nodes step by up to five seconds, again and again.
        ClockSteps("clock-steps", Need::Faketime, || Box::new(ClockSteps::new(Change::Steps))),
        /// Wall clocks of single nodes run at half to double their rate.
        ClockRates("clock-rates", Need::Faketime, || Box::new(ClockSteps::new(Change::Rates))),
        /// Every fsync of some nodes takes long.
        SlowDisk("slow-disk", Need::Disk, || Box::new(SlowDisk::default())),
        /// Every fsync of the leader hangs.
        DiskStall("disk-stall", Need::Disk, || Box::new(DiskStall::default())),
        /// A node gets hardly more memory than it already uses.
        Memory("memory", Need::Group(Resource::Memory), || Box::new(Scarce { resource: Resource::Memory, node: 0 })),
        /// A node gets a few percent of the time of one processor.
        Cpu("cpu", Need::Group(Resource::Cpu), || Box::new(Scarce { resource: Resource::Cpu, node: 0 })),
        /// Nodes are restarted one at a time with a newer program, and the cluster's level
        /// (version of the data format) is raised.
        Upgrade("upgrade", Need::NextProgram, || Box::new(Upgrade::default())),
        /// Leadership is transferred again and again.
        Transfer("transfer", Need::Operator, || Box::new(Transfer::default())),
        /// An operator adds, replaces, removes and empties members.
        Members("members", Need::Operator, || Box::new(Members::default())),
        /// All nodes lose their data, and the cluster is restored from a backup.
        Restore("restore", Need::Operator, || Box::new(Restore::default())),
        /// The certificates for TLS between nodes are replaced.
        Rotation("rotation", Need::Nothing, || Box::new(Rotation::default())),
    }
}

impl Fault {
    /// Requirement of the fault on this machine.
    pub fn need(self) -> Need {
        self.row().need
    }

    /// Creates a new fault of this kind, which has not begun.
    pub(super) fn make(self) -> Box<dyn AnyKind> {
        (self.row().make)()
    }

    /// Returns the faults that a name on the command line stands for: four for `partition`, an
    /// empty list for `none`. Returns `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Vec<Fault>> {
        match name {
            "none" => Some(Vec::new()),
            "partition" => Some(vec![Fault::Halves, Fault::IsolateLeader, Fault::Ring, Fault::OneWay]),
            name => Fault::all().find(|fault| fault.name() == name).map(|fault| vec![fault]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        Fault::all().for_each(|fault| assert_eq!(Fault::from_name(fault.name()), Some(vec![fault])));
    }

    #[test]
    fn the_table_of_the_page_has_every_fault() {
        let rows = include_str!("../../../docs/jepsen.md").lines().filter_map(|line| line.strip_prefix("| `"));
        let names: Vec<&str> = rows.filter_map(|row| row.split('|').next()).flat_map(|cell| cell.split('`')).collect();
        for fault in Fault::all() {
            assert!(names.contains(&fault.name()), "{}", fault.name());
        }
    }
}

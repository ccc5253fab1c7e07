//! List of all faults, with their names, their requirements, and the functions that create them.

use super::disks::{BrokenDisk, DiskStall, PowerLoss, SlowDisk};
use super::kind::{Kind, Whom};
use super::links::{self, Cut, Flapping, HeldAnswers, Loss, Slow};
use super::members::Members;
use super::operator::{Restore, Rotation, Transfer};
use super::processes::{Change, ClockSteps, How, Jumps, RestartInLease, Scarce, Strike};
use super::upgrade::Upgrade;
use crate::cluster::Breakage;
use crate::cluster::cgroup::Resource;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// kill -9 of one node.
    Kill,
    /// kill -9 of the leader.
    KillLeader,
    /// kill -9 of a majority at once.
    KillMajority,
    /// kill -9 of all nodes at once.
    KillAll,
    /// SIGTERM of one node, which stops cleanly.
    Stop,
    /// SIGTERM of the leader, which stops cleanly.
    StopLeader,
    /// SIGSTOP of one node.
    Pause,
    /// SIGSTOP of the leader.
    PauseLeader,
    /// The network is cut into two parts, one of which has a majority.
    Halves,
    /// The leader is cut off from all other nodes.
    IsolateLeader,
    /// Every node is connected to a majority, but no two nodes to the same majority.
    Ring,
    /// All links from one node to the others are cut, or all links from the others to it.
    OneWay,
    /// All links have a delay of tens of milliseconds, which varies.
    Slow,
    /// Packets between nodes are lost; with proxies, connections break again and again.
    Loss,
    /// A node is killed and restarted with an empty data directory.
    Wipe,
    /// Wall clocks jump by up to an hour, forwards and backwards.
    Clock,
    /// One node's disk is full.
    DiskFull,
    /// One node's fsync fails, and the data that it should have written is lost.
    Fsync,
    /// One node or all nodes at once lose power, and with it data that they had not fsynced.
    PowerLoss,
    /// Messages of followers to a leader are held back until another node leads, and come late.
    HeldAnswers,
    /// A follower or the leader is restarted before the leader's lease is over.
    RestartInLease,
    /// A link goes up and down again and again.
    Flapping,
    /// One direction of one link is cut.
    Asymmetric,
    /// Wall clocks of single nodes step by up to five seconds, again and again.
    ClockSteps,
    /// Wall clocks of single nodes run at half to double their rate.
    ClockRates,
    /// Every fsync of some nodes takes long.
    SlowDisk,
    /// Every fsync of the leader hangs.
    DiskStall,
    /// A node gets hardly more memory than it already uses.
    Memory,
    /// A node gets a few percent of the time of one processor.
    Cpu,
    /// Nodes are restarted one at a time with a newer program, and the cluster's level (version of
    /// the data format) is raised.
    Upgrade,
    /// Leadership is transferred again and again.
    Transfer,
    /// An operator adds, replaces, removes and empties members.
    Members,
    /// All nodes lose their data, and the cluster is restored from a backup.
    Restore,
    /// The certificates for TLS between nodes are replaced.
    Rotation,
}

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
    fault: Fault,
    name: &'static str,
    need: Need,
    make: fn() -> Box<dyn Kind>,
}

/// Properties of all faults, in the order of the variants.
#[rustfmt::skip]
const ROWS: [Row; 34] = [
    Row { fault: Fault::Kill, name: "kill", need: Need::Nothing, make: || Box::new(Strike(How::Kill, Whom::One)) },
    Row { fault: Fault::KillLeader, name: "kill-leader", need: Need::Nothing, make: || Box::new(Strike(How::Kill, Whom::Leader)) },
    Row { fault: Fault::KillMajority, name: "kill-majority", need: Need::Nothing, make: || Box::new(Strike(How::Kill, Whom::Majority)) },
    Row { fault: Fault::KillAll, name: "kill-all", need: Need::Nothing, make: || Box::new(Strike(How::Kill, Whom::All)) },
    Row { fault: Fault::Stop, name: "stop", need: Need::Nothing, make: || Box::new(Strike(How::Stop, Whom::One)) },
    Row { fault: Fault::StopLeader, name: "stop-leader", need: Need::Nothing, make: || Box::new(Strike(How::Stop, Whom::Leader)) },
    Row { fault: Fault::Pause, name: "pause", need: Need::Nothing, make: || Box::new(Strike(How::Pause, Whom::One)) },
    Row { fault: Fault::PauseLeader, name: "pause-leader", need: Need::Nothing, make: || Box::new(Strike(How::Pause, Whom::Leader)) },
    Row { fault: Fault::Halves, name: "halves", need: Need::Nothing, make: || Box::new(Cut(links::halves)) },
    Row { fault: Fault::IsolateLeader, name: "isolate-leader", need: Need::Nothing, make: || Box::new(Cut(links::isolate_leader)) },
    Row { fault: Fault::Ring, name: "ring", need: Need::Nothing, make: || Box::new(Cut(links::ring)) },
    Row { fault: Fault::OneWay, name: "one-way", need: Need::Nothing, make: || Box::new(Cut(links::one_way)) },
    Row { fault: Fault::Slow, name: "slow", need: Need::Delays, make: || Box::new(Slow) },
    Row { fault: Fault::Loss, name: "loss", need: Need::Nothing, make: || Box::new(Loss) },
    Row { fault: Fault::Wipe, name: "wipe", need: Need::Nothing, make: || Box::new(Strike(How::Wipe, Whom::One)) },
    Row { fault: Fault::Clock, name: "clock", need: Need::Faketime, make: || Box::new(Jumps) },
    Row { fault: Fault::DiskFull, name: "disk-full", need: Need::Disk, make: || Box::new(BrokenDisk(Breakage::Full)) },
    Row { fault: Fault::Fsync, name: "fsync", need: Need::Disk, make: || Box::new(BrokenDisk(Breakage::LosesWrites)) },
    Row { fault: Fault::PowerLoss, name: "power-loss", need: Need::Disk, make: || Box::new(PowerLoss::default()) },
    Row { fault: Fault::HeldAnswers, name: "held-answers", need: Need::Delays, make: || Box::new(HeldAnswers::default()) },
    Row { fault: Fault::RestartInLease, name: "restart-in-lease", need: Need::Nothing, make: || Box::new(RestartInLease::default()) },
    Row { fault: Fault::Flapping, name: "flapping", need: Need::Nothing, make: || Box::new(Flapping::default()) },
    Row { fault: Fault::Asymmetric, name: "asymmetric", need: Need::Nothing, make: || Box::new(Cut(links::asymmetric)) },
    Row { fault: Fault::ClockSteps, name: "clock-steps", need: Need::Faketime, make: || Box::new(ClockSteps::new(Change::Steps)) },
    Row { fault: Fault::ClockRates, name: "clock-rates", need: Need::Faketime, make: || Box::new(ClockSteps::new(Change::Rates)) },
    Row { fault: Fault::SlowDisk, name: "slow-disk", need: Need::Disk, make: || Box::new(SlowDisk::default()) },
    Row { fault: Fault::DiskStall, name: "disk-stall", need: Need::Disk, make: || Box::new(DiskStall::default()) },
    Row { fault: Fault::Memory, name: "memory", need: Need::Group(Resource::Memory), make: || Box::new(Scarce { resource: Resource::Memory, node: 0 }) },
    Row { fault: Fault::Cpu, name: "cpu", need: Need::Group(Resource::Cpu), make: || Box::new(Scarce { resource: Resource::Cpu, node: 0 }) },
    Row { fault: Fault::Upgrade, name: "upgrade", need: Need::NextProgram, make: || Box::new(Upgrade::default()) },
    Row { fault: Fault::Transfer, name: "transfer", need: Need::Operator, make: || Box::new(Transfer::default()) },
    Row { fault: Fault::Members, name: "members", need: Need::Operator, make: || Box::new(Members::default()) },
    Row { fault: Fault::Restore, name: "restore", need: Need::Operator, make: || Box::new(Restore::default()) },
    Row { fault: Fault::Rotation, name: "rotation", need: Need::Nothing, make: || Box::new(Rotation::default()) },
];

impl Fault {
    /// All faults.
    pub fn all() -> impl Iterator<Item = Fault> {
        ROWS.iter().map(|row| row.fault)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Name of the fault on the command line.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Requirement of the fault on this machine.
    pub fn need(self) -> Need {
        self.row().need
    }

    /// Creates a new fault of this kind, which has not begun.
    pub(super) fn make(self) -> Box<dyn Kind> {
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
    fn every_fault_has_its_row_and_a_name_of_its_own() {
        for (i, row) in ROWS.iter().enumerate() {
            assert_eq!((row.fault as usize, Fault::from_name(row.name)), (i, Some(vec![row.fault])), "{}", row.name);
        }
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

//! Faults of nodes, disks and network: their kinds, times and durations follow from the seed.

use std::collections::BTreeSet;

use crate::counts::Watcher;
use crate::hub::Hub;
use crate::lease_faults::{Deed, LeaseFaults};
use crate::machine::{Clock, Fate, Node};
use crate::network::{CLIENTS_MAX, FIRST_CLIENT, MachineId};
use crate::programs::Programs;

/// Faults of a run: those that are under way, and the random choice of the next ones.
pub struct Faults {
    random: fastrand::Rng,
    hub: Hub,
    /// The longest pause between two faults, in milliseconds.
    calm_ms: u64,
    next_ms: u64,
    heal_ms: Option<u64>,
    calm_disks_ms: Option<u64>,
    restarts: Vec<(u64, MachineId)>,
    /// Nodes that have become ready since they last lost their disk, or since their first start. A
    /// node may lose its disk only while all nodes are in this set, because the guarantees need a
    /// majority of nodes with their data. A node that was never ready may still have to join, so it
    /// counts as one without data.
    whole: BTreeSet<MachineId>,
    election: Election,
    flush: Option<DecisiveFlush>,
    lease: LeaseFaults,
    /// Random choice of the program versions that nodes run.
    pub(crate) programs: Programs,
    /// Counter of snapshots and purges, which shows what the faults have covered.
    pub(crate) watcher: Watcher,
    /// Number of faults, without failing disks, which [`crate::log_disk::LogDisk::failures`]
    /// counts.
    pub count: u64,
}

/// An election in which a voter loses power right after its vote.
#[derive(Clone, Copy)]
enum Election {
    /// No election is to be disturbed.
    Undisturbed,
    /// The next node that votes for another node will lose power.
    Awaited,
    /// A node has voted for the candidate. The voter loses power at `dark_ms`.
    Voted { voter: MachineId, candidate: MachineId, dark_ms: u64 },
}

/// A flush that is to fail at the one follower whose acknowledgement makes a quorum.
#[derive(Clone, Copy)]
struct DecisiveFlush {
    leader: MachineId,
    follower: MachineId,
    /// Value of [`crate::log_disk::LogDisk::failures`] of the follower when this fault was planned.
    /// A higher value shows that the planned flush has failed.
    failures: u64,
    /// Simulated time at which leader and follower are to be killed; `None` until the flush has
    /// failed.
    dark_ms: Option<u64>,
}

impl Faults {
    /// Returns the faults of a run, before any fault has begun.
    pub fn new(hub: Hub, mut random: fastrand::Rng) -> Faults {
        let calm_ms = [500, 1_500, 4_000][random.usize(..3)];
        let next_ms = random.u64(500..3_000);
        let restarts = Vec::new();
        let lease = LeaseFaults::new(hub.clone(), random.fork());
        // Builds without the feature `next-level` draw no number here: one more number would change
        // what each seed plays.
        let programs =
            Programs::new(if cfg!(feature = "next-level") { random.fork() } else { fastrand::Rng::with_seed(0) });
        let (whole, election) = (BTreeSet::new(), Election::Undisturbed);
        Faults {
            random,
            hub,
            calm_ms,
            next_ms,
            heal_ms: None,
            calm_disks_ms: None,
            restarts,
            whole,
            election,
            flush: None,
            lease,
            programs,
            watcher: Watcher::default(),
            count: 0,
        }
    }

    /// Carries out the faults and repairs that are due.
    ///
    /// # Errors
    /// When a node cannot start again.
    pub fn act(&mut self, nodes: &mut [Node]) -> Result<(), String> {
        let now_ms = self.hub.now_ms();
        self.watcher.look(nodes);
        self.restart(nodes, now_ms)?;
        if self.heal_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.heal_ms = None;
            self.hub.lock().heal();
        }
        if self.calm_disks_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.calm_disks_ms = None;
            nodes.iter().for_each(|node| node.log.slow_down(0));
        }
        self.follow_election(nodes, now_ms);
        self.follow_flush(nodes, now_ms);
        let deeds = self.lease.follow(nodes);
        self.does(deeds, nodes, now_ms);
        if self.next_ms <= now_ms && !self.lease.is_under_way() {
            self.next_ms = now_ms + 50 + self.random.u64(..self.calm_ms);
            self.strike(nodes, now_ms);
        }
        Ok(())
    }

    /// Ends all faults: heals links and disks, ends pauses, and schedules the start of nodes that
    /// do not run.
    ///
    /// If a node is recovering, kills all nodes that run old programs, so that they restart with
    /// the newest one. A recovering node needs every entry, and old programs refuse entries that
    /// raise the format level.
    pub fn end(&mut self, nodes: &mut [Node]) {
        self.hub.lock().heal();
        self.election = Election::Undisturbed;
        self.flush = None;
        self.lease.end();
        self.programs.settle();
        let recovering =
            |node: &Node| node.status.as_ref().is_some_and(|it| it.ready == replica::Readiness::Recovering);
        if nodes.iter().any(recovering) {
            nodes
                .iter_mut()
                .filter(|node| node.levels().max < znode::LEVEL_MAX)
                .for_each(|node| self.kill(node, false));
        }
        for node in nodes {
            node.log.slow_down(0);
            node.paused_until_ms = node.paused_until_ms.min(self.hub.now_ms());
            if !node.runs() && node.fate != Fate::Removed {
                node.fate = Fate::Serves;
                self.restarts.push((0, node.id));
            }
        }
    }

    /// Schedules the restart of a node that has ended.
    pub fn ended(&mut self, node: MachineId) {
        let at_ms = self.hub.now_ms() + 20 + self.random.u64(..2_000);
        self.restarts.push((at_ms, node));
    }

    /// Starts the nodes whose restart is due.
    ///
    /// # Errors
    /// When a node cannot start again.
    pub fn restart(&mut self, nodes: &mut [Node], now_ms: u64) -> Result<(), String> {
        let due: Vec<MachineId> =
            self.restarts.extract_if(.., |(at_ms, _)| *at_ms <= now_ms).map(|due| due.1).collect();
        let level = level_of(nodes);
        let back = |node: &&mut Node| due.contains(&node.id) && !node.runs() && node.fate == Fate::Serves;
        for node in nodes.iter_mut().filter(back) {
            self.programs.choose(node, level);
            node.start().map_err(|why| format!("node {} does not start: {why}", node.id))?;
        }
        let ready = |node: &&Node| node.status.as_ref().is_some_and(|it| it.ready == replica::Readiness::Ready);
        self.whole.extend(nodes.iter().filter(ready).map(|node| node.id));
        Ok(())
    }

    fn strike(&mut self, nodes: &mut [Node], now_ms: u64) {
        let count = nodes.len();
        let chosen = self.random.usize(..count);
        if cfg!(feature = "next-level") && self.random.u8(..5) == 0 {
            self.change_program(&mut nodes[chosen]);
            self.count += 1;
            return;
        }
        match self.random.u32(..100) {
            0..14 => self.kill(&mut nodes[chosen], false),
            // A kill with a loss of power.
            14..28 => self.kill(&mut nodes[chosen], true),
            28..31 => {
                let power = self.random.bool();
                nodes.iter_mut().for_each(|node| self.kill(node, power));
            }
            31..36 => self.wipe(nodes, chosen),
            36..41 => {
                nodes[chosen].shut_down();
                self.hub.lock().event(&[7, chosen as u64], || format!("node {} shuts down", chosen + 1));
            }
            41..50 => match self.lease.begin(nodes) {
                Some(deeds) => {
                    self.heal_ms = None;
                    self.does(deeds, nodes, now_ms);
                }
                None => self.partition(count as u64, chosen as u64 + 1),
            },
            50..60 => self.partition(count as u64, chosen as u64 + 1),
            60..66 => self.slow_links(count as u64),
            66..74 => {
                let chosen = chosen as u64 + 1;
                let mut shared = self.hub.lock();
                shared.event(&[8, chosen], || format!("connections of node {chosen} break"));
                shared.break_connections(|machines| machines.contains(&chosen));
            }
            74..82 => {
                let for_ms = 50 + self.random.u64(..4_000);
                self.hub
                    .lock()
                    .event(&[9, chosen as u64, for_ms], || format!("node {} stands still for {for_ms} ms", chosen + 1));
                nodes[chosen].paused_until_ms = now_ms + for_ms;
            }
            82..86 => {
                let by_ms = [50, 300, 2_000][self.random.usize(..3)];
                self.calm_disks_ms = Some(now_ms + 200 + self.random.u64(..3_000));
                self.hub.lock().event(&[11, chosen as u64, by_ms], || {
                    format!("flushes of node {} take up to {by_ms} ms longer", chosen + 1)
                });
                nodes[chosen].log.slow_down(by_ms);
            }
            // This fault is counted when a flush has failed, because the process may end before its
            // next flush.
            86..88 => {
                self.hub.lock().event(&[12, chosen as u64], || format!("the disk of node {} fails", chosen + 1));
                nodes[chosen].log.fail();
                return;
            }
            88..92 => return self.fail_decisive_flush(nodes, chosen),
            92..97 => self.disturb_election(nodes, chosen),
            _ => self.set_clock(&mut nodes[chosen]),
        }
        self.count += 1;
    }

    /// Ends a node's process, cleanly or not. The next start may choose an older or a newer
    /// program.
    fn change_program(&mut self, node: &mut Node) {
        if self.random.bool() { node.shut_down() } else { self.kill(node, false) }
    }

    fn set_clock(&mut self, node: &mut Node) {
        let ahead_ms = self.random.i64(-20_000..20_000);
        node.clock = Clock { ahead_ms, rate: node.clock.rate.max(Clock::TRUE_RATE - 200) };
        self.hub.lock().event(&[13, node.id - 1, ahead_ms.unsigned_abs()], || {
            format!("the clock of node {} is set {ahead_ms} ms ahead", node.id)
        });
    }

    /// Kills a process, and schedules its restart. With `power` the whole machine loses power.
    pub(crate) fn kill(&mut self, node: &mut Node, power: bool) {
        if !node.runs() {
            return;
        }
        let kept = power.then(|| self.random.u8(..));
        node.kill(kept);
        self.ended(node.id);
    }

    /// Kills the leader. The first node that then votes for another node will lose power a few
    /// milliseconds later, with all writes that it has not flushed. Only in that moment can a node
    /// forget its vote, and chance alone hits the moment once in a million times.
    fn disturb_election(&mut self, nodes: &mut [Node], chosen: usize) {
        let leader = nodes.iter().position(Node::leads).unwrap_or(chosen);
        self.hub.lock().event(&[21, leader as u64], || "the next voter will lose power".into());
        let power = self.random.bool();
        self.kill(&mut nodes[leader], power);
        nodes.iter().for_each(|node| node.log.watch_votes(true));
        self.election = Election::Awaited;
    }

    fn follow_election(&mut self, nodes: &mut [Node], now_ms: u64) {
        match self.election {
            Election::Undisturbed => {}
            Election::Awaited => {
                let vote = nodes.iter().find_map(|node| Some((node.id, node.log.granted()?)));
                if let Some((voter, candidate)) = vote {
                    let dark_ms = now_ms + self.random.u64(1..12);
                    self.election = Election::Voted { voter, candidate, dark_ms };
                }
            }
            Election::Voted { voter, candidate, dark_ms } if dark_ms <= now_ms => {
                self.election = Election::Undisturbed;
                nodes.iter().for_each(|node| node.log.watch_votes(false));
                let count = nodes.len() as u64;
                let Some(voter) = nodes.iter_mut().find(|node| node.id == voter && node.runs()) else { return };
                voter.kill(Some(0));
                self.restarts.push((now_ms + 20 + self.random.u64(..150), voter.id));
                // The candidate must not be able to tell the others if it won.
                let others = (1..=count).filter(|other| *other != candidate);
                let cuts = others.flat_map(|other| [(candidate, other), (other, candidate)]).collect();
                let for_ms = 500 + self.random.u64(..3_000);
                self.cut(cuts, for_ms, [6, candidate]);
            }
            Election::Voted { .. } => {}
        }
    }

    /// Fails a flush of a follower's disk while other nodes are cut off, so that the leader needs
    /// that follower's acknowledgement. If the follower acknowledges without the flush, the entries
    /// are lost when the leader ends as well.
    fn fail_decisive_flush(&mut self, nodes: &mut [Node], chosen: usize) {
        let count = nodes.len();
        let all_run = count > 2 && nodes.iter().all(Node::runs);
        let leader = nodes.iter().position(Node::leads).filter(|_| all_run && self.flush.is_none());
        let Some(leader) = leader else { return };
        let follower = if chosen == leader { (chosen + 1) % count } else { chosen };
        let [leader, follower] = [leader, follower].map(|index| nodes[index].id);
        let others = (1..=count as u64).filter(|other| ![leader, follower].contains(other));
        let cut_off = others.skip(count / 2 - 1).flat_map(|other| [(leader, other), (other, leader)]).collect();
        let for_ms = 1_000 + self.random.u64(..3_000);
        self.cut(cut_off, for_ms, [7, leader]);
        let log = &nodes[follower as usize - 1].log;
        self.flush = Some(DecisiveFlush { leader, follower, failures: log.failures(), dark_ms: None });
        self.hub
            .lock()
            .event(&[12, follower - 1], || format!("the disk of node {follower} fails, which node {leader} needs"));
        log.fail();
    }

    fn follow_flush(&mut self, nodes: &mut [Node], now_ms: u64) {
        let Some(flush) = &mut self.flush else { return };
        let DecisiveFlush { leader, follower, failures, dark_ms } = *flush;
        match dark_ms {
            None if nodes[follower as usize - 1].log.failures() > failures => {
                flush.dark_ms = Some(now_ms + self.random.u64(1..1_000));
            }
            // The links are healed, and the follower was never asked to write.
            None if self.heal_ms.is_none() => self.flush = None,
            Some(dark_ms) if dark_ms <= now_ms => {
                self.flush = None;
                self.kill(&mut nodes[follower as usize - 1], false);
                // Bytes that the leader has sent to the cut-off nodes are lost with the
                // connections.
                self.hub.lock().break_connections(|machines| machines.contains(&leader));
                // The leader comes back last, and then learns what the others have agreed on.
                let leader = &mut nodes[leader as usize - 1];
                if leader.runs() {
                    leader.kill(None);
                    self.restarts.push((now_ms + 3_000 + self.random.u64(..2_000), leader.id));
                }
                self.heal_ms = Some(now_ms);
            }
            _ => {}
        }
    }

    fn does(&mut self, deeds: Vec<Deed>, nodes: &mut [Node], now_ms: u64) {
        for deed in deeds {
            match deed {
                Deed::ShutDown(leader) => nodes.iter_mut().filter(|node| node.id == leader).for_each(Node::shut_down),
                Deed::Restart(follower, after_ms) => {
                    let Some(node) = nodes.iter_mut().find(|node| node.id == follower && node.runs()) else { continue };
                    node.kill(None);
                    self.restarts.push((now_ms + after_ms, follower));
                }
                Deed::Over => self.heal_ms = Some(now_ms),
            }
        }
    }

    /// Tells whether this node was ready since it last lost its disk.
    pub(crate) fn is_whole(&self, node: MachineId) -> bool {
        self.whole.contains(&node)
    }

    /// Tells whether all nodes were ready since they last lost their disk, and no node is dead.
    pub(crate) fn is_all_whole(&self, nodes: &[Node]) -> bool {
        let is_fine = |node: &Node| match node.fate {
            Fate::Serves => self.is_whole(node.id),
            Fate::Dead => false,
            Fate::Removed => true,
        };
        nodes.iter().all(is_fine)
    }

    /// Kills a node and wipes its disk, if the node runs and all nodes have been ready since they
    /// last lost their disks.
    pub(crate) fn wipe(&mut self, nodes: &mut [Node], at: usize) {
        if !self.is_all_whole(nodes) || !nodes[at].runs() {
            return;
        }
        self.whole.remove(&nodes[at].id);
        self.kill(&mut nodes[at], true);
        nodes[at].wipe();
    }

    fn partition(&mut self, count: u64, chosen: MachineId) {
        let mut cuts: Vec<(MachineId, MachineId)> = Vec::new();
        let all: Vec<MachineId> = (1..=count).chain(FIRST_CLIENT..FIRST_CLIENT + CLIENTS_MAX).collect();
        let others = |of: MachineId| all.iter().copied().filter(move |other| *other != of);
        let nodes = |of: MachineId| (1..=count).filter(move |other| *other != of);
        let kind = self.random.u32(..6);
        match kind {
            // Kind 0 cuts off one node from all machines, kind 1 only from the other nodes.
            0 => cuts.extend(others(chosen).flat_map(|other| [(chosen, other), (other, chosen)])),
            1 => cuts.extend(nodes(chosen).flat_map(|other| [(chosen, other), (other, chosen)])),
            // Kind 2 cuts the node's links to the others, kind 3 the others' links to the node.
            2 => cuts.extend(nodes(chosen).map(|other| (chosen, other))),
            3 => cuts.extend(nodes(chosen).map(|other| (other, chosen))),
            // The links between two nodes. Of three nodes, the third still sees both.
            4 => {
                let next = chosen % count + 1;
                cuts.extend([(chosen, next), (next, chosen)]);
            }
            // Each link in one direction, with a probability of a quarter.
            _ => {
                for from in 1..=count {
                    cuts.extend(nodes(from).filter(|_| self.random.u8(..4) == 0).map(|to| (from, to)));
                }
            }
        }
        let for_ms = 100 + self.random.u64(..5_000);
        self.cut(cuts, for_ms, [u64::from(kind), chosen]);
    }

    /// Cuts these links, each in one direction, for `for_ms`. `kind` (the kind of partition) and
    /// `chosen` (the node at its centre) only go into the trace.
    pub(crate) fn cut(&mut self, cuts: Vec<(MachineId, MachineId)>, for_ms: u64, [kind, chosen]: [u64; 2]) {
        self.heal_ms = Some(self.hub.now_ms() + for_ms);
        let mut shared = self.hub.lock();
        shared.event(&[14, kind, chosen], || format!("for {for_ms} ms, cut: {cuts:?}"));
        cuts.iter().for_each(|(from, to)| shared.network.cut(*from, *to));
    }

    fn slow_links(&mut self, count: u64) {
        let by_ms = [20, 100, 700][self.random.usize(..3)];
        self.heal_ms = Some(self.hub.now_ms() + 200 + self.random.u64(..5_000));
        let mut shared = self.hub.lock();
        shared.event(&[15, by_ms], || format!("some links are {by_ms} ms slower"));
        for from in 1..=count {
            for to in (1..=count).filter(|to| *to != from) {
                if self.random.bool() {
                    shared.network.slow_down(from, to, by_ms);
                }
            }
        }
    }
}

/// The highest format level of the cluster in the status of any node.
fn level_of(nodes: &[Node]) -> u16 {
    let levels = nodes.iter().filter_map(|node| node.status.as_ref()?.cluster.as_ref());
    levels.map(znode::Cluster::level).max().unwrap_or(znode::LEVEL_MIN)
}

//! Tests of disks that do not answer for a while, on machines without other faults.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use replica::{Config, Error, Readiness};
use sim::call::{Call, Reply};
use sim::hub::Event;
use sim::network::{FIRST_CLIENT, MachineId};
use znode::{Create, Credential, Limits, Op, Request, SessionId, ZPath, ZnodeOp};

use crate::failover::{Machines, open_session};

const SESSION_MS: u32 = 4_000;
/// The default time after which a disk counts as stalled.
const STALL_MAX_MS: u64 = 2_000;
/// Time from the stall within which leadership must be handed over.
const HANDED_OVER_MS: u64 = 3_000;

struct Disks {
    machines: Machines,
    /// For each node with a stalled disk, the boots (numbers of starts) of the flushes that have
    /// not ended.
    stalled: BTreeMap<MachineId, Vec<u64>>,
    /// Milliseconds by which each flush takes longer.
    slower_ms: u64,
    /// Flushes that are made slower, each with the time of its end, the node, and the number of the
    /// node's start (boot) in which it began.
    late: Vec<(u64, MachineId, u64)>,
    replies: BTreeMap<u64, Reply>,
    calls: u64,
    /// Sessions, one for each node: the first gets its heartbeats through node 1, and so on.
    sessions: Vec<Credential>,
    /// Time at which clients last sent heartbeats for all sessions.
    asked_ms: u64,
    /// Time of the last successful write.
    written_ms: u64,
    pending: Option<(u64, String)>,
    acknowledged: Vec<String>,
    longest_gap_ms: u64,
    /// Number of writes with an unknown outcome.
    unclear: usize,
}

impl Deref for Disks {
    type Target = Machines;

    fn deref(&self) -> &Machines {
        &self.machines
    }
}

impl DerefMut for Disks {
    fn deref_mut(&mut self) -> &mut Machines {
        &mut self.machines
    }
}

impl Disks {
    fn start(seed: u64) -> Disks {
        let limits = Limits { session_timeout_min_ms: SESSION_MS, ..Limits::default() };
        let mut disks = Disks {
            machines: Machines::make(seed, Config { limits, ..Config::default() }),
            stalled: BTreeMap::new(),
            slower_ms: 0,
            late: Vec::new(),
            replies: BTreeMap::new(),
            calls: 0,
            sessions: Vec::new(),
            asked_ms: 0,
            written_ms: 0,
            pending: None,
            acknowledged: Vec::new(),
            longest_gap_ms: 0,
            unclear: 0,
        };
        disks.run_until_ready();
        for id in 1..=3 {
            let call = disks.ask(id, Call::Propose(open_session(7, SESSION_MS)));
            while !disks.replies.contains_key(&call) {
                disks.step();
            }
            let Some(Reply::Applied(Ok(opened))) = disks.replies.remove(&call) else { panic!("it is open") };
            disks.sessions.push(Credential { session: SessionId(opened.zxid.0), secret_hash: [7; 16] });
        }
        disks.written_ms = disks.hub.now_ms();
        disks
    }

    fn ask(&mut self, node: MachineId, call: Call) -> u64 {
        self.calls += 1;
        let door = self.hub.lock().network.presence[&node].door.clone().unwrap();
        door.calls.try_send((FIRST_CLIENT, self.calls, call)).ok().unwrap();
        self.calls
    }

    fn step(&mut self) {
        // Flushes that were made slower end at the beginning of a step, as all flushes do.
        let now_ms = self.hub.now_ms() + 1;
        let due: Vec<_> = self.late.extract_if(.., |(at_ms, ..)| *at_ms <= now_ms).collect();
        due.into_iter().for_each(|(_, node, boot)| self.flushed(node, boot));
        let Disks { machines, stalled, slower_ms, late, replies, .. } = self;
        machines.step_with(|nodes, event| match event {
            Event::Flush { node, boot } if *slower_ms > 0 => late.push((now_ms + *slower_ms, node, boot)),
            Event::Flush { node, boot } => match stalled.get_mut(&node) {
                Some(stalled) => stalled.push(boot),
                None => nodes[node as usize - 1].log.flushed(boot),
            },
            Event::Reply { id, reply, .. } => drop(replies.insert(id, reply)),
            _ => panic!("calls do not travel here"),
        });
    }

    fn flushed(&mut self, node: MachineId, boot: u64) {
        match self.stalled.get_mut(&node) {
            Some(stalled) => stalled.push(boot),
            None => self.machines.nodes[node as usize - 1].log.flushed(boot),
        }
    }

    fn stall(&mut self, node: MachineId) {
        self.stalled.insert(node, Vec::new());
    }

    fn recover(&mut self, node: MachineId) {
        let stalled = self.stalled.remove(&node).unwrap();
        stalled.into_iter().for_each(|boot| self.machines.nodes[node as usize - 1].log.flushed(boot));
    }

    /// Runs for `ms`, while clients send heartbeats for their sessions and make one write after the
    /// other.
    fn serve(&mut self, ms: u64) {
        let end = self.hub.now_ms() + ms;
        while self.hub.now_ms() < end {
            self.step();
            let now_ms = self.hub.now_ms();
            self.look_at_write(now_ms);
            if now_ms < self.asked_ms + 100 {
                continue;
            }
            self.asked_ms = now_ms;
            self.replies.retain(|_, reply| matches!(reply, Reply::Applied(_)));
            for (id, session) in (1..).zip(self.sessions.clone()) {
                // A client whose node is dead goes to the next node.
                let node = if self.nodes[id as usize - 1].runs() { id } else { id % 3 + 1 };
                self.ask(node, Call::Touch(session));
            }
            if self.pending.is_none() {
                let (name, node) = (format!("n{}", self.calls), self.calls % 3 + 1);
                if self.nodes[node as usize - 1].runs() {
                    let request = create(&name);
                    self.pending = Some((self.ask(node, Call::Propose(request)), name));
                } else {
                    self.calls += 1;
                }
            }
        }
        self.longest_gap_ms = self.longest_gap_ms.max(end - self.written_ms);
    }

    fn look_at_write(&mut self, now_ms: u64) {
        let Some((call, name)) = self.pending.take() else { return };
        match self.replies.remove(&call) {
            None => self.pending = Some((call, name)),
            Some(Reply::Applied(Ok(_))) => {
                self.longest_gap_ms = self.longest_gap_ms.max(now_ms - self.written_ms);
                self.written_ms = now_ms;
                self.acknowledged.push(name);
            }
            // The client goes to the next node.
            Some(reply) => self.unclear += usize::from(matches!(reply, Reply::Applied(Err(Error::Unknown { .. })))),
        }
    }

    fn run_until_ready(&mut self) {
        let end = self.hub.now_ms() + 60_000;
        while !self.are_ready() {
            assert!(self.hub.now_ms() < end, "not ready in a minute");
            self.step();
        }
    }

    /// Checks that all acknowledged writes and all sessions are there, and that all nodes become
    /// ready.
    fn check(&mut self) {
        self.serve(2_000);
        self.run_until_ready();
        let states: Vec<_> = self.nodes.iter().map(|node| node.replica().unwrap().state()).collect();
        assert!(!self.acknowledged.is_empty());
        for state in states {
            for session in &self.sessions {
                assert!(state.session(session.session).is_some(), "{:?} is lost", session.session);
            }
            for name in &self.acknowledged {
                assert!(state.node(&path(name)).is_some() || state.last_zxid() < self.last_zxid(), "{name} is lost");
            }
        }
    }

    fn last_zxid(&self) -> znode::Zxid {
        self.nodes.iter().map(|node| node.replica().unwrap().state().last_zxid()).max().unwrap()
    }
}

fn path(name: &str) -> ZPath {
    ZPath::parse(&format!("/{name}")).unwrap()
}

fn create(name: &str) -> Request {
    Request::new(Op::Znode(ZnodeOp::Create(Create::new(ZPath::root(), name))))
}

#[test]
fn a_leader_on_a_stalled_disk_hands_over_within_three_seconds_and_no_session_is_lost() {
    for seed in [1, 2] {
        let mut machines = Disks::start(seed);
        machines.serve(1_000);
        let (term, leader) = machines.leader().unwrap();
        machines.stall(leader);
        machines.serve(HANDED_OVER_MS);
        let (newer, successor) = machines.leader().unwrap();
        assert!(newer == term + 1 && successor != leader, "seed {seed}: {:?}", (term, leader, newer, successor));
        assert_eq!(machines.ready(leader), Some(Readiness::DiskStalled), "seed {seed}");
        for other in machines.others(leader) {
            assert_eq!(machines.ready(other), Some(Readiness::Ready), "seed {seed}");
        }
        machines.serve(17_000);
        assert_eq!(machines.leader(), Some((newer, successor)), "seed {seed}: leadership stays");
        machines.recover(leader);
        machines.check();
        assert!(machines.longest_gap_ms < HANDED_OVER_MS, "seed {seed}: {} ms", machines.longest_gap_ms);
        assert_eq!(
            machines.unclear, 0,
            "seed {seed}: who asks a node without a disk is told at once that nothing was done"
        );
        assert_eq!(machines.leader(), Some((newer, successor)), "seed {seed}: it comes back as a follower");
        machines.machines.end();
    }
}

#[test]
fn a_leader_on_a_stalled_disk_serves_on_while_there_is_no_steady_follower_to_hand_over_to() {
    for seed in [3, 4] {
        let mut machines = Disks::start(seed);
        machines.serve(1_000);
        let (term, leader) = machines.leader().unwrap();
        let follower = machines.others(leader)[0];
        machines.stall(follower);
        machines.serve(STALL_MAX_MS + 1_000);
        machines.recover(follower);
        machines.serve(4_000);
        machines.stall(leader);
        machines.serve(10_000);
        assert_eq!(machines.leader(), Some((term, leader)), "seed {seed}: no quorum of the others is steady");
        machines.serve(15_000);
        let successor = machines.leader().unwrap();
        assert!(successor.0 == term + 1 && successor.1 != leader, "seed {seed}: {successor:?}");
        machines.recover(leader);
        machines.check();
        assert!(machines.longest_gap_ms < HANDED_OVER_MS, "seed {seed}: {} ms", machines.longest_gap_ms);
        machines.machines.end();
    }
}

#[test]
fn a_leader_whose_disk_is_needed_for_a_quorum_keeps_leading_but_is_not_ready() {
    let mut machines = Disks::start(5);
    machines.serve(1_000);
    let (term, leader) = machines.leader().unwrap();
    let dead = machines.others(leader)[0];
    machines.nodes[dead as usize - 1].kill(None);
    machines.stall(leader);
    machines.serve(20_000);
    assert_eq!(machines.leader(), Some((term, leader)));
    assert_eq!(machines.ready(leader), Some(Readiness::DiskStalled));
    machines.recover(leader);
    machines.nodes[dead as usize - 1].start().unwrap();
    machines.run_until_ready();
    machines.check();
    machines.machines.end();
}

#[test]
fn a_follower_on_a_stalled_disk_is_not_ready_and_neither_stands_nor_votes() {
    let mut machines = Disks::start(6);
    machines.serve(1_000);
    let (term, leader) = machines.leader().unwrap();
    let [stalled, other] = machines.others(leader)[..] else { panic!("there are two") };
    machines.stall(stalled);
    machines.serve(STALL_MAX_MS + 500);
    assert_eq!(machines.ready(stalled), Some(Readiness::DiskStalled));
    assert_eq!(machines.leader(), Some((term, leader)), "the others have a quorum");
    machines.nodes[leader as usize - 1].kill(None);
    machines.serve(10_000);
    assert_eq!(machines.leader(), None, "the other one's vote is none without a disk");
    let known = |machines: &Disks, id: MachineId| machines.nodes[id as usize - 1].status.as_ref().unwrap().term.0;
    assert_eq!([known(&machines, stalled), known(&machines, other)], [term, term], "neither stood");
    machines.recover(stalled);
    machines.serve(3_000);
    assert!(machines.leader().is_some_and(|(newer, _)| newer > term), "{:?}", machines.leader());
    machines.nodes[leader as usize - 1].start().unwrap();
    machines.run_until_ready();
    machines.check();
    machines.machines.end();
}

#[test]
fn where_every_disk_is_slower_than_the_bound_leadership_does_not_go_round() {
    let mut machines = Disks::start(7);
    machines.serve(1_000);
    let before = machines.leader().unwrap();
    for slower_ms in [STALL_MAX_MS - 100, STALL_MAX_MS + 300, 3 * STALL_MAX_MS] {
        machines.slower_ms = slower_ms;
        machines.serve(12_000);
        assert_eq!(machines.leader(), Some(before), "flushes of {slower_ms} ms");
    }
    machines.slower_ms = 0;
    machines.serve(10_000);
    machines.run_until_ready();
    machines.check();
    assert_eq!(machines.leader(), Some(before));
    machines.machines.end();
}

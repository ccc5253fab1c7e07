//! Tests of failovers on machines without clients: the time until a new leader, and faults after
//! which the leader stays.

use replica::{Config, Readiness};
use sim::dialing;
use sim::hub::{Event, Hub};
use sim::machine::{Clock, Node, Stepped};
use sim::network::MachineId;
use sim::trace::Detail;
use znode::{ClientInfo, Op, Request};

/// Length of the leader's lease in milliseconds, with the default configuration: half of the
/// shortest election timeout.
const LEASE_MS: u64 = 250;
const ELECTION_MIN_MS: u64 = 500;
const HEARTBEAT_MS: u64 = 60;
/// Tolerance of measured times in milliseconds, for the network's delay and the length of a step of
/// the simulation.
const LEEWAY_MS: u64 = 30;
/// Longest time from the end of the lease to the election of a leader: a safety margin, the pauses
/// between the followers' requests for votes, the votes themselves, and their flushes to disk.
const ELECTION_MS: u64 = 70;

/// Three nodes without clients.
pub(crate) struct Machines {
    pub(crate) hub: Hub,
    pub(crate) nodes: Vec<Node>,
    /// Nodes that have ended by themselves, with their reasons; `None` if no node may end.
    pub(crate) ended: Option<Vec<(MachineId, String)>>,
}

impl Machines {
    pub(crate) fn start(seed: u64) -> Machines {
        let mut machines = Machines::make(seed, Config::default());
        machines.run_until_ready();
        machines
    }

    /// Starts three nodes with a configuration, without waiting until they are ready.
    pub(crate) fn make(seed: u64, config: Config) -> Machines {
        Machines::make_each(seed, |_| config.clone())
    }

    /// Starts three nodes, each with its own configuration, without waiting until they are ready.
    fn make_each(seed: u64, config: impl Fn(MachineId) -> Config) -> Machines {
        storage::seed_random(Some(seed));
        let hub = Hub::new(seed, Detail::Last);
        hub.lock().network.calm();
        let clock = Clock { rate: Clock::TRUE_RATE, ahead_ms: 0 };
        let node = |id| {
            let config = Config { members: Node::members(3), ..config(id) };
            Node::new(hub.clone(), id, config, clock, 1)
        };
        let mut machines = Machines { nodes: (1..=3).map(node).collect(), hub, ended: None };
        machines.nodes.iter_mut().for_each(|node| node.start().unwrap());
        machines
    }

    pub(crate) fn step(&mut self) {
        self.step_with(|nodes, event| match event {
            Event::Flush { node, boot } => nodes[node as usize - 1].log.flushed(boot),
            _ => panic!("there are no clients"),
        });
    }

    /// Plays a step like [`Machines::step`], but passes the ends of disk flushes and the answers to
    /// clients to `act`.
    pub(crate) fn step_with(&mut self, mut act: impl FnMut(&mut [Node], Event)) {
        self.hub.pass_step();
        while let Some(event) = dialing::next_event(&self.hub) {
            act(&mut self.nodes, event);
        }
        for node in &mut self.nodes {
            match (node.step(), &mut self.ended) {
                (Stepped::Ran | Stepped::Down, _) => {}
                (Stepped::Failed(why), Some(ended)) => {
                    ended.push((node.id, why));
                    node.kill(None);
                }
                _ => panic!("node {} has ended", node.id),
            }
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.hub.now_ms() + ms;
        while self.hub.now_ms() < end {
            self.step();
        }
    }

    /// Runs until every node is ready, which means that all know the same leader.
    pub(crate) fn run_until_ready(&mut self) {
        let end = self.hub.now_ms() + 60_000;
        while !self.are_ready() {
            assert!(self.hub.now_ms() < end, "not ready in a minute");
            self.step();
        }
    }

    pub(crate) fn are_ready(&self) -> bool {
        (1..=3).all(|id| self.ready(id) == Some(Readiness::Ready))
    }

    pub(crate) fn ready(&self, id: MachineId) -> Option<Readiness> {
        self.nodes[id as usize - 1].status.as_ref().map(|status| status.ready)
    }

    /// The latest term in which a node leads, and that node; `None` without a leader.
    pub(crate) fn leader(&self) -> Option<(u64, MachineId)> {
        let term = |node: &Node| node.status.as_ref().map_or(0, |status| status.term.0);
        self.nodes.iter().filter(|node| node.leads()).map(|node| (term(node), node.id)).max()
    }

    pub(crate) fn others(&self, than: MachineId) -> Vec<MachineId> {
        (1..=3).filter(|id| *id != than).collect()
    }

    fn terms(&self) -> Vec<u64> {
        self.nodes.iter().filter_map(|node| node.status.as_ref().map(|status| status.term.0)).collect()
    }

    pub(crate) fn node(&mut self, id: MachineId) -> &mut Node {
        &mut self.nodes[id as usize - 1]
    }

    /// Kills the leader after `after_ms`. With `power`, the whole machine loses power, and
    /// `power`/256 of its unflushed data stays. Returns the time until another node leads.
    /// Afterwards all nodes run again.
    fn kill_leader(&mut self, after_ms: u64, power: Option<u8>) -> u64 {
        self.run(after_ms);
        let (term, leader) = self.leader().unwrap();
        let killed_ms = self.hub.now_ms();
        self.node(leader).kill(power);
        while self.leader().is_none_or(|(newer, _)| newer == term) {
            assert!(self.hub.now_ms() < killed_ms + 60_000, "nobody leads a minute later");
            self.step();
        }
        let took_ms = self.hub.now_ms() - killed_ms;
        self.node(leader).start().unwrap();
        self.run_until_ready();
        took_ms
    }

    /// Ends all connections between two machines, so that both notice.
    fn break_between(&mut self, one: MachineId, other: MachineId) {
        self.hub.lock().break_connections(|machines| machines.contains(&one) && machines.contains(&other));
    }

    /// Drops nodes, events and network in an order in which no task uses a dropped part.
    pub(crate) fn end(mut self) {
        self.nodes.clear();
        while let Some(event) = self.hub.any() {
            drop(event);
        }
        self.hub.lock().network.presence.clear();
        storage::seed_random(None);
    }
}

/// Returns a request to open a session. Sessions are told apart by their secrets.
pub(crate) fn open_session(secret: u8, timeout_ms: u32) -> Request {
    let (label, client) = (String::new(), ClientInfo::default());
    Request::new(Op::OpenSession { secret_hash: [secret; 16], timeout_ms, label, address: None, client })
}

/// Kills the leader nine times, at different moments between two heartbeats; `power` as in
/// [`Machines::kill_leader`]. Returns the times until the next leader, sorted.
fn kills(seed: u64, power: Option<u8>) -> Vec<u64> {
    let mut machines = Machines::start(seed);
    let mut took: Vec<u64> = (0..9).map(|kill| machines.kill_leader(500 + 13 * kill, power)).collect();
    machines.end();
    took.sort_unstable();
    took
}

#[test]
fn a_leader_whose_process_ends_is_followed_as_soon_as_the_lease_is_over() {
    let took = kills(1, None);
    // At the kill, the last heartbeat of the leader is between zero and one heartbeat interval old.
    assert!(took[0] + HEARTBEAT_MS + LEEWAY_MS >= LEASE_MS, "the lease was cut short: {took:?}");
    // The median counts, because a few packets in a hundred take long.
    assert!(took[took.len() / 2] <= LEASE_MS + ELECTION_MS, "{took:?}");
}

#[test]
fn a_leader_that_goes_without_a_word_has_the_whole_timeout() {
    let took = kills(2, Some(255));
    assert!(took[0] + HEARTBEAT_MS + LEEWAY_MS >= ELECTION_MIN_MS, "{took:?}");
}

#[test]
fn connections_that_end_again_and_again_depose_nobody() {
    let mut machines = Machines::start(3);
    let (term, leader) = machines.leader().unwrap();
    let others = machines.others(leader);
    for round in 0..60 {
        machines.break_between(leader, others[round % 2]);
        if round % 3 == 0 {
            machines.break_between(leader, others[(round + 1) % 2]);
        }
        machines.run(97);
        assert_eq!((machines.leader(), machines.terms()), (Some((term, leader)), vec![term; 3]), "round {round}");
    }
    machines.end();
}

#[test]
fn a_drained_node_does_not_lead_although_it_is_preferred() {
    let preferred = |id| Config { leader_priority: if id == 1 { 100 } else { 50 }, ..Config::default() };
    let mut machines = Machines::make_each(5, preferred);
    machines.run_until_ready();
    // Another voter is preferred to a leader once it has been nearly up to date for ten seconds.
    machines.run(15_000);
    assert_eq!(machines.leader().map(|(_, leader)| leader), Some(1));
    machines.node(1).drain(true);
    machines.run(2_000);
    let (term, leader) = machines.leader().unwrap();
    assert_ne!(leader, 1);
    machines.run(60_000);
    assert_eq!(machines.leader(), Some((term, leader)));
    machines.end();
}

#[test]
fn a_follower_that_alone_cannot_be_reached_by_the_leader_moves_no_term() {
    let mut machines = Machines::start(4);
    let (term, leader) = machines.leader().unwrap();
    let alone = machines.others(leader)[0];
    {
        let mut shared = machines.hub.lock();
        shared.network.cut(leader, alone);
        shared.network.cut(alone, leader);
    }
    machines.break_between(leader, alone);
    machines.run(5_000);
    assert_ne!(machines.ready(alone), Some(Readiness::Ready), "it hears nobody");
    assert_eq!((machines.leader(), machines.terms()), (Some((term, leader)), vec![term; 3]));
    machines.hub.lock().heal();
    machines.run_until_ready();
    machines.run(1_000);
    assert_eq!((machines.leader(), machines.terms()), (Some((term, leader)), vec![term; 3]));
    machines.end();
}

/// Returns the lifetime of a session with a timeout of 4 s that gets no heartbeats. Meanwhile
/// leadership is transferred six times, every 900 ms.
fn outlives_hand_overs() -> u64 {
    let mut machines = Machines::start(5);
    let (_, leader) = machines.leader().unwrap();
    machines.node(leader).propose(open_session(7, 4_000));
    let there = |machines: &Machines| machines.nodes[0].replica().unwrap().state().session_count() > 0;
    let asked_ms = machines.hub.now_ms();
    while !there(&machines) {
        assert!(machines.hub.now_ms() < asked_ms + 5_000, "it is not opened");
        machines.step();
    }
    let opened_ms = machines.hub.now_ms();
    let mut hand_overs = (1..=6).map(|turn| opened_ms + 900 * turn).peekable();
    while there(&machines) {
        assert!(machines.hub.now_ms() < opened_ms + 60_000, "it is never expired");
        if let Some((_, leader)) = machines.leader()
            && hand_overs.next_if(|at_ms| *at_ms <= machines.hub.now_ms()).is_some()
        {
            machines.node(leader).hand_over();
        }
        machines.step();
    }
    let lived_ms = machines.hub.now_ms() - opened_ms;
    machines.end();
    lived_ms
}

#[test]
fn hand_overs_prolong_no_session() {
    let lived_ms = outlives_hand_overs();
    // Each hand-over adds to the session's life the time in which no leader took heartbeats.
    assert!((4_000..6_000).contains(&lived_ms), "{lived_ms} ms");
}

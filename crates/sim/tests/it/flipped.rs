//! Tests of an entry that is damaged on its way to one node, on machines without other faults. The
//! node must find within a second that its state differs, and end.

use replica::Readiness;
use sim::hub::MachineId;
use znode::{Create, Op, Request, ZPath, ZnodeOp};

use crate::failover::Machines;

/// Longest time in milliseconds from the damage in a node's state to the end of the node.
const FOUND_MS: u64 = 1_000;
const RIGHT: &[u8] = b"right";

fn path() -> ZPath {
    ZPath::parse("/value").unwrap()
}

/// Runs until the condition is true, for at most `ms`.
#[track_caller]
fn run_until(machines: &mut Machines, ms: u64, what: &str, is_true: impl Fn(&Machines) -> bool) {
    let end = machines.hub.now_ms() + ms;
    while !is_true(machines) {
        assert!(machines.hub.now_ms() < end, "not within {ms} ms: {what}");
        machines.step();
    }
}

fn data(machines: &Machines, id: MachineId) -> Option<Vec<u8>> {
    let state = machines.nodes[id as usize - 1].replica()?.state();
    state.node(&path()).map(|znode| znode.data().to_vec())
}

/// Three nodes, with the leader and a follower in whose state the value is damaged.
fn with_a_flip(seed: u64) -> (Machines, MachineId, MachineId) {
    let mut machines = Machines::start(seed);
    machines.ended = Some(Vec::new());
    let (_, leader) = machines.leader().unwrap();
    let follower = machines.others(leader)[seed as usize % 2];
    machines.node(follower).log.flip(RIGHT);
    let create = Create { data: RIGHT.into(), ..Create::new(ZPath::root(), "value") };
    machines.node(leader).propose(Request::new(Op::Znode(ZnodeOp::Create(create))));
    run_until(&mut machines, 5_000, "the follower applies the damaged entry", |machines| {
        data(machines, follower).is_some()
    });
    assert_eq!(data(&machines, follower).unwrap()[0], RIGHT[0] ^ 1, "seed {seed}");
    (machines, leader, follower)
}

#[track_caller]
fn ends(machines: &mut Machines, id: MachineId) {
    run_until(machines, FOUND_MS, "the node whose state differs ends", |machines| {
        !machines.ended.as_ref().unwrap().is_empty()
    });
    let ended = machines.ended.take().unwrap();
    let [(node, why)] = &ended[..] else { panic!("{ended:?}") };
    assert!(*node == id && why.contains("differs from that of the majority"), "node {node}: {why}");
}

#[track_caller]
fn others_serve(machines: &mut Machines, id: MachineId) {
    let others = machines.others(id);
    run_until(machines, 5_000, "the other nodes serve the right value", |machines| {
        others.iter().all(|other| {
            machines.ready(*other) == Some(Readiness::Ready) && data(machines, *other).as_deref() == Some(RIGHT)
        })
    });
}

#[test]
fn a_flipped_bit_in_an_entry_ends_the_node_within_a_second() {
    for seed in 0..20 {
        let (mut machines, _, flipped) = with_a_flip(seed);
        ends(&mut machines, flipped);
        others_serve(&mut machines, flipped);
        machines.end();
    }
}

/// The leader dies before the states are compared, so that each of the two other nodes may lead.
#[test]
fn two_that_differ_serve_nothing_before_a_third_is_back() {
    for seed in 0..20 {
        let (mut machines, leader, flipped) = with_a_flip(seed);
        machines.node(leader).kill(None);
        let left = machines.others(leader);
        let serve = |machines: &Machines, id: MachineId| {
            machines.nodes[id as usize - 1].replica().is_some_and(replica::Replica::serves)
        };
        run_until(&mut machines, FOUND_MS, "both know that they differ", |machines| {
            left.iter().all(|id| !serve(machines, *id))
        });
        run_until(&mut machines, 10_000, "a leader is elected, which is not ready", |machines| {
            machines.leader().is_some() && left.iter().all(|id| machines.ready(*id) == Some(Readiness::Divided))
        });
        assert!(left.iter().all(|id| !serve(&machines, *id)), "seed {seed}");
        machines.node(leader).start().unwrap();
        run_until(&mut machines, 10_000, "the node with the right state is back", |machines| {
            data(machines, leader).is_some()
        });
        ends(&mut machines, flipped);
        others_serve(&mut machines, flipped);
        machines.end();
    }
}

//! Tests of a bit that flips in the log or in the state of one node, on machines without other
//! faults. The node must find that its state differs, and end.

use openraft::EntryPayload;
use replica::{Config, Readiness};
use sim::network::MachineId;
use storage::{Identity, SnapshotMeta, StoredMembership};
use znode::{Create, Op, Request, ZPath, ZnodeOp};

use crate::failover::Machines;

/// Longest time in milliseconds from the damage in a node's state to the end of the node.
const FOUND_MS: u64 = 1_000;
/// Time of a round of the scrub, in milliseconds.
const ROUND_MS: u64 = 3_000;
const RIGHT: &[u8] = b"right";
/// The identity in the ACL of each znode of these tests.
const ANYONE: &[u8] = b"anyone";

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

fn create(name: String, data: &[u8]) -> ZnodeOp {
    ZnodeOp::Create(Create { data: data.into(), ..Create::new(ZPath::root(), name) })
}

/// Three nodes, with the leader and a follower in whose state the value is damaged.
fn with_a_flip(seed: u64) -> (Machines, MachineId, MachineId) {
    let mut machines = Machines::start(seed);
    machines.ended = Some(Vec::new());
    let (_, leader) = machines.leader().unwrap();
    let follower = machines.others(leader)[seed as usize % 2];
    machines.node(follower).log.flip(RIGHT);
    machines.node(leader).propose(Request::new(Op::Znode(create("value".into(), RIGHT))));
    run_until(&mut machines, 5_000, "the follower applies the damaged entry", |machines| {
        data(machines, follower).is_some()
    });
    assert_eq!(data(&machines, follower).unwrap()[0], RIGHT[0] ^ 1, "seed {seed}");
    (machines, leader, follower)
}

/// Three nodes with 301 znodes, with the leader and a follower. In the follower's state, a bit of
/// `text` in the record of the value is flipped, and no entry has shown that.
fn with_a_damaged_record(seed: u64, text: &[u8], scrub_round_ms: u64) -> (Machines, MachineId, MachineId) {
    let mut machines = Machines::make(seed, Config { scrub_round_ms, ..Config::default() });
    machines.run_until_ready();
    machines.ended = Some(Vec::new());
    let (_, leader) = machines.leader().unwrap();
    let follower = machines.others(leader)[seed as usize % 2];
    let mut ops: Vec<ZnodeOp> = (0..300).map(|number| create(format!("n{number}"), &[7; 100])).collect();
    ops.push(create("value".into(), RIGHT));
    for part in ops.chunks(100) {
        machines.node(leader).propose(Request::new(Op::Multi(part.into())));
    }
    run_until(&mut machines, 5_000, "all nodes have the value", |machines| {
        (1..=3).all(|id| data(machines, id).is_some())
    });
    damage(&mut machines, follower, text);
    run_until(&mut machines, 10_000, "the follower is back", |machines| data(machines, follower).is_some());
    (machines, leader, follower)
}

/// Kills a node, and starts it from a snapshot of its state in which a bit of the record of the
/// value is flipped. All checksums are right.
fn damage(machines: &mut Machines, id: MachineId, text: &[u8]) {
    let node = machines.node(id);
    let state = node.replica().unwrap().state();
    node.kill(None);
    let last = state.last_zxid().0 - state.cluster().unwrap().founding().zxid_base;
    let entries: Vec<_> = (0..=last).map(|index| node.log.archived(index).unwrap().entry).collect();
    let last_membership = entries.iter().rev().find_map(|entry| match &entry.payload {
        EntryPayload::Membership(membership) => Some(StoredMembership::new(Some(entry.log_id), membership.clone())),
        _ => None,
    });
    let last_log_id = entries.last().map(|entry| entry.log_id);
    let identity = Identity { cluster_id: Config::default().cluster_id, node_id: id };
    let mut writer = node.disk.open(identity).unwrap().snapshots.writer().unwrap();
    for mut record in state.records() {
        let find = |text: &[u8]| record.windows(text.len()).position(|part| part == text);
        if let (Some(_), Some(at)) = (find(b"/value"), find(text)) {
            record[at] ^= 1;
        }
        writer.push(&record).unwrap();
    }
    let last_membership = last_membership.unwrap();
    writer.finish(&SnapshotMeta { last_log_id, last_membership }).unwrap();
    node.start().unwrap();
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
    serve(machines, &others, RIGHT);
}

#[track_caller]
fn serve(machines: &mut Machines, nodes: &[MachineId], value: &[u8]) {
    run_until(machines, 5_000, "the nodes serve the right value", |machines| {
        nodes.iter().all(|node| {
            machines.ready(*node) == Some(Readiness::Ready) && data(machines, *node).as_deref() == Some(value)
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

/// Reads begin in each step from the damage to the end of the node.
#[test]
fn no_linearizable_read_gets_the_value_of_a_node_that_differs() {
    let mut refused = 0;
    for seed in 0..20 {
        let (mut machines, _, flipped) = with_a_flip(seed);
        let mut reads = Vec::new();
        while machines.ended.as_ref().unwrap().is_empty() {
            reads.extend(machines.node(flipped).read());
            machines.step();
            reads.retain_mut(|read| match read.try_recv() {
                Ok(Ok(_)) => panic!("seed {seed}: a read was answered"),
                Ok(Err(_)) => {
                    refused += 1;
                    false
                }
                Err(_) => true,
            });
        }
        ends(&mut machines, flipped);
        machines.end();
    }
    assert!(refused > 0, "every node ended before a read was compared");
}

/// The leader dies before the states are compared, so that each of the two other nodes may lead.
#[test]
fn two_that_differ_serve_nothing_before_a_third_is_back() {
    for seed in 0..20 {
        let (mut machines, leader, flipped) = with_a_flip(seed);
        machines.node(leader).kill(None);
        let left = machines.others(leader);
        let serves = |machines: &Machines, id: MachineId| {
            machines.nodes[id as usize - 1].replica().is_some_and(replica::Replica::serves)
        };
        run_until(&mut machines, FOUND_MS, "both know that they differ", |machines| {
            left.iter().all(|id| !serves(machines, *id))
        });
        run_until(&mut machines, 10_000, "a leader is elected, which is not ready", |machines| {
            machines.leader().is_some() && left.iter().all(|id| machines.ready(*id) == Some(Readiness::Divided))
        });
        assert!(left.iter().all(|id| !serves(&machines, *id)), "seed {seed}");
        machines.node(leader).start().unwrap();
        run_until(&mut machines, 10_000, "the node with the right state is back", |machines| {
            data(machines, leader).is_some()
        });
        ends(&mut machines, flipped);
        others_serve(&mut machines, flipped);
        machines.end();
    }
}

#[test]
fn the_scrub_finds_a_flipped_bit_that_no_entry_touches() {
    for seed in 0..20 {
        let (mut machines, _, flipped) = with_a_damaged_record(seed, RIGHT, ROUND_MS);
        run_until(&mut machines, ROUND_MS + FOUND_MS, "the scrub comes round", |machines| {
            !machines.ended.as_ref().unwrap().is_empty()
        });
        ends(&mut machines, flipped);
        others_serve(&mut machines, flipped);
        machines.end();
    }
}

/// The ACL of the value is damaged on one node, so that a set of the value is refused there.
#[test]
fn another_outcome_of_an_entry_ends_the_node_within_a_second() {
    const LATER: &[u8] = b"later";
    for seed in 0..20 {
        let hour = Config::default().scrub_round_ms;
        let (mut machines, leader, flipped) = with_a_damaged_record(seed, ANYONE, hour);
        let set = ZnodeOp::SetData { path: path(), data: LATER.into(), version: -1 };
        machines.node(leader).propose(Request::new(Op::Znode(set)));
        let others = machines.others(flipped);
        run_until(&mut machines, 5_000, "the other nodes apply the entry", |machines| {
            others.iter().any(|id| data(machines, *id).as_deref() == Some(LATER))
        });
        ends(&mut machines, flipped);
        serve(&mut machines, &others, LATER);
        machines.end();
    }
}

/// The bit flips between the leader's write of the entry to its log, and the leader's read of the
/// committed entry.
#[test]
fn a_flipped_bit_in_its_own_log_ends_the_leader_within_a_second() {
    for seed in 0..20 {
        let mut machines = Machines::start(seed);
        machines.ended = Some(Vec::new());
        let (_, leader) = machines.leader().unwrap();
        machines.node(leader).propose(Request::new(Op::Znode(create("value".into(), RIGHT))));
        run_until(&mut machines, 5_000, "the leader writes the entry", |machines| {
            machines.nodes[leader as usize - 1].log.rot(RIGHT)
        });
        assert_eq!(data(&machines, leader), None, "seed {seed}: the entry was applied before the damage");
        run_until(&mut machines, 5_000, "the leader applies the entry", |machines| data(machines, leader).is_some());
        assert_eq!(data(&machines, leader).unwrap()[0], RIGHT[0] ^ 1, "seed {seed}");
        ends(&mut machines, leader);
        others_serve(&mut machines, leader);
        machines.end();
    }
}

/// A follower loses its disk, and the leader sends it a snapshot.
#[test]
fn a_snapshot_with_a_flipped_bit_is_refused_and_sent_again() {
    for seed in 0..20 {
        let config = Config { snapshot_log_entries: 20, log_entries_kept: 0, ..Config::default() };
        let mut machines = Machines::make(seed, config);
        machines.run_until_ready();
        let (_, leader) = machines.leader().unwrap();
        let follower = machines.others(leader)[seed as usize % 2];
        machines.node(leader).propose(Request::new(Op::Znode(create("value".into(), RIGHT))));
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..60 {
            let noise: Vec<u8> = (0..500).map(|_| random.u8(..)).collect();
            machines.node(leader).propose(Request::new(Op::Znode(create(format!("n{number}"), &noise))));
        }
        run_until(&mut machines, 10_000, "the leader purges its log", |machines| {
            machines.nodes[leader as usize - 1].status.as_ref().is_some_and(|status| status.purged.0 > 0)
        });
        // Otherwise the damage could hit entries that are still sent.
        let last = ZPath::parse("/n59").unwrap();
        run_until(&mut machines, 10_000, "all have all entries", |machines| {
            machines.nodes.iter().all(|node| node.replica().is_some_and(|node| node.state().node(&last).is_some()))
        });
        machines.node(follower).kill(None);
        machines.node(follower).wipe();
        machines.hub.lock().network.flip(leader, follower);
        machines.node(follower).start().unwrap();
        run_until(&mut machines, 10_000, "the follower has the right value", |machines| {
            data(machines, follower).as_deref() == Some(RIGHT)
        });
        assert!(!machines.hub.lock().network.is_to_flip(), "seed {seed}: no snapshot was sent");
        serve(&mut machines, &[1, 2, 3], RIGHT);
        let failures = [1, 2, 3].map(|id| machines.node(id).status.as_ref().unwrap().peers.snapshot_send_failures);
        assert!(failures.iter().any(|count| *count > 0), "seed {seed}: the damage was not found");
        machines.end();
    }
}

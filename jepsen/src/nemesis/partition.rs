//! Partitions: faults by which links are cut until everything is mended.

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Scene, rules};

/// Directed links, and the value that describes them in the history.
type Links = (Vec<(u64, u64)>, Value);

/// Fault that cuts links. The function chooses them, and gets the leader's id as its second
/// argument.
pub(super) struct Cut(pub(super) fn(&mut Scene<'_>, u64) -> Links);

impl Kind for Cut {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let leader = scene.leader().await;
            let (cut, told) = (self.0)(&mut scene, leader);
            scene.set_links(rules(cut, LinkRule::CUT))?;
            Ok(told)
        })
    }
}

fn links(scene: &Scene<'_>, cut: impl Fn(u64, u64) -> bool) -> Vec<(u64, u64)> {
    scene.pairs().into_iter().filter(|(a, b)| cut(*a, *b)).collect()
}

/// Cuts the cluster into two parts, one of which has a majority.
pub(super) fn halves(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let mut all = scene.all();
    scene.rng.shuffle(&mut all);
    let (one, other) = all.split_at(all.len() / 2);
    (links(scene, |a, b| one.contains(&a) != one.contains(&b)), json!({"parts": [one, other]}))
}

/// Cuts the leader off from all other nodes.
pub(super) fn isolate_leader(scene: &mut Scene<'_>, leader: u64) -> Links {
    (links(scene, |a, b| a == leader || b == leader), json!({"leader": leader}))
}

/// Cuts links so that every node is connected to a majority, but no two nodes to the same majority.
pub(super) fn ring(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let mut ring = scene.all();
    scene.rng.shuffle(&mut ring);
    // Each node sees itself and its nearest neighbours on the ring: half of the others,
    // rounded up.
    let reach = ring.len().div_ceil(2) / 2;
    let place = |node: u64| ring.iter().position(|other| *other == node).unwrap_or(0);
    // Three nodes on a ring all see each other, so one link is cut.
    let lone = |gap: usize| ring.len() <= 3 && gap == ring.len() - 1;
    let apart = |a, b| {
        let gap = place(a).abs_diff(place(b));
        gap.min(ring.len() - gap) > reach || lone(gap)
    };
    (links(scene, apart), json!({"ring": ring}))
}

/// Cuts one node off in one direction: all links to it, or all links from it.
pub(super) fn one_way(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let (node, deaf) = (scene.one(), scene.rng.bool());
    let cut = links(scene, |a, b| node == if deaf { b } else { a });
    (cut, json!({"node": node, "is": if deaf { "deaf" } else { "dumb" }}))
}

/// Cuts one direction of one link: from the leader to a follower, from a follower to the leader, or
/// between two followers. [`one_way`] cuts one direction of all links of a node.
pub(super) fn asymmetric(scene: &mut Scene<'_>, leader: u64) -> Links {
    let mut followers = scene.others(leader);
    scene.rng.shuffle(&mut followers);
    let (from, to) = match (scene.rng.u8(..3), &followers[..]) {
        (0, [one, ..]) => (leader, *one),
        (2, [one, other, ..]) => (*one, *other),
        (_, [one, ..]) => (*one, leader),
        // One node has no links.
        _ => (leader, leader),
    };
    (links(scene, |a, b| (a, b) == (from, to)), json!({"leader": leader, "deaf": to, "to": from}))
}

//! The network falls apart.

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Scene, rules};

/// Two parts, of which one has a majority.
pub(super) struct Halves;

impl Kind for Halves {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let mut all = scene.all();
            scene.rng.shuffle(&mut all);
            let (one, other) = all.split_at(all.len() / 2);
            let crosses = |(a, b): &(u64, u64)| one.contains(a) != one.contains(b);
            let cut = scene.pairs().into_iter().filter(crosses);
            scene.set_links(rules(cut, LinkRule::CUT))?;
            Ok(json!({"parts": [one, other]}))
        })
    }
}

/// The leader is cut off from all others.
pub(super) struct IsolateLeader;

impl Kind for IsolateLeader {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let leader = scene.leader().await;
            let cut = scene.pairs().into_iter().filter(|(a, b)| *a == leader || *b == leader);
            scene.set_links(rules(cut, LinkRule::CUT))?;
            Ok(json!({"leader": leader}))
        })
    }
}

/// Every node sees a majority, but no two the same.
pub(super) struct Ring;

impl Kind for Ring {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let mut ring = scene.all();
            scene.rng.shuffle(&mut ring);
            // On a ring each node sees its neighbours: itself and half of the others, rounded up.
            let reach = ring.len().div_ceil(2) / 2;
            let place = |node: u64| ring.iter().position(|other| *other == node).unwrap_or(0);
            let apart = |(a, b): &(u64, u64)| {
                let gap = place(*a).abs_diff(place(*b));
                gap.min(ring.len() - gap) > reach
            };
            // Three nodes on a ring all see each other: one link goes.
            let lone = (ring[0], ring[ring.len() - 1]);
            let is_lone = |(a, b): &(u64, u64)| ring.len() <= 3 && [(*a, *b), (*b, *a)].contains(&lone);
            let cut = scene.pairs().into_iter().filter(|link| apart(link) || is_lone(link));
            scene.set_links(rules(cut, LinkRule::CUT))?;
            Ok(json!({"ring": ring}))
        })
    }
}

/// One node is heard by none but hears all, or hears none but is heard.
pub(super) struct OneWay;

impl Kind for OneWay {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let (node, deaf) = (scene.one(), scene.rng.bool());
            let blocked = |(a, b): &(u64, u64)| if deaf { *b == node } else { *a == node };
            let cut = scene.pairs().into_iter().filter(blocked);
            scene.set_links(rules(cut, LinkRule::CUT))?;
            Ok(json!({"node": node, "is": if deaf { "deaf" } else { "dumb" }}))
        })
    }
}

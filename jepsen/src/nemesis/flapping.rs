//! Fault of links that go down and up again and again.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Outcome, Scene, between, rules};

/// Fault by which links go down or up every 10 to 500 ms: one direction of a link, both directions,
/// or all links of a node.
#[derive(Default)]
pub(super) struct Flapping {
    links: Vec<(u64, u64)>,
    down: bool,
    times_down: u64,
}

impl Flapping {
    fn flap(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.down = !self.down;
        self.times_down += u64::from(self.down);
        let cut = if self.down { self.links.clone() } else { Vec::new() };
        scene.set_links(rules(cut, LinkRule::CUT))?;
        // Short times are as likely as long ones.
        let high = scene.rng.choice([30, 120, 500]).unwrap_or(500);
        Ok(Some(between(scene.rng, 10, high)))
    }
}

impl Kind for Flapping {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let node = if scene.rng.bool() { scene.leader().await } else { scene.one() };
            let others = scene.others(node);
            let Some(peer) = scene.rng.choice(&others).copied() else { return Err("one node has no links".into()) };
            let (links, told) = match scene.rng.u8(..4) {
                0 => (vec![(node, peer)], json!({"from": node, "to": peer})),
                1 => (vec![(peer, node)], json!({"from": peer, "to": node})),
                2 => (vec![(node, peer), (peer, node)], json!({"between": [node, peer]})),
                _ => {
                    let all = scene.pairs().into_iter().filter(|(a, b)| *a == node || *b == node);
                    (all.collect(), json!({"node": node}))
                }
            };
            self.links = links;
            self.flap(scene)?;
            Ok(told)
        })
    }

    fn go_on<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move { self.flap(scene) })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let times = self.times_down;
        // A link that went down once has not flapped.
        let outcome = Outcome {
            made: times > 1,
            told: json!({"times_down": times}),
            figures: vec![("links-went-down", times)],
            ..Outcome::default()
        };
        Box::pin(async move { Ok(outcome) })
    }
}

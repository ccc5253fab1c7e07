//! One node hears another and is not heard by it.

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Scene, rules};

/// One direction of one link is cut: from the leader to a follower, back, or between two followers
/// where there are two. `one-way` does the same to one node and all others.
pub(super) struct Asymmetric;

impl Kind for Asymmetric {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let leader = scene.leader().await;
            let mut followers = scene.others(leader);
            scene.rng.shuffle(&mut followers);
            let Some(one) = followers.first().copied() else { return Err("one node has no links".into()) };
            let (from, to) = match (scene.rng.u8(..3), followers.get(1)) {
                (0, _) => (leader, one),
                (2, Some(other)) => (one, *other),
                _ => (one, leader),
            };
            scene.set_links(rules([(from, to)], LinkRule::CUT))?;
            Ok(json!({"leader": leader, "deaf": to, "to": from}))
        })
    }
}

//! Faults of all links at once.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Scene, rules};
use crate::cluster::{LOSS_PERCENT, Network};

/// Fault that delays messages on all links by tens of milliseconds, which vary.
pub(super) struct Slow;

impl Kind for Slow {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let delay = Duration::from_millis(scene.rng.u64(5..60));
            let all = scene.pairs();
            scene.set_links(rules(all, LinkRule { delay, jitter: delay, ..LinkRule::PASS }))?;
            Ok(json!({"delay_ms": delay.as_millis() as u64}))
        })
    }
}

/// Fault by which packets on all links are lost; with proxies, connections break again and again.
pub(super) struct Loss;

impl Kind for Loss {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let rule = LinkRule { break_one_in: 20, ..LinkRule::PASS };
            let all = scene.pairs();
            scene.set_links(rules(all, rule))?;
            Ok(match &scene.cluster.network {
                Network::Namespaces(_) => json!({"packets_dropped_percent": LOSS_PERCENT}),
                Network::Proxies(..) => json!({"connection_breaks_one_read_in": rule.break_one_in}),
            })
        })
    }
}

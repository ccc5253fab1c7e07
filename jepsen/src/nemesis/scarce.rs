//! Fault of nodes with too little memory or processor time.

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Outcome, Scene, Whom};
use crate::cluster::cgroup::Resource;

/// Bytes of memory that a node may use beyond its memory at the beginning of the fault. The kernel
/// first evicts cached file pages, and in the end kills the node.
const MEMORY_LEFT: std::ops::RangeInclusive<u64> = 32 << 10..=768 << 10;
/// Microseconds of processor time that a node gets in every 100 ms.
const CPU_QUOTA: std::ops::RangeInclusive<u64> = 1_000..=4_000;

/// Fault by which the leader or a random node is short of a resource until the nemesis undoes all
/// faults.
pub(super) struct Scarce {
    pub(super) resource: Resource,
    pub(super) node: u64,
}

impl Kind for Scarce {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let whom = if scene.rng.bool() { Whom::Leader } else { Whom::One };
            self.node = scene.choose(whom).await.first().copied().unwrap_or(1);
            let amount = scene.rng.u64(match self.resource {
                Resource::Memory => MEMORY_LEFT,
                Resource::Cpu => CPU_QUOTA,
            });
            let node = scene.cluster.node(self.node);
            if node.runs() {
                let starved = node.starve(self.resource, amount);
                starved.map_err(|error| format!("control group of node {}: {error}", self.node))?;
            }
            Ok(json!({"node": self.node, "amount": amount}))
        })
    }

    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(async move {
            let met = scene.cluster.node(self.node).bound_met();
            let met = met.map_err(|error| format!("control group of node {}: {error}", self.node))?;
            let figure = match self.resource {
                Resource::Memory => "memory-bound-met",
                Resource::Cpu => "throttled-periods",
            };
            let told = json!({figure: met});
            Ok(Outcome { made: met > 0, told, figures: vec![(figure, met)], ..Outcome::default() })
        })
    }
}

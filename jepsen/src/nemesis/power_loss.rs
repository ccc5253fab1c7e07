//! Fault of losses of power.

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Outcome, Scene};

/// Fault by which one node or all nodes lose power, and with it data that they had not fsynced.
#[derive(Default)]
pub(super) struct PowerLoss {
    /// Number of nodes that lost power while they had an unfinished snapshot.
    among_snapshots: u64,
}

impl Kind for PowerLoss {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let one = scene.one();
            let ids = if scene.rng.bool() { scene.all() } else { vec![one] };
            for id in &ids {
                scene.cluster.kill(*id);
            }
            let mut lost = Vec::new();
            for id in &ids {
                let seed = scene.rng.u64(..);
                self.among_snapshots += u64::from(scene.cluster.node(*id).has_unfinished_snapshot());
                let cut = scene.cluster.lose_power(*id, seed).map_err(|error| format!("disk of node {id}: {error}"))?;
                lost.push(
                    json!({"node": id, "pages": [cut.pages_kept, cut.pages_lost], "names": [cut.names_kept, cut.names_lost]}),
                );
            }
            Ok(json!({"nodes": ids, "kept_and_lost": lost}))
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let figures = vec![("power-lost-among-snapshots", self.among_snapshots)];
        Box::pin(async move { Ok(Outcome { figures, ..Outcome::default() }) })
    }
}

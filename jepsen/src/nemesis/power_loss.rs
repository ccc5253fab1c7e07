//! Fault of losses of power.

use power_disk::Cut;
use serde_json::{Value, json};

use super::kind::{Doing, Kind, Outcome, Scene};

/// Fault by which one node or all nodes lose power, and with it data that they had not fsynced.
#[derive(Default)]
pub(super) struct PowerLoss {
    /// Number of nodes that lost power.
    nodes: u64,
    /// Number of nodes that lost power while they had an unfinished snapshot.
    among_snapshots: u64,
    /// Sums of the unsynced pages and names that the disks have lost and kept.
    cut: Cut,
}

impl Kind for PowerLoss {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let one = scene.one();
            let ids = if scene.rng.bool() { scene.all() } else { vec![one] };
            for id in &ids {
                scene.cluster.node(*id).kill();
            }
            let mut lost = Vec::new();
            for id in &ids {
                let seed = scene.rng.u64(..);
                let node = scene.cluster.node(*id);
                self.among_snapshots += u64::from(node.has_unfinished_snapshot());
                let cut = node.own_disk()?.lose_power(seed);
                self.nodes += 1;
                self.cut.pages_kept += cut.pages_kept;
                self.cut.pages_lost += cut.pages_lost;
                self.cut.names_kept += cut.names_kept;
                self.cut.names_lost += cut.names_lost;
                lost.push(
                    json!({"node": id, "pages": [cut.pages_kept, cut.pages_lost], "names": [cut.names_kept, cut.names_lost]}),
                );
            }
            Ok(json!({"nodes": ids, "kept_and_lost": lost}))
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let figures = vec![
            ("node-power-losses", self.nodes),
            ("power-lost-among-snapshots", self.among_snapshots),
            ("unsynced-pages-kept", self.cut.pages_kept),
            ("unsynced-pages-lost", self.cut.pages_lost),
            ("unsynced-names-kept", self.cut.names_kept),
            ("unsynced-names-lost", self.cut.names_lost),
        ];
        let made = self.cut.pages_lost + self.cut.names_lost > 0;
        Box::pin(async move { Ok(Outcome { made, figures, ..Outcome::default() }) })
    }
}

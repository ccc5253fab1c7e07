//! Fault of a disk that is full or that loses writes.

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Scene};
use crate::cluster::{Breakage, disk};

/// Fault that breaks the disk of a random node, in the way that the [`Breakage`] says, until the
/// nemesis undoes all faults.
pub(super) struct BrokenDisk(pub(super) Breakage);

impl Kind for BrokenDisk {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let one = scene.one();
            let node = scene.cluster.node(one);
            node.break_disk(self.0);
            let filled = match self.0 {
                Breakage::Full => disk::fill(&node.data_dir),
                Breakage::LosesWrites => disk::fill_below(&node.data_dir),
            };
            filled.map_err(|error| format!("disk of node {one}: {error}"))?;
            Ok(json!({"nodes": [one]}))
        })
    }
}

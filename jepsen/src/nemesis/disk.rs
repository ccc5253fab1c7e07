//! Fault of a disk that is full or that loses writes.

use power_disk::Disk;
use serde_json::{Value, json};

use super::kind::{Doing, Kind, Scene};
use crate::cluster::Breakage;

/// Fault that breaks the disk of a random node, in the way that the [`Breakage`] says, until the
/// nemesis undoes all faults.
pub(super) struct BrokenDisk(pub(super) Breakage);

impl Kind for BrokenDisk {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let one = scene.one();
            let node = scene.cluster.node(one);
            node.break_disk(self.0);
            node.own_disk()?.impair(match self.0 {
                Breakage::Full => Disk::fill,
                Breakage::LosesWrites => Disk::fail,
            });
            Ok(json!({"nodes": [one]}))
        })
    }
}

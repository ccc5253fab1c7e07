//! A node loses its data and comes back.

use serde_json::Value;

use super::kind::{Doing, Kind, Scene, nodes};

/// An empty data directory for one node.
pub(super) struct Wipe;

impl Kind for Wipe {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let one = scene.one();
            scene.cluster.kill(one)?;
            scene.cluster.node(one).wipe().map_err(|error| format!("wipe of node {one}: {error}"))?;
            scene.cluster.restart(one).map_err(|error| format!("restart of node {one}: {error}"))?;
            Ok(nodes(&[one]))
        })
    }
}

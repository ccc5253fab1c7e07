//! A node stands still.

use serde_json::Value;

use super::kind::{Doing, Kind, Scene, Whom, nodes};

/// SIGSTOP of one node, until everything is mended.
pub(super) struct Pause(pub(super) Whom);

impl Kind for Pause {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let ids = scene.choose(self.0).await;
            for id in &ids {
                scene.cluster.node(*id).pause(true);
            }
            Ok(nodes(&ids))
        })
    }
}

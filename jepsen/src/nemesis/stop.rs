//! A node is told to stop.

use serde_json::Value;

use super::kind::{Doing, Kind, Scene, Whom, nodes};

/// SIGTERM of one node, which stops cleanly.
pub(super) struct Stop(pub(super) Whom);

impl Kind for Stop {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let ids = scene.choose(self.0).await;
            for id in &ids {
                scene.cluster.stop(*id).await?;
            }
            Ok(nodes(&ids))
        })
    }
}

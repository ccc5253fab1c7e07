//! Nodes die of SIGKILL.

use serde_json::Value;

use super::kind::{Doing, Kind, Scene, Whom, nodes};

/// kill -9 of some nodes at once.
pub(super) struct Kill(pub(super) Whom);

impl Kind for Kill {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let ids = scene.choose(self.0).await;
            for id in &ids {
                scene.cluster.kill(*id)?;
            }
            Ok(nodes(&ids))
        })
    }
}

//! Faults of processes: nodes that are killed, stopped or paused, or that lose their data.

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Scene, Whom};

/// Action against one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// SIGKILL.
    Kill,
    /// SIGTERM, after which the node must stop cleanly.
    Stop,
    /// SIGSTOP, until the nemesis undoes all faults.
    Pause,
    /// SIGKILL, and a start with an empty data directory.
    Wipe,
}

/// Fault that takes an action against some nodes at once.
pub(super) struct Strike(pub(super) How, pub(super) Whom);

impl Kind for Strike {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let ids = scene.choose(self.1).await;
            for id in ids.iter().copied() {
                match self.0 {
                    How::Kill => scene.cluster.node(id).kill(),
                    How::Stop => scene.cluster.node(id).stop().await,
                    How::Pause => scene.cluster.node(id).pause(true),
                    How::Wipe => {
                        scene.cluster.node(id).kill();
                        scene.cluster.node(id).wipe().map_err(|error| format!("wipe of node {id}: {error}"))?;
                        scene.cluster.restart(id).map_err(|error| format!("restart of node {id}: {error}"))?;
                    }
                }
            }
            Ok(json!({"nodes": ids}))
        })
    }
}

//! Fault that destroys the cluster and restores it from a backup. Clients work for a while after
//! the backup. Then all nodes are killed, and this backup or an older one replaces their data.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::kind::{Doing, Kind, Outcome, Scene, between};

/// Fault that restores the cluster once.
#[derive(Default)]
pub(super) struct Restore {
    /// True once the restored cluster is ready.
    ready: bool,
    wrong: Option<String>,
}

impl Kind for Restore {
    fn begin<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let (nodes, backups) = (scene.all(), scene.cluster.backups + 1);
            let newest = scene.cluster.file(&format!("backup-{backups}"));
            scene.cluster.zlock(&["backup", "save", &newest]).await?;
            scene.cluster.backups = backups;
            sleep(between(scene.rng, 100, 2_000)).await;
            for id in nodes.iter().copied() {
                scene.cluster.node(id).kill();
            }
            let number = if scene.rng.u8(..3) == 0 { scene.rng.u64(1..=backups) } else { backups };
            let (backup, seed) = (scene.cluster.file(&format!("backup-{number}")), format!("seed-{backups}"));
            let (seed, members) = (scene.cluster.file(&seed), scene.cluster.members_option());
            scene.cluster.zlock(&["restore", "prepare", &backup, "--members", &members, "--out", &seed]).await?;
            for id in nodes.iter().copied() {
                let node = scene.cluster.node(id);
                node.wipe().map_err(|error| format!("wipe of node {id}: {error}"))?;
                let dir = node.data_dir.display().to_string();
                let number = id.to_string();
                scene.cluster.zlock(&["restore", "apply", &seed, "--node-id", &number, "--data-dir", &dir]).await?;
            }
            Ok(json!({"backup": number, "of": backups}))
        })
    }

    fn go_on<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move {
            match scene.cluster.recover().await {
                Ok(()) => self.ready = true,
                Err(error) => self.wrong = Some(format!("the restored cluster: {error}")),
            }
            Ok(None)
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let outcome = Outcome { made: self.ready, wrong: self.wrong.take(), ..Outcome::default() };
        Box::pin(async move { Ok(outcome) })
    }
}

//! Fault of an operator who replaces the certificates for TLS between nodes while clients work. One
//! node is killed and started with its new certificate. The other nodes get SIGHUP, and use their
//! new certificates for new connections.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::kind::{Doing, Kind, Outcome, Scene};

/// Longest time from SIGHUP until a node uses its new certificate, on a busy machine.
const RELOAD_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the logs of the nodes.
const PAUSE: Duration = Duration::from_millis(100);

/// Fault that replaces the certificates once.
#[derive(Default)]
pub(super) struct Rotation {
    /// Nodes that got SIGHUP, with the number of their earlier reloads.
    signalled: Vec<(u64, u64)>,
}

impl Rotation {
    /// Returns the nodes that got SIGHUP and still use their old certificates.
    fn late(&self, scene: &mut Scene<'_>) -> Vec<u64> {
        let still = self.signalled.iter().filter(|(id, earlier)| scene.cluster.node(*id).reloads() <= *earlier);
        still.map(|(id, _)| *id).collect()
    }
}

impl Kind for Rotation {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let restarted = scene.one();
            let others = scene.others(restarted);
            self.signalled = others.iter().map(|id| (*id, scene.cluster.node(*id).reloads())).collect();
            scene.cluster.make_certificates().await?;
            for id in others.iter().copied() {
                scene.cluster.node(id).hang_up().map_err(|error| format!("SIGHUP of node {id}: {error}"))?;
            }
            scene.cluster.node(restarted).kill();
            scene.cluster.restart(restarted).map_err(|error| format!("restart of node {restarted}: {error}"))?;
            Ok(json!({"restarted": restarted, "reload": others}))
        })
    }

    fn end<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(async move {
            let deadline = Instant::now() + RELOAD_MAX;
            let mut late = self.late(&mut scene);
            while !late.is_empty() && Instant::now() < deadline {
                sleep(PAUSE).await;
                late = self.late(&mut scene);
            }
            let wrong =
                format!("nodes {late:?} still use their old certificates {} s after SIGHUP", RELOAD_MAX.as_secs());
            let figures = vec![("certificates-reloaded", (self.signalled.len() - late.len()) as u64)];
            let wrong = (!late.is_empty()).then_some(wrong);
            Ok(Outcome { made: late.is_empty(), figures, wrong, ..Outcome::default() })
        })
    }
}

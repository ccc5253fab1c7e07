//! Actions of an operator: transfers of leadership, a restore from a backup, and new certificates.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::http::Call;
use tokio::time::{Instant, sleep};

use super::kind::{Kind, Outcome, Scene, between};
use crate::cluster::SUPER;
use crate::http::Http;

/// Longest time for the answer to a transfer: two elections on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Fault by which an operator transfers leadership from node to node.
#[derive(Default)]
pub(super) struct Transfer {
    done: u64,
    refused: u64,
}

impl Kind for Transfer {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.once(&mut scene).await;
        Ok(json!({}))
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.once(&mut scene).await;
        Ok(Some(between(scene.rng, 100, 1_000)))
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        let told = json!({"transferred": self.done, "refused": self.refused});
        let figures = vec![("transfers", self.done)];
        Ok(Outcome { made: self.done > 0, told, figures, wrong: None })
    }
}

impl Transfer {
    /// Asks a random node to transfer leadership to a random node. The request is refused if the
    /// new leader would be behind in its log or is not reachable.
    async fn once(&mut self, scene: &mut Scene<'_>) {
        let (asked, to) = (scene.one(), scene.one());
        let call = Call::put(format!("/v1/admin/leader?to={to}")).header("authorization", SUPER).within(ANSWER_MAX);
        let answer = Http::new(&scene.cluster.endpoints).send(asked, call).await;
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.is_ok() {
            // A transfer to the present leader changes nothing.
            true => self.done += u64::from(told["from"] != told["to"]),
            false => self.refused += 1,
        }
    }
}

/// Fault that destroys the cluster once and restores it from a backup. Clients work for a while
/// after the backup. Then all nodes are killed, and this backup or an older one replaces their
/// data.
#[derive(Default)]
pub(super) struct Restore {
    /// True once the restored cluster is ready.
    ready: bool,
    wrong: Option<String>,
}

impl Kind for Restore {
    async fn begin(&mut self, scene: Scene<'_>) -> Result<Value, String> {
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
    }

    async fn go_on(&mut self, scene: Scene<'_>) -> Result<Option<Duration>, String> {
        match scene.cluster.recover().await {
            Ok(()) => self.ready = true,
            Err(error) => self.wrong = Some(format!("the restored cluster: {error}")),
        }
        Ok(None)
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        Ok(Outcome { made: self.ready, wrong: self.wrong.take(), ..Outcome::default() })
    }
}

/// Message in the log of a node that uses new certificates.
const RELOADED: &str = "the TLS files of a port were reloaded";
/// Longest time from SIGHUP until a node uses its new certificate, on a busy machine.
const RELOAD_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the logs of the nodes.
const PAUSE: Duration = Duration::from_millis(100);

/// Fault that replaces the certificates for TLS between nodes once, while clients work. One node is
/// killed and started with its new certificate. The other nodes get SIGHUP, and use their new
/// certificates for new connections.
#[derive(Default)]
pub(super) struct Rotation {
    /// Nodes that got SIGHUP, with the number of their earlier reloads.
    signalled: Vec<(u64, u64)>,
}

impl Rotation {
    /// Returns the nodes that got SIGHUP and still use their old certificates.
    fn late(&self, scene: &mut Scene<'_>) -> Vec<u64> {
        let still = self.signalled.iter().filter(|(id, earlier)| scene.cluster.node(*id).told(RELOADED) <= *earlier);
        still.map(|(id, _)| *id).collect()
    }
}

impl Kind for Rotation {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let restarted = scene.one();
        let others = scene.others(restarted);
        self.signalled = others.iter().map(|id| (*id, scene.cluster.node(*id).told(RELOADED))).collect();
        scene.cluster.make_certificates().await?;
        for id in others.iter().copied() {
            scene.cluster.node(id).signal(Signal::HUP).map_err(|error| format!("SIGHUP of node {id}: {error}"))?;
        }
        scene.cluster.node(restarted).kill();
        scene.cluster.restart(restarted).map_err(|error| format!("restart of node {restarted}: {error}"))?;
        Ok(json!({"restarted": restarted, "reload": others}))
    }

    async fn end(&mut self, mut scene: Scene<'_>) -> Result<Outcome, String> {
        let deadline = Instant::now() + RELOAD_MAX;
        let mut late = self.late(&mut scene);
        while !late.is_empty() && Instant::now() < deadline {
            sleep(PAUSE).await;
            late = self.late(&mut scene);
        }
        let wrong = format!("nodes {late:?} still use their old certificates {} s after SIGHUP", RELOAD_MAX.as_secs());
        let figures = vec![("certificates-reloaded", (self.signalled.len() - late.len()) as u64)];
        let wrong = (!late.is_empty()).then_some(wrong);
        Ok(Outcome { made: late.is_empty(), figures, wrong, ..Outcome::default() })
    }
}

//! Faults of disks.

use std::time::Duration;

use power_disk::{Cut, Disk};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kind::{Kind, Outcome, Scene, Whom};
use crate::cluster::Breakage;

/// Fault that breaks the disk of a random node, in the way that the [`Breakage`] says, until the
/// nemesis undoes all faults.
pub(super) struct BrokenDisk(pub(super) Breakage);

impl Kind for BrokenDisk {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let one = scene.one();
        let node = scene.cluster.node(one);
        node.break_disk(self.0);
        node.own_disk()?.impair(match self.0 {
            Breakage::Full => Disk::fill,
            Breakage::LosesWrites => Disk::fail,
        });
        Ok(json!({"nodes": [one]}))
    }
}

/// Pause between two requests that ask which node leads.
const LOOK: Duration = Duration::from_millis(100);
/// Time within which a leader that reports a stalled disk must hand leadership over. The leader
/// asks its followers for up to a second whether their disks work, and again half a second later.
const HAND_OVER_MAX: Duration = Duration::from_secs(3);
/// Shortest length of the fault: enough for a write to the disk, the leader's report of the stall
/// after 2 s (`disk.stall_max`), and a change of leadership.
const LEAST: Duration = Duration::from_secs(6);
/// Time for which a follower's disk must have been sound before the follower must be able to take
/// over: ten times `disk.stall_max`, and some seconds for the writes that waited.
const RESTED: Duration = Duration::from_secs(25);

/// Fault by which every fsync of the leader hangs until the nemesis undoes all faults.
#[derive(Default)]
pub(super) struct DiskStall {
    leader: u64,
    began: Option<Instant>,
    /// Time at which the leader's `/readyz` first reported a stalled disk.
    stalls: Option<Instant>,
    /// Time at which the other nodes first reported another leader.
    handed_over: Option<Instant>,
    /// Whether the other nodes must be able to take leadership over: no other fault is under way,
    /// and their disks have been sound for [`RESTED`].
    able: bool,
}

impl Kind for DiskStall {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.leader = scene.leader().await;
        let others = scene.others(self.leader);
        let mut rested = |id: &u64| scene.cluster.node(*id).own_disk().is_ok_and(|disk| disk.rested(RESTED));
        self.able = scene.alone && others.iter().all(&mut rested);
        scene.cluster.node(self.leader).own_disk()?.impair(Disk::hang);
        self.began = Some(Instant::now());
        Ok(json!({"leader": self.leader, "must_hand_over": self.able}))
    }

    async fn go_on(&mut self, scene: Scene<'_>) -> Result<Option<Duration>, String> {
        let others = scene.others(self.leader);
        let leader = scene.cluster.leader_seen_by(&others).await;
        if leader.is_some_and(|leader| leader != self.leader) {
            self.handed_over = Some(Instant::now());
            return Ok(None);
        }
        let why = scene.cluster.not_ready(self.leader).await;
        if self.stalls.is_none() && why.is_some_and(|why| why.contains("disk-stalled")) {
            self.stalls = Some(Instant::now());
        }
        Ok(Some(LOOK))
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        let ms = |at: Option<Instant>| at.zip(self.began).map(|(at, began)| (at - began).as_millis() as u64);
        let mut able = self.able;
        for id in scene.others(self.leader) {
            able &= scene.cluster.not_ready(id).await.is_none();
        }
        let late = self.handed_over.is_none() && self.stalls.is_some_and(|at| at.elapsed() > HAND_OVER_MAX);
        let wrong = (able && late).then(|| {
            format!(
                "node {} led on for {} s after it had said that its disk stalls, and the others were ready",
                self.leader,
                HAND_OVER_MAX.as_secs()
            )
        });
        Ok(Outcome {
            made: self.stalls.is_some() || self.handed_over.is_some(),
            told: json!({"said_after_ms": ms(self.stalls), "handed_over_after_ms": ms(self.handed_over)}),
            figures: vec![("handed-over-for-a-disk", u64::from(self.handed_over.is_some()))],
            wrong,
        })
    }

    fn least(&self) -> Duration {
        LEAST
    }
}

/// Shortest time of a slow fsync, in milliseconds: that of a good spinning disk.
const SHORTEST_MS: f64 = 50.0;
/// Longest time of a slow fsync, in milliseconds: above `disk.stall_max`.
const LONGEST_MS: f64 = 3_000.0;

/// Fault by which each fsync takes 50 ms to 3 s: on the leader, on one follower, or on a majority.
#[derive(Default)]
pub(super) struct SlowDisk {
    ids: Vec<u64>,
    delayed_before: u64,
}

impl Kind for SlowDisk {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.ids = match scene.rng.u8(..3) {
            0 => scene.choose(Whom::Leader).await,
            1 => {
                let leader = scene.leader().await;
                let followers = scene.others(leader);
                scene.rng.choice(&followers).copied().into_iter().collect()
            }
            _ => scene.choose(Whom::Majority).await,
        };
        // Short delays are as likely as long ones.
        let delay_ms = SHORTEST_MS * (LONGEST_MS / SHORTEST_MS).powf(scene.rng.f64());
        let delay = Duration::from_millis(delay_ms as u64);
        for id in &self.ids {
            let disk = scene.cluster.node(*id).own_disk()?;
            self.delayed_before += disk.delayed();
            disk.impair(|disk| disk.slow(delay));
        }
        Ok(json!({"nodes": self.ids, "fsync_ms": delay.as_millis() as u64}))
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        let mut delayed = 0;
        for id in &self.ids {
            delayed += scene.cluster.node(*id).own_disk()?.delayed();
        }
        let slow = delayed - self.delayed_before;
        let told = json!({"slow_fsyncs": slow});
        Ok(Outcome { made: slow > 0, told, figures: vec![("slow-fsyncs", slow)], ..Outcome::default() })
    }
}

/// Fault by which one node or all nodes lose power, and with it data that they had not fsynced.
#[derive(Default)]
pub(super) struct PowerLoss {
    /// Number of nodes that lost power.
    nodes: u64,
    /// Number of nodes that lost power while they had an unfinished snapshot.
    among_snapshots: u64,
    /// Sums of the unsynced pages and names that the disks have lost and kept.
    cut: Cut,
}

impl Kind for PowerLoss {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let one = scene.one();
        let ids = if scene.rng.bool() { scene.all() } else { vec![one] };
        for id in &ids {
            scene.cluster.node(*id).kill();
        }
        let mut lost = Vec::new();
        for id in &ids {
            let seed = scene.rng.u64(..);
            let node = scene.cluster.node(*id);
            self.among_snapshots += u64::from(node.has_unfinished_snapshot());
            let cut = node.own_disk()?.lose_power(seed);
            self.nodes += 1;
            self.cut.pages_kept += cut.pages_kept;
            self.cut.pages_lost += cut.pages_lost;
            self.cut.names_kept += cut.names_kept;
            self.cut.names_lost += cut.names_lost;
            lost.push(
                json!({"node": id, "pages": [cut.pages_kept, cut.pages_lost], "names": [cut.names_kept, cut.names_lost]}),
            );
        }
        Ok(json!({"nodes": ids, "kept_and_lost": lost}))
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        let figures = vec![
            ("node-power-losses", self.nodes),
            ("power-lost-among-snapshots", self.among_snapshots),
            ("unsynced-pages-kept", self.cut.pages_kept),
            ("unsynced-pages-lost", self.cut.pages_lost),
            ("unsynced-names-kept", self.cut.names_kept),
            ("unsynced-names-lost", self.cut.names_lost),
        ];
        let made = self.cut.pages_lost + self.cut.names_lost > 0;
        Ok(Outcome { made, figures, ..Outcome::default() })
    }
}

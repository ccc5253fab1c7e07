//! Fault of the leader's disk: it does not answer for longer than a node tolerates.

use std::time::Duration;

use power_disk::Disk;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kind::{Doing, Kind, Outcome, Scene};

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
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            self.leader = scene.leader().await;
            let others = scene.others(self.leader);
            let mut rested = |id: &u64| scene.cluster.node(*id).own_disk().is_ok_and(|disk| disk.rested(RESTED));
            self.able = scene.alone && others.iter().all(&mut rested);
            scene.cluster.node(self.leader).own_disk()?.impair(Disk::hang);
            self.began = Some(Instant::now());
            Ok(json!({"leader": self.leader, "must_hand_over": self.able}))
        })
    }

    fn go_on<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move {
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
        })
    }

    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(async move {
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
        })
    }

    fn least(&self) -> Duration {
        LEAST
    }
}

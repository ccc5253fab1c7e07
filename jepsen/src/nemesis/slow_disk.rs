//! Fault of disks with slow fsyncs.

use std::time::Duration;

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Outcome, Scene, Whom};

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
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
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
        })
    }

    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(async move {
            let mut delayed = 0;
            for id in &self.ids {
                delayed += scene.cluster.node(*id).own_disk()?.delayed();
            }
            let slow = delayed - self.delayed_before;
            let told = json!({"slow_fsyncs": slow});
            Ok(Outcome { made: slow > 0, told, figures: vec![("slow-fsyncs", slow)], ..Outcome::default() })
        })
    }
}

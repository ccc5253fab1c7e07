//! Fault by which nodes are restarted before the lease of their leader is over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Doing, Kind, Outcome, Scene, between, rules};

/// Half of `raft.election_timeout_min`. For this time after the last message of its leader, a node
/// votes for no other candidate.
const LEASE: Duration = Duration::from_millis(250);

/// Fault that kills a follower and starts it again at once, while the leader is paused or cut off
/// for a moment. The follower must not help to elect another leader within the lease that it
/// granted before its restart. In a third of the cases the leader itself is killed and started
/// again at once.
#[derive(Default)]
pub(super) struct RestartInLease {
    /// Leader that is paused or cut off at present; `None` without one.
    silenced: Option<u64>,
    restarts: u64,
    /// Number of restarts that took less time than the lease.
    in_lease: u64,
    slowest: Duration,
}

impl RestartInLease {
    async fn strike(&mut self, scene: &mut Scene<'_>) -> Result<Value, String> {
        let leader = scene.leader().await;
        let others = scene.others(leader);
        let follower = scene.rng.choice(&others).copied().unwrap_or(leader);
        let (how, restarted) = match scene.rng.u8(..3) {
            0 => {
                scene.cluster.node(leader).pause(true);
                ("paused", follower)
            }
            1 => {
                let links = scene.pairs().into_iter().filter(|(a, b)| *a == leader || *b == leader);
                scene.set_links(rules(links, LinkRule::CUT))?;
                ("cut off", follower)
            }
            _ => ("killed", leader),
        };
        self.silenced = (restarted != leader).then_some(leader);
        let began = Instant::now();
        scene.cluster.node(restarted).kill();
        scene.cluster.restart(restarted).map_err(|error| format!("restart of node {restarted}: {error}"))?;
        let took = began.elapsed();
        self.restarts += 1;
        self.in_lease += u64::from(took < LEASE);
        self.slowest = self.slowest.max(took);
        Ok(json!({"leader": leader, "was": how, "restarted": restarted, "took_ms": took.as_millis() as u64}))
    }

    /// Resumes the paused leader, or restores its links.
    fn release(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        if let Some(leader) = self.silenced.take() {
            scene.cluster.node(leader).pause(false);
            scene.set_links(rules([], LinkRule::PASS))?;
        }
        Ok(())
    }
}

impl Kind for RestartInLease {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move { self.strike(&mut scene).await })
    }

    fn go_on<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move {
            let silenced = self.silenced.is_some();
            if silenced {
                self.release(&mut scene)?;
                return Ok(Some(between(scene.rng, 500, 2_000)));
            }
            self.strike(&mut scene).await?;
            // The pause is shorter than the lease, or longer than an election takes.
            Ok(Some(between(scene.rng, 20, 1_000)))
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let told = json!({"restarts": self.restarts, "in_lease": self.in_lease, "slowest_ms": self.slowest.as_millis() as u64});
        let outcome = Outcome {
            made: self.in_lease > 0,
            told,
            figures: vec![("restarts", self.restarts), ("restarts-within-a-lease", self.in_lease)],
            ..Outcome::default()
        };
        Box::pin(async move { Ok(outcome) })
    }
}

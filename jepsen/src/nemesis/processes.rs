//! Faults of processes: their ends, their pauses, their resources and their wall clocks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::LinkRule;

use super::kind::{Kind, Outcome, Scene, Whom, between, rules};
use crate::cluster::Clock;
use crate::cluster::cgroup::Resource;

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
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let ids = scene.choose(self.1).await;
        for id in ids.iter().copied() {
            match self.0 {
                How::Kill => scene.cluster.node(id).kill(),
                How::Stop => scene.cluster.node(id).stop().await,
                How::Pause => scene.cluster.node(id).pause(true),
                How::Wipe => {
                    scene.cluster.node(id).wipe().map_err(|error| format!("wipe of node {id}: {error}"))?;
                    scene.cluster.restart(id).map_err(|error| format!("restart of node {id}: {error}"))?;
                }
            }
        }
        Ok(json!({"nodes": ids}))
    }
}

/// Bytes of memory that a node may use beyond its memory at the beginning of the fault. The kernel
/// first evicts cached file pages, and in the end kills the node.
const MEMORY_LEFT: std::ops::RangeInclusive<u64> = 32 << 10..=768 << 10;
/// Microseconds of processor time that a node gets in every 100 ms.
const CPU_QUOTA: std::ops::RangeInclusive<u64> = 1_000..=4_000;

/// Fault by which the leader or a random node is short of a resource until the nemesis undoes all
/// faults.
pub(super) struct Scarce {
    pub(super) resource: Resource,
    pub(super) node: u64,
}

impl Kind for Scarce {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let whom = if scene.rng.bool() { Whom::Leader } else { Whom::One };
        self.node = scene.choose(whom).await.first().copied().unwrap_or(1);
        let amount = scene.rng.u64(match self.resource {
            Resource::Memory => MEMORY_LEFT,
            Resource::Cpu => CPU_QUOTA,
        });
        let node = scene.cluster.node(self.node);
        if node.runs() {
            let starved = node.starve(self.resource, amount);
            starved.map_err(|error| format!("control group of node {}: {error}", self.node))?;
        }
        Ok(json!({"node": self.node, "amount": amount}))
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        let met = scene.cluster.node(self.node).bound_met();
        let met = met.map_err(|error| format!("control group of node {}: {error}", self.node))?;
        let figure = match self.resource {
            Resource::Memory => "memory-bound-met",
            Resource::Cpu => "throttled-periods",
        };
        let told = json!({figure: met});
        Ok(Outcome { made: met > 0, told, figures: vec![(figure, met)], ..Outcome::default() })
    }
}

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
                let links = scene.links_of(leader);
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
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.strike(&mut scene).await
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        let silenced = self.silenced.is_some();
        if silenced {
            self.release(&mut scene)?;
            return Ok(Some(between(scene.rng, 500, 2_000)));
        }
        self.strike(&mut scene).await?;
        // The pause is shorter than the lease, or longer than an election takes.
        Ok(Some(between(scene.rng, 20, 1_000)))
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        let told = json!({"restarts": self.restarts, "in_lease": self.in_lease, "slowest_ms": self.slowest.as_millis() as u64});
        Ok(Outcome {
            made: self.in_lease > 0,
            told,
            figures: vec![("restarts", self.restarts), ("restarts-within-a-lease", self.in_lease)],
            ..Outcome::default()
        })
    }
}

/// Fault that sets each node's wall clock up to an hour forwards or backwards.
pub(super) struct Jumps;

impl Kind for Jumps {
    async fn begin(&mut self, scene: Scene<'_>) -> Result<Value, String> {
        let mut offsets = Vec::new();
        for node in &mut scene.cluster.nodes {
            let offset_s = scene.rng.i64(-3_600..=3_600);
            node.set_clock(Clock::offset(offset_s * 1_000)).map_err(|error| error.to_string())?;
            offsets.push(offset_s);
        }
        Ok(json!({"offsets_s": offsets}))
    }
}

/// Kind of error that [`ClockSteps`] gives a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A step of 200 ms to 5 s, forwards or backwards.
    Steps,
    /// A rate from half to double the true rate.
    Rates,
}

/// Fault that changes the wall clock of one node again and again. In half of the faults each change
/// is made on the leader, in the others on a random node.
pub(super) struct ClockSteps {
    change: Change,
    leader_only: bool,
    changes: u64,
}

impl ClockSteps {
    pub(super) fn new(change: Change) -> ClockSteps {
        ClockSteps { change, leader_only: false, changes: 0 }
    }

    async fn change(&mut self, scene: &mut Scene<'_>) -> Result<Value, String> {
        let id = if self.leader_only { scene.leader().await } else { scene.one() };
        let clock = match self.change {
            Change::Steps => {
                let step = scene.rng.i64(200..=5_000);
                Clock::offset(if scene.rng.bool() { step } else { -step })
            }
            Change::Rates => Clock { offset_ms: 0, rate_permille: scene.rng.u32(500..=2_000) },
        };
        scene.cluster.node(id).set_clock(clock).map_err(|error| error.to_string())?;
        self.changes += 1;
        Ok(json!({"node": id, "offset_ms": clock.offset_ms, "rate": f64::from(clock.rate_permille) / 1e3}))
    }
}

impl Kind for ClockSteps {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.leader_only = scene.rng.bool();
        let first = self.change(&mut scene).await?;
        Ok(json!({"leader_only": self.leader_only, "first": first}))
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.change(&mut scene).await?;
        Ok(Some(between(scene.rng, 100, 1_000)))
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        let (changes, figure) = match self.change {
            Change::Steps => (self.changes, "clock-steps"),
            Change::Rates => (self.changes, "clock-rates"),
        };
        let told = json!({"changes": changes});
        Ok(Outcome { told, figures: vec![(figure, changes)], ..Outcome::default() })
    }
}

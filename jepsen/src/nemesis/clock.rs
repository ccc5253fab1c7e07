//! Faults of wall clocks: large jumps of all clocks, and small steps or wrong rates of one clock.

use std::time::Duration;

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Outcome, Scene, between};
use crate::cluster::Clock;

/// Fault that sets each node's wall clock up to an hour forwards or backwards.
pub(super) struct Jumps;

impl Kind for Jumps {
    fn begin<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let mut offsets = Vec::new();
            for node in &mut scene.cluster.nodes {
                let offset_s = scene.rng.i64(-3_600..=3_600);
                node.set_clock(Clock::offset(offset_s * 1_000)).map_err(|error| error.to_string())?;
                offsets.push(offset_s);
            }
            Ok(json!({"offsets_s": offsets}))
        })
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
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            self.leader_only = scene.rng.bool();
            let first = self.change(&mut scene).await?;
            Ok(json!({"leader_only": self.leader_only, "first": first}))
        })
    }

    fn go_on<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move {
            self.change(&mut scene).await?;
            Ok(Some(between(scene.rng, 100, 1_000)))
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let (changes, figure) = match self.change {
            Change::Steps => (self.changes, "clock-steps"),
            Change::Rates => (self.changes, "clock-rates"),
        };
        let told = json!({"changes": changes});
        Box::pin(async move { Ok(Outcome { told, figures: vec![(figure, changes)], ..Outcome::default() }) })
    }
}

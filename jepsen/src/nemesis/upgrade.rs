//! Fault of a rolling upgrade under load. More than half of the nodes get the new program and then
//! the old one again. Then all nodes get the new program, the cluster's level (version of the data
//! format) is raised, and a node that is started with the old program must end.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::http::Call;
use tokio::time::sleep;

use super::kind::{Kind, Outcome, Scene, between};
use crate::cluster::{SUPER, Which};
use crate::endpoints::Endpoints;
use crate::http::Http;

/// Exit code of a node whose program does not know the cluster's level (version of the data
/// format).
const REFUSED: i32 = 1;
/// Text in the last log lines of a node whose program does not know the cluster's level (version of
/// the data format).
const WORDS: &str = "start a newer zlock";
/// Largest number of requests to raise the cluster's level (version of the data format). A new
/// leader refuses the request until it has been in contact with all members.
const TRIES: u32 = 40;

/// Step of the operator who upgrades the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Restarts the node with this number, with this program.
    Restart(u64, Which),
    /// Requests to raise the cluster's level (version of the data format) by one. With `refused`,
    /// some nodes run the old program, which does not know that level, and the request must be
    /// refused.
    Finalize { refused: bool },
    /// Starts the node with this number with the old program. Its process must end, because the old
    /// program does not know the raised level (version of the data format).
    TurnedAway(u64),
}

/// Returns the steps of an upgrade. `strange` is the node that is started with the old program at
/// the end. If an earlier fault of the run has raised the cluster's level (`raised`), steps that
/// need the old level are left out.
fn steps(nodes: u64, raised: bool, strange: u64) -> Vec<Step> {
    let half = nodes / 2 + 1;
    let roll = |to, count| (1..=count).map(move |id| Step::Restart(id, to));
    if raised {
        return roll(Which::Next, nodes).chain([Step::TurnedAway(strange)]).collect();
    }
    let mut steps: Vec<Step> = roll(Which::Next, half).collect();
    steps.push(Step::Finalize { refused: true });
    steps.extend(roll(Which::First, half));
    steps.extend(roll(Which::Next, nodes));
    steps.extend([Step::Finalize { refused: false }, Step::TurnedAway(strange)]);
    steps
}

/// Fault that takes the steps of an upgrade one after the other.
#[derive(Default)]
pub(super) struct Upgrade {
    steps: Vec<Step>,
    done: usize,
    restarts: u64,
    wrong: Option<String>,
}

impl Upgrade {
    async fn take(&mut self, scene: &mut Scene<'_>, step: Step) -> Result<(), String> {
        match step {
            Step::Restart(id, which) => {
                self.restarts += 1;
                if scene.rng.bool() {
                    scene.cluster.node(id).stop().await
                } else {
                    scene.cluster.node(id).kill()
                }
                scene.cluster.node(id).run_program(which)?;
                // The next node is restarted only when all are ready again.
                scene.cluster.recover().await.map_err(|error| format!("node {id} with {which:?}: {error}"))
            }
            Step::Finalize { refused } => {
                let node = scene.one();
                let answered = finalize(&scene.cluster.endpoints, node, refused).await;
                scene.cluster.raised |= answered.is_ok() && !refused;
                if let Err(why) = answered {
                    self.wrong = Some(why);
                }
                Ok(())
            }
            Step::TurnedAway(id) => {
                scene.cluster.node(id).kill();
                scene.cluster.node(id).run_program(Which::First)?;
                let ended = scene.cluster.node(id).start_to_the_end().await.map_err(|error| error.to_string())?;
                if ended.code != Some(REFUSED) || !ended.last_lines.iter().any(|line| line.contains(WORDS)) {
                    self.wrong = Some(format!("node {id} with the old program: {ended:?}"));
                }
                scene.cluster.node(id).run_program(Which::Next)?;
                scene.cluster.recover().await.map_err(|error| format!("node {id}, turned away before: {error}"))
            }
        }
    }
}

/// Requests to raise the cluster's level (version of the data format) until the expected answer
/// comes: a refusal if `refused` is true.
async fn finalize(endpoints: &Endpoints, node: u64, refused: bool) -> Result<(), String> {
    let mut http = Http::new(endpoints);
    let mut last = String::new();
    for _ in 0..TRIES {
        let call = Call::put("/v1/admin/upgrade").header("authorization", SUPER).within(Duration::from_secs(5));
        let answer = http.send(node, call).await;
        last = format!("{} {}", answer.error.clone().unwrap_or_default(), String::from_utf8_lossy(&answer.body));
        let held_up = last.contains("members-not-ready");
        if answer.is_ok() && !refused || held_up && refused {
            return Ok(());
        }
        if answer.is_ok() {
            return Err(format!("the level was raised before all nodes knew it: {last}"));
        }
        sleep(Duration::from_millis(250)).await;
    }
    Err(format!("the level was to be raised (refused: {refused}), and node {node} says {last}"))
}

impl Kind for Upgrade {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let nodes = scene.all().len() as u64;
        self.steps = steps(nodes, scene.cluster.raised, scene.one());
        Ok(json!({"steps": self.steps.len(), "raised_before": scene.cluster.raised}))
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        let Some(step) = self.steps.get(self.done).copied() else { return Ok(None) };
        self.take(&mut scene, step).await?;
        self.done += 1;
        Ok(Some(between(scene.rng, 200, 1_500)))
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        // An upgrade that is cut off leaves some nodes with each program, which is allowed.
        let made = self.done == self.steps.len();
        let told = json!({"steps": self.done, "of": self.steps.len(), "level_raised": scene.cluster.raised});
        let figures = vec![("program-restarts", self.restarts)];
        Ok(Outcome { made, told, figures, wrong: self.wrong.take() })
    }

    fn least(&self) -> Duration {
        // A restart takes a second or two on a busy machine.
        Duration::from_secs(4 * self.steps.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_goes_back_at_half_and_is_finalised_only_when_all_know_the_level() {
        let steps = steps(3, false, 2);
        let of = |which| steps.iter().filter(|step| matches!(step, Step::Restart(_, to) if *to == which)).count();
        assert_eq!((of(Which::Next), of(Which::First)), (5, 2));
        assert_eq!(steps[2], Step::Finalize { refused: true });
        assert_eq!(steps[8..], [Step::Finalize { refused: false }, Step::TurnedAway(2)]);
    }
}

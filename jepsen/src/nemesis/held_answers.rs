//! Fault by which answers of followers reach a leader late, after another node leads.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::LinkRule;
use tokio::time::Instant;

use super::kind::{Doing, Kind, Outcome, Rules, Scene, between, rules};

/// Pause between two requests that ask which node leads.
const LOOK: Duration = Duration::from_millis(20);
/// Time for which the fault waits for another leader after it has cut the leader off. Then it
/// delivers the held messages and begins again.
const DEPOSED_MAX: Duration = Duration::from_secs(3);
/// Additional time for which messages from the old leader stay held, so that the followers' answers
/// reach it before a message of the new leader.
const ANSWERS_FIRST: Duration = Duration::from_millis(150);
/// Shortest length of the fault: enough for all its stages once.
const LEAST: Duration = Duration::from_millis(4_500);

/// Stage of the fault.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// No message is held back.
    #[default]
    Apart,
    /// Messages of followers to the leader are held back; the leader's messages still reach the
    /// followers.
    Answers,
    /// All messages from and to the leader have been held since this time.
    CutOff(Instant),
    /// Another node leads. The next step delivers the followers' answers to the old leader.
    Deposed,
    /// The followers' answers were delivered. Messages of the old leader are still held.
    Late,
}

/// Fault that holds back messages of followers to their leader, cuts the leader off until another
/// node leads, and then delivers the held messages. It repeats this.
#[derive(Default)]
pub(super) struct HeldAnswers {
    stage: Stage,
    leader: u64,
    deposed: u64,
    late_before: u64,
}

impl HeldAnswers {
    fn answers(&self, scene: &Scene<'_>) -> Rules {
        rules(scene.others(self.leader).into_iter().map(|id| (id, self.leader)), LinkRule::HOLD)
    }

    fn requests(&self, scene: &Scene<'_>) -> Rules {
        rules(scene.others(self.leader).into_iter().map(|id| (self.leader, id)), LinkRule::HOLD)
    }

    async fn hold(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        self.leader = scene.leader().await;
        let answers = self.answers(scene);
        self.stage = Stage::Answers;
        scene.set_links(answers)
    }

    async fn next(&mut self, scene: &mut Scene<'_>) -> Result<Duration, String> {
        let (stage, pause) = match self.stage {
            Stage::Apart => {
                self.hold(scene).await?;
                (Stage::Answers, between(scene.rng, 10, 80))
            }
            Stage::Answers => {
                let mut all = self.answers(scene);
                all.extend(self.requests(scene));
                scene.set_links(all)?;
                (Stage::CutOff(Instant::now()), LOOK)
            }
            Stage::CutOff(since) => {
                let others = scene.others(self.leader);
                let leader = scene.cluster.leader_seen_by(&others).await;
                if leader.is_some_and(|leader| leader != self.leader) {
                    // Time for the new leader to acknowledge a write. It is short, because the old
                    // leader closes a connection a second after its last message.
                    (Stage::Deposed, between(scene.rng, 20, 150))
                } else if since.elapsed() > DEPOSED_MAX {
                    scene.set_links(Rules::new())?;
                    (Stage::Apart, between(scene.rng, 500, 1_000))
                } else {
                    (self.stage, LOOK)
                }
            }
            Stage::Deposed => {
                self.deposed += 1;
                let requests = self.requests(scene);
                scene.set_links(requests)?;
                (Stage::Late, ANSWERS_FIRST)
            }
            Stage::Late => {
                scene.set_links(Rules::new())?;
                (Stage::Apart, between(scene.rng, 500, 1_000))
            }
        };
        self.stage = stage;
        Ok(pause)
    }
}

impl Kind for HeldAnswers {
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            self.late_before = scene.cluster.network.late_bytes();
            self.hold(&mut scene).await?;
            Ok(json!({"leader": self.leader}))
        })
    }

    fn go_on<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move { self.next(&mut scene).await.map(Some) })
    }

    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(async move {
            let late = scene.cluster.network.late_bytes() - self.late_before;
            Ok(Outcome {
                made: self.deposed > 0 && late > 0,
                told: json!({"deposed": self.deposed, "late_bytes": late}),
                figures: vec![("leaders-deposed-unheard", self.deposed), ("late-bytes", late)],
                ..Outcome::default()
            })
        })
    }

    fn least(&self) -> Duration {
        LEAST
    }
}

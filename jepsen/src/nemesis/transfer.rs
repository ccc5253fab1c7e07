//! Fault of repeated transfers of leadership while clients write.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::http::Call;

use super::kind::{Doing, Kind, Outcome, Scene, between};
use super::upgrade::SUPER;
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
    fn begin<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            self.once(&mut scene).await;
            Ok(json!({}))
        })
    }

    fn go_on<'a>(&'a mut self, mut scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(async move {
            self.once(&mut scene).await;
            Ok(Some(between(scene.rng, 100, 1_000)))
        })
    }

    fn end<'a>(&'a mut self, _scene: Scene<'a>) -> Doing<'a, Outcome> {
        let told = json!({"transferred": self.done, "refused": self.refused});
        let figures = vec![("transfers", self.done)];
        let outcome = Outcome { made: self.done > 0, told, figures, wrong: None };
        Box::pin(async move { Ok(outcome) })
    }
}

impl Transfer {
    /// Asks a random node to transfer leadership to a random node. The request is refused if the
    /// new leader would be behind in its log or is not reachable.
    async fn once(&mut self, scene: &mut Scene<'_>) {
        let (asked, to) = (scene.one(), scene.one());
        let call = Call::put(format!("/v1/admin/leader?to={to}")).header("authorization", SUPER).within(ANSWER_MAX);
        let answer = Http::new(&scene.cluster.endpoints).send(asked, call).await;
        if answer.is_ok() {
            self.done += 1;
        } else {
            self.refused += 1;
        }
    }
}

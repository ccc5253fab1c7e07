//! Fault of an operator who changes the members while clients work. Two nodes join the cluster, a
//! new node replaces the leader, a member loses its data and comes back, and members are removed
//! until the cluster is as large as at its start.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::http::Call;
use tokio::time::Instant;
use zlock_client::api::Members as View;

use super::kind::{Kind, Outcome, Scene, between};
use crate::answer::Effect;
use crate::cluster::SUPER;
use crate::http::Http;

/// Number of members by which the cluster grows.
const GROWTH: usize = 2;
/// Longest time of one step while no other fault is under way.
const STEP_MAX: Duration = Duration::from_secs(30);
/// Longest time for the answer to one request of the operator.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Step of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Adds a new node.
    Add,
    /// Replaces the leader by a new node.
    Replace,
    /// Empties the data directory of a member, which comes back.
    Wipe,
    /// Removes a member.
    Remove,
}

/// Returns the steps of a fault that begins with `now` members in a cluster that was started with
/// `first` members.
fn steps(now: usize, first: usize, rng: &mut fastrand::Rng) -> VecDeque<Step> {
    let adds = (first + GROWTH).saturating_sub(now);
    let mut steps = vec![Step::Add; adds];
    steps.extend(vec![Step::Remove; now + adds - first]);
    for more in [Step::Replace, Step::Wipe] {
        steps.insert(rng.usize(..=steps.len()), more);
    }
    steps.into()
}

/// Step that is under way.
#[derive(Clone, Copy, Debug)]
struct Task {
    step: Step,
    began: Instant,
    /// New node, which is to become a voter.
    joins: Option<u64>,
    /// Member that is to be removed.
    leaves: Option<u64>,
    /// Member that has lost its data and is to become ready.
    wiped: Option<u64>,
}

/// Fault that makes the steps of the operator one after the other.
#[derive(Default)]
pub(super) struct Members {
    left: VecDeque<Step>,
    under_way: Option<Task>,
    /// Descriptions of the completed steps.
    done: Vec<String>,
    /// Last refusal of a request, for the report.
    refused: String,
    figures: [u64; 4],
    wrong: Option<String>,
}

impl Members {
    /// Begins the next step if none is under way, or continues the present one.
    async fn advance(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        let Some(view) = look(scene).await else { return Ok(()) };
        let Some(now) = self.under_way else { return self.begin_step(scene, &view).await };
        if self.is_complete(scene, now, &view).await {
            self.under_way = None;
            self.figures[now.step as usize] += 1;
            let Task { step, began, joins, leaves, wiped } = now;
            let (took, ids) = (began.elapsed().as_millis(), json!({"in": joins, "out": leaves, "wiped": wiped}));
            self.done.push(format!("{step:?} {ids} in {took} ms"));
            return follow(scene, &view);
        }
        if scene.alone && now.began.elapsed() > STEP_MAX && self.wrong.is_none() {
            let refused = &self.refused;
            self.wrong = Some(format!("not complete after {} s: {now:?} {refused}; {view:?}", STEP_MAX.as_secs()));
        }
        self.order(scene, now, &view).await;
        Ok(())
    }

    async fn begin_step(&mut self, scene: &mut Scene<'_>, view: &View) -> Result<(), String> {
        follow(scene, view)?;
        let Some(step) = self.left.pop_front() else { return Ok(()) };
        let mut next = Task { step, began: Instant::now(), joins: None, leaves: None, wiped: None };
        if matches!(step, Step::Add | Step::Replace) {
            let joins = scene.cluster.start_spare().map_err(|error| format!("start of a new node: {error}"))?;
            // If all nodes were used, the fault stays incomplete and does not count as made.
            if joins.is_none() {
                self.left = VecDeque::from([step]);
                return Ok(());
            }
            next.joins = joins;
        }
        match step {
            Step::Add => {}
            Step::Replace => next.leaves = view.leader,
            Step::Remove => next.leaves = Some(scene.one()),
            Step::Wipe => {
                let id = scene.one();
                next.wiped = Some(id);
                scene.cluster.node(id).wipe().map_err(|error| format!("wipe of node {id}: {error}"))?;
                scene.cluster.restart(id).map_err(|error| format!("restart of node {id}: {error}"))?;
            }
        }
        if let Some(id) = next.leaves {
            scene.cluster.node(id).leaves = true;
        }
        self.under_way = Some(next);
        self.order(scene, next, view).await;
        Ok(())
    }

    /// Sends the request of the step, unless the list of members shows that an earlier request of
    /// the step was accepted.
    async fn order(&mut self, scene: &mut Scene<'_>, now: Task, view: &View) {
        let call = match (now.joins, now.leaves) {
            (Some(id), replaces) if !view.members.iter().any(|member| member.id == id) => {
                let place = &scene.cluster.node(id).place;
                let replaces = replaces.map(|id| format!("&replaces={id}")).unwrap_or_default();
                let (peer, http) = (&place.peer, &place.http);
                Call::post(format!("/v1/admin/members?id={id}&peer_addr={peer}&http_addr={http}{replaces}"))
            }
            (None, Some(id)) if view.members.iter().any(|member| member.id == id && !member.removing) => {
                Call::delete(format!("/v1/admin/members/{id}"))
            }
            _ => return,
        };
        let call = call.header("authorization", SUPER).within(ANSWER_MAX);
        let answer = Http::new(&scene.cluster.endpoints).send(scene.one(), call).await;
        if let Some(error) = answer.error {
            self.refused = error;
        }
    }

    /// Tells whether the aim of a step is reached. The process of a removed member must have ended,
    /// unless another fault is under way, which may hide the removal from the process.
    async fn is_complete(&self, scene: &mut Scene<'_>, now: Task, view: &View) -> bool {
        let joined = now.joins.is_none_or(|id| voters(view).any(|voter| voter == id));
        let left = now.leaves.is_none_or(|id| !view.members.iter().any(|member| member.id == id));
        let ended = !scene.alone || now.leaves.is_none_or(|id| !scene.cluster.node(id).runs());
        let ready = match now.wiped {
            Some(id) => scene.cluster.not_ready(id).await.is_none(),
            None => true,
        };
        view.committed && !view.joint && joined && left && ended && ready
    }
}

/// Returns the members as the leader knows them; `None` if no leader answers.
async fn look(scene: &mut Scene<'_>) -> Option<View> {
    let call = Call::get("/v1/admin/members").header("authorization", SUPER);
    let mut answer = Http::new(&scene.cluster.endpoints).send(scene.one(), call).await;
    let view: View = answer.read(Effect::Read)?;
    (view.leader == Some(view.reported_by)).then_some(view)
}

/// Returns the ids of the voters.
fn voters(view: &View) -> impl Iterator<Item = u64> {
    view.members.iter().filter(|member| member.role == "voter" && !member.removing).map(|member| member.id)
}

/// Gives clients and nodes the present list of members, without the nodes that the operator has
/// removed: the view of a deposed leader may still contain these nodes.
fn follow(scene: &mut Scene<'_>, view: &View) -> Result<(), String> {
    let members: Vec<u64> = voters(view).filter(|id| !scene.cluster.node(*id).leaves).collect();
    scene.cluster.set_members(members).map_err(|error| format!("configuration files: {error}"))
}

impl Kind for Members {
    async fn begin(&mut self, scene: Scene<'_>) -> Result<Value, String> {
        let (now, first) = (scene.all().len(), scene.cluster.founders());
        self.left = steps(now, first, scene.rng);
        Ok(json!({"members": scene.all(), "steps": format!("{:?}", self.left)}))
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.advance(&mut scene).await?;
        let over = self.left.is_empty() && self.under_way.is_none();
        Ok((!over).then(|| between(scene.rng, 100, 500)))
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        let cluster = scene.cluster;
        // A change that is cut off completes by itself, so a member that is being removed is no
        // longer expected to run.
        let staying: Vec<u64> =
            cluster.endpoints.members().into_iter().filter(|id| !cluster.node(*id).leaves).collect();
        let set = cluster.set_members(staying).map_err(|error| format!("configuration files: {error}"));
        let made = self.left.is_empty() && self.under_way.is_none();
        let told =
            json!({"done": self.done, "under_way": format!("{:?}", self.under_way), "last_refusal": self.refused});
        let names = ["members-added", "leaders-replaced", "members-wiped", "members-removed"];
        let figures = names.into_iter().zip(self.figures).collect();
        let outcome = Outcome { made, told, figures, wrong: self.wrong.take() };
        set.map(|()| outcome)
    }

    fn least(&self) -> Duration {
        // A step takes a few seconds on a busy machine.
        Duration::from_secs(4 * self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_grows_and_comes_back_to_its_first_size() {
        let mut rng = fastrand::Rng::with_seed(7);
        for (now, adds, removes) in [(3, 2, 2), (4, 1, 2), (5, 0, 2), (6, 0, 3)] {
            let steps = steps(now, 3, &mut rng);
            let of = |one| steps.iter().filter(|step| **step == one).count();
            let counts = [of(Step::Add), of(Step::Replace), of(Step::Wipe), of(Step::Remove)];
            assert_eq!(counts, [adds, 1, 1, removes], "{now}: {steps:?}");
        }
    }
}

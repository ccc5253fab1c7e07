//! Faults of links between nodes.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::LinkRule;
use tokio::time::Instant;

use super::kind::{Kind, Outcome, Rules, Scene, between, rules};
use crate::cluster::{LOSS_PERCENT, Network};

/// Fault that delays messages on all links by tens of milliseconds, which vary.
pub(super) struct Slow;

impl Kind for Slow {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let delay = Duration::from_millis(scene.rng.u64(5..60));
        let all = scene.links(|_, _| true);
        scene.set_links(rules(all, LinkRule { delay, jitter: delay, ..LinkRule::PASS }))?;
        Ok(json!({"delay_ms": delay.as_millis() as u64}))
    }
}

/// Fault by which packets on all links are lost; with proxies, connections break again and again.
pub(super) struct Loss;

impl Kind for Loss {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let rule = LinkRule { break_one_in: 20, ..LinkRule::PASS };
        let all = scene.links(|_, _| true);
        scene.set_links(rules(all, rule))?;
        Ok(match &scene.cluster.network {
            Network::Namespaces(_) => json!({"packets_dropped_percent": LOSS_PERCENT}),
            Network::Proxies(..) | Network::Foreign => json!({"connection_breaks_one_read_in": rule.break_one_in}),
        })
    }
}

/// Directed links, and the value that describes them in the history.
type Links = (Vec<(u64, u64)>, Value);

/// Fault that cuts links. The function chooses them, and gets the leader's id as its second
/// argument.
pub(super) struct Cut(pub(super) fn(&mut Scene<'_>, u64) -> Links);

impl Kind for Cut {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let leader = scene.leader().await;
        let (cut, told) = (self.0)(&mut scene, leader);
        scene.set_links(rules(cut, LinkRule::CUT))?;
        Ok(told)
    }
}

/// Cuts the cluster into two parts, one of which has a majority.
pub(super) fn halves(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let mut all = scene.all();
    scene.rng.shuffle(&mut all);
    let (one, other) = all.split_at(all.len() / 2);
    (scene.links(|a, b| one.contains(&a) != one.contains(&b)), json!({"parts": [one, other]}))
}

/// Cuts the leader off from all other nodes.
pub(super) fn isolate_leader(scene: &mut Scene<'_>, leader: u64) -> Links {
    (scene.links_of(leader), json!({"leader": leader}))
}

/// Cuts links so that every node is connected to a majority, but no two nodes to the same majority.
pub(super) fn ring(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let mut ring = scene.all();
    scene.rng.shuffle(&mut ring);
    // Each node sees itself and its nearest neighbours on the ring: half of the others,
    // rounded up.
    let reach = ring.len().div_ceil(2) / 2;
    let place = |node: u64| ring.iter().position(|other| *other == node).unwrap_or(0);
    // Three nodes on a ring all see each other, so one link is cut.
    let lone = |gap: usize| ring.len() <= 3 && gap == ring.len() - 1;
    let apart = |a, b| {
        let gap = place(a).abs_diff(place(b));
        gap.min(ring.len() - gap) > reach || lone(gap)
    };
    (scene.links(apart), json!({"ring": ring}))
}

/// Cuts one node off in one direction: all links to it, or all links from it.
pub(super) fn one_way(scene: &mut Scene<'_>, _leader: u64) -> Links {
    let (node, deaf) = (scene.one(), scene.rng.bool());
    let cut = scene.links(|a, b| node == if deaf { b } else { a });
    (cut, json!({"node": node, "is": if deaf { "deaf" } else { "dumb" }}))
}

/// Cuts one direction of one link: from the leader to a follower, from a follower to the leader, or
/// between two followers. [`one_way`] cuts one direction of all links of a node.
pub(super) fn asymmetric(scene: &mut Scene<'_>, leader: u64) -> Links {
    let mut followers = scene.others(leader);
    scene.rng.shuffle(&mut followers);
    let (from, to) = match (scene.rng.u8(..3), &followers[..]) {
        (0, [one, ..]) => (leader, *one),
        (2, [one, other, ..]) => (*one, *other),
        (_, [one, ..]) => (*one, leader),
        // One node has no links.
        _ => (leader, leader),
    };
    (scene.links(|a, b| (a, b) == (from, to)), json!({"leader": leader, "deaf": to, "to": from}))
}

/// Fault by which links go down or up every 10 to 500 ms: one direction of a link, both directions,
/// or all links of a node.
#[derive(Default)]
pub(super) struct Flapping {
    links: Vec<(u64, u64)>,
    down: bool,
    times_down: u64,
}

impl Flapping {
    fn flap(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.down = !self.down;
        self.times_down += u64::from(self.down);
        let cut = if self.down { self.links.clone() } else { Vec::new() };
        scene.set_links(rules(cut, LinkRule::CUT))?;
        // Short times are as likely as long ones.
        let high = scene.rng.choice([30, 120, 500]).unwrap_or(500);
        Ok(Some(between(scene.rng, 10, high)))
    }
}

impl Kind for Flapping {
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        let node = if scene.rng.bool() { scene.leader().await } else { scene.one() };
        let others = scene.others(node);
        let Some(peer) = scene.rng.choice(&others).copied() else { return Err("one node has no links".into()) };
        let (links, told) = match scene.rng.u8(..4) {
            0 => (vec![(node, peer)], json!({"from": node, "to": peer})),
            1 => (vec![(peer, node)], json!({"from": peer, "to": node})),
            2 => (vec![(node, peer), (peer, node)], json!({"between": [node, peer]})),
            _ => (scene.links_of(node), json!({"node": node})),
        };
        self.links = links;
        self.flap(scene)?;
        Ok(told)
    }

    async fn go_on(&mut self, scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.flap(scene)
    }

    async fn end(&mut self, _scene: Scene<'_>) -> Result<Outcome, String> {
        let times = self.times_down;
        // A link that went down once has not flapped.
        Ok(Outcome {
            made: times > 1,
            told: json!({"times_down": times}),
            figures: vec![("links-went-down", times)],
            ..Outcome::default()
        })
    }
}

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
    async fn begin(&mut self, mut scene: Scene<'_>) -> Result<Value, String> {
        self.late_before = scene.cluster.network.late_bytes();
        self.hold(&mut scene).await?;
        Ok(json!({"leader": self.leader}))
    }

    async fn go_on(&mut self, mut scene: Scene<'_>) -> Result<Option<Duration>, String> {
        self.next(&mut scene).await.map(Some)
    }

    async fn end(&mut self, scene: Scene<'_>) -> Result<Outcome, String> {
        let late = scene.cluster.network.late_bytes() - self.late_before;
        Ok(Outcome {
            made: self.deposed > 0 && late > 0,
            told: json!({"deposed": self.deposed, "late_bytes": late}),
            figures: vec![("leaders-deposed-unheard", self.deposed), ("late-bytes", late)],
            ..Outcome::default()
        })
    }

    fn least(&self) -> Duration {
        LEAST
    }
}

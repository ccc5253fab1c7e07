//! Changes of the members: orders of an operator, with repetitions and cancellations, and faults
//! that aim at the moments between the log entries of a change.
//!
//! The configuration file of each founder always names the founders, and so does that of a node
//! that joins. A node without data asks these members for the cluster's data. A node that joins
//! also asks the members that call it. If a founder has lost its data, and no other founder has
//! data, the operator writes the present voters into that founder's configuration. Bounds: at most
//! [`ALIVE_MAX`] nodes live, at most one is dead or without its data, and no order leaves fewer
//! than three voters.

use std::collections::BTreeSet;

use replica::{Config, Member, NewMember, Order, OrderError, OrderOutcome, RefusedOrder};
use tokio::sync::oneshot;

use crate::call::{Call, Reply};
use crate::faults::Faults;
use crate::history::History;
use crate::hub::Hub;
use crate::machine::{Clock, Fate, Node};
use crate::network::{MachineId, OPERATOR};
use crate::switchboard::Switchboard;

/// Largest number of nodes that live at once.
const ALIVE_MAX: usize = 6;
/// Smallest number of voters that an order may leave.
const VOTERS_MIN: usize = 3;
/// Number of times that the operator repeats an order.
const TRIES: u32 = 8;
/// Time for which the operator waits for an answer. It is longer than a node works on an order.
const PATIENCE_MS: u64 = 4_000;

/// Configuration of nodes that join.
pub(crate) struct Recruits {
    pub(crate) config: Config,
    pub(crate) flush_ms: u64,
    /// The rates of the nodes' clocks.
    pub(crate) rates: Vec<u64>,
}

/// An order that the operator is giving, with its repetitions.
struct Goal {
    order: Order,
    tries: u32,
    next_ms: u64,
    /// Receiver of the answer to the last try, and the time until which the operator waits for the
    /// answer; `None` while no try is under way.
    answer: Option<(oneshot::Receiver<Reply>, u64)>,
}

/// A plan to kill the leader right after the next change of the members is in its log.
struct Ambush {
    /// Log index of the membership that the leader had when this plan was made.
    index: u64,
    until_ms: u64,
    strike_ms: Option<u64>,
    power: bool,
}

/// The members in the committed log.
struct Known {
    voters: BTreeSet<MachineId>,
    /// Members without a vote.
    learners: Vec<MachineId>,
    /// Voters that are about to be removed or replaced.
    leaving: BTreeSet<MachineId>,
}

/// Changes of the members in a run, and the faults that aim at the moments of a change.
pub(crate) struct MemberFaults {
    hub: Hub,
    switchboard: Switchboard,
    random: fastrand::Rng,
    recruits: Recruits,
    next_ms: u64,
    goal: Option<Goal>,
    ambush: Option<Ambush>,
    /// Number of successful transfers of leadership.
    pub(crate) transfers: u64,
}

impl MemberFaults {
    pub(crate) fn new(hub: Hub, switchboard: Switchboard, mut random: fastrand::Rng, recruits: Recruits) -> Self {
        let next_ms = random.u64(500..2_500);
        MemberFaults { hub, switchboard, random, recruits, next_ms, goal: None, ambush: None, transfers: 0 }
    }

    /// Carries out the orders and faults that are due.
    pub(crate) fn act(&mut self, nodes: &mut Vec<Node>, faults: &mut Faults, history: &History) -> Result<(), String> {
        self.follow_ambush(nodes, faults);
        self.follow_goal(nodes);
        self.mend_files(nodes, faults, history);
        if self.next_ms <= self.hub.now_ms() && self.goal.is_none() {
            self.next_ms = self.hub.now_ms() + 200 + self.random.u64(..1_500);
            if let Some(known) = known(history, nodes) {
                self.choose(nodes, faults, history, &known)?;
            }
        }
        Ok(())
    }

    /// Stops giving orders. The cluster completes a change that was ordered before.
    pub(crate) fn end(&mut self) {
        self.goal = None;
        self.ambush = None;
    }

    /// Writes members into the configuration of each founder that has lost its data and does not
    /// run. At its start such a node asks these members for the cluster's data.
    fn mend_files(&self, nodes: &mut [Node], faults: &Faults, history: &History) {
        let founders = self.recruits.config.members.len() as MachineId;
        let lost =
            |node: &Node| node.id <= founders && node.fate == Fate::Serves && !node.runs() && !faults.is_whole(node.id);
        if nodes.iter().any(lost)
            && let Some(known) = known(history, nodes)
        {
            for node in nodes.iter_mut().filter(|node| lost(node)) {
                node.set_members(self.to_ask(node.id, faults, &known));
            }
        }
    }

    /// Returns the members that a founder without data asks for the cluster's data at its start.
    fn to_ask(&self, own: MachineId, faults: &Faults, known: &Known) -> Vec<Member> {
        let founders = &self.recruits.config.members;
        let can_tell = |id: &MachineId| *id != own && !known.leaving.contains(id) && faults.is_whole(*id);
        let telling: Vec<MachineId> = known.voters.iter().copied().filter(can_tell).collect();
        if telling.is_empty() || founders.iter().any(|founder| telling.contains(&founder.id)) {
            return founders.clone();
        }
        telling.into_iter().chain([own]).map(Node::member).collect()
    }

    fn choose(
        &mut self,
        nodes: &mut Vec<Node>,
        faults: &mut Faults,
        history: &History,
        known: &Known,
    ) -> Result<(), String> {
        let dead = nodes.iter().find(|node| node.fate == Fate::Dead && known.voters.contains(&node.id));
        let dead = dead.map(|node| node.id);
        match self.random.u32(..100) {
            0..40 => return self.add(nodes, faults, history, known, dead),
            40..55 => self.remove(nodes, faults, known, dead),
            55..70 => {
                let to = self.random.u64(..=nodes.len() as u64);
                self.order(nodes, faults, Order::Transfer { to: (to > 0).then_some(to) });
            }
            70..76 => {
                let of_all = self.random.u64(1..=nodes.len() as u64);
                let id = self.random.choice(known.learners.clone()).unwrap_or(of_all);
                self.order(nodes, faults, Order::Promote { id });
            }
            76..84 => self.bury(nodes, faults, known),
            84..90 => {
                if let Some(at) = self.any(nodes, |node| known.voters.contains(&node.id)) {
                    faults.wipe(nodes, at);
                }
            }
            90..98 => self.split(nodes, faults, known),
            // An id that was used, which must be refused.
            _ => {
                let used = nodes.iter().filter(|node| node.fate == Fate::Removed).map(|node| node.id);
                if let Some(id) = self.random.choice(used.collect::<Vec<_>>()) {
                    self.order(nodes, faults, Order::Add(member(id)));
                }
            }
        }
        Ok(())
    }

    fn any(&mut self, nodes: &[Node], fit: impl Fn(&Node) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..nodes.len()).filter(|at| fit(&nodes[*at])).collect();
        self.random.choice(fitting)
    }

    /// Orders to add a node, either a new one or one that an earlier order failed to add.
    fn add(
        &mut self,
        nodes: &mut Vec<Node>,
        faults: &mut Faults,
        history: &History,
        known: &Known,
        dead: Option<MachineId>,
    ) -> Result<(), String> {
        let stranger = nodes.iter().find(|node| node.fate == Fate::Serves && !history.was_member(node.id));
        let id = match stranger {
            Some(stranger) => stranger.id,
            None if nodes.iter().filter(|node| node.fate == Fate::Serves).count() >= ALIVE_MAX => return Ok(()),
            None => self.recruit(nodes)?,
        };
        let staying: Vec<MachineId> = known.voters.difference(&known.leaving).copied().collect();
        let replaces = match self.random.u32(..100) {
            0..60 if dead.is_some() => dead,
            60..85 => self.random.choice(staying),
            _ => None,
        };
        let observer = replaces.is_none() && self.random.u32(..100) < 25;
        let manual = replaces.is_none() && !observer && self.random.u32(..100) < 15;
        let new = NewMember { observer, manual, replaces, ..member(id) };
        self.order(nodes, faults, Order::Add(new));
        Ok(())
    }

    fn recruit(&mut self, nodes: &mut Vec<Node>) -> Result<MachineId, String> {
        let id = nodes.len() as MachineId + 1;
        let rate = self.random.choice(&self.recruits.rates).copied().unwrap_or(Clock::TRUE_RATE);
        let clock = Clock { rate, ahead_ms: self.random.i64(-2_000..2_000) };
        let config = Config { join: true, ..self.recruits.config.clone() };
        let mut node = Node::new(self.hub.clone(), id, config, clock, self.recruits.flush_ms);
        node.start()?;
        nodes.push(node);
        Ok(id)
    }

    /// Orders to remove a member, if enough voters are left; preferably a dead one.
    fn remove(&mut self, nodes: &[Node], faults: &mut Faults, known: &Known, dead: Option<MachineId>) {
        let members = known.voters.iter().chain(&known.learners).copied().collect::<Vec<_>>();
        let Some(id) = dead.filter(|_| self.random.bool()).or_else(|| self.random.choice(members)) else { return };
        let left: BTreeSet<MachineId> = known.voters.iter().copied().filter(|voter| *voter != id).collect();
        let staying = left.difference(&known.leaving).count();
        let live = left.iter().filter(|voter| dead != Some(**voter) && faults.is_whole(**voter)).count();
        if known.voters.contains(&id) && (staying < VOTERS_MIN || live <= left.len() / 2) {
            return;
        }
        self.order(nodes, faults, Order::Remove { id, force: false });
    }

    /// Kills a voter, which stays dead until it is replaced or all faults are repaired.
    fn bury(&mut self, nodes: &mut [Node], faults: &mut Faults, known: &Known) {
        let wants_leader = self.random.bool();
        let fit = |node: &Node| known.voters.contains(&node.id) && node.runs() && (!wants_leader || node.leads());
        let Some(at) = self.any(nodes, fit) else { return };
        if !faults.is_all_whole(nodes) || known.voters.len() < VOTERS_MIN {
            return;
        }
        let power = self.random.bool().then(|| self.random.u8(..));
        nodes[at].kill(power);
        nodes[at].fate = Fate::Dead;
        faults.count += 1;
    }

    /// Cuts off the leader together with some nodes. They form a quorum only if the quorum is
    /// counted wrongly: over members without a vote, or over the founders.
    fn split(&mut self, nodes: &[Node], faults: &mut Faults, known: &Known) {
        let Some(leader) = nodes.iter().find(|node| node.leads()).map(|node| node.id) else { return };
        let mut side: BTreeSet<MachineId> = known.learners.iter().copied().chain([leader]).collect();
        let room = known.voters.len().saturating_sub(1) / 2;
        let founders =
            known.voters.iter().filter(|id| **id != leader && **id <= self.recruits.config.members.len() as u64);
        side.extend(founders.take(room.saturating_sub(1)));
        let others: Vec<MachineId> = nodes.iter().map(|node| node.id).filter(|id| !side.contains(id)).collect();
        let cuts = side.iter().flat_map(|own| others.iter().flat_map(move |other| [(*own, *other), (*other, *own)]));
        let for_ms = 1_000 + self.random.u64(..3_000);
        faults.cut(cuts.collect(), for_ms, [8, leader]);
        faults.count += 1;
    }

    /// Makes `order` the operator's present order. With some probability, the leader will be killed
    /// during the change of the members.
    fn order(&mut self, nodes: &[Node], faults: &mut Faults, order: Order) {
        let now_ms = self.hub.now_ms();
        let leader = nodes.iter().position(Node::leads);
        faults.count += 1;
        if self.random.u8(..3) == 0
            && let Some(replica) = leader.and_then(|at| nodes[at].replica())
        {
            let (index, power) = (replica.voters().0, self.random.bool());
            self.ambush = Some(Ambush { index, until_ms: now_ms + 4_000, strike_ms: None, power });
        }
        self.goal = Some(Goal { order, tries: 0, next_ms: now_ms, answer: None });
    }

    fn follow_ambush(&mut self, nodes: &mut [Node], faults: &mut Faults) {
        let now_ms = self.hub.now_ms();
        let Some(ambush) = &mut self.ambush else { return };
        let leader = nodes.iter().position(Node::leads);
        if let Some(at) = leader
            && ambush.strike_ms.is_none()
            && nodes[at].replica().is_some_and(|replica| replica.voters().0 > ambush.index)
        {
            ambush.strike_ms = Some(now_ms + self.random.u64(..30));
        }
        if ambush.strike_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            let power = ambush.power;
            self.ambush = None;
            if let Some(at) = leader {
                faults.count += 1;
                faults.kill(&mut nodes[at], power);
            }
        } else if ambush.until_ms <= now_ms {
            self.ambush = None;
        }
    }

    fn follow_goal(&mut self, nodes: &[Node]) {
        let now_ms = self.hub.now_ms();
        let Some(goal) = &mut self.goal else { return };
        if let Some((answer, until_ms)) = &mut goal.answer {
            let said = match answer.try_recv() {
                Ok(Reply::Ordered(said)) => Some(said),
                Ok(_) => None,
                Err(oneshot::error::TryRecvError::Empty) if *until_ms > now_ms => return,
                Err(_) => None,
            };
            goal.answer = None;
            goal.next_ms = now_ms + 50 + self.random.u64(..600);
            self.transfers += u64::from(matches!(said, Some(Ok(OrderOutcome::Transferred { .. }))));
            if said.is_some_and(|said| is_final(&said)) || goal.tries >= TRIES {
                self.goal = None;
            }
            return;
        }
        if goal.next_ms > now_ms {
            return;
        }
        let serving: Vec<MachineId> = nodes.iter().filter(|node| node.runs()).map(|node| node.id).collect();
        let Some(node) = self.random.choice(serving) else { return };
        goal.tries += 1;
        let answer = self.switchboard.call(&self.hub, OPERATOR, node, Call::Order(goal.order.clone()));
        goal.answer = Some((answer, now_ms + PATIENCE_MS));
    }
}

/// Tells whether an answer to the operator is final, so that the operator does not repeat the
/// order.
fn is_final(said: &Result<OrderOutcome, OrderError>) -> bool {
    match said {
        Ok(_) => true,
        Err(OrderError::Unavailable(_) | OrderError::Unknown(_)) => false,
        Err(OrderError::Refused { kind, .. }) => !matches!(
            kind,
            RefusedOrder::ChangeInProgress
                | RefusedOrder::MemberUnreachable
                | RefusedOrder::TooManyLearners
                | RefusedOrder::LearnerLagging
                | RefusedOrder::LearnerSilent
                | RefusedOrder::WouldLoseQuorum
                | RefusedOrder::TransferFailed
        ),
    }
}

fn member(id: MachineId) -> NewMember {
    let addr = format!("node-{id}");
    NewMember { id, peer_addr: addr.clone(), http_addr: addr, ..NewMember::default() }
}

/// Returns the members of the last committed membership. Before the first change these are the
/// founders; `None` before the cluster is founded.
fn known(history: &History, nodes: &[Node]) -> Option<Known> {
    let Some((_, membership)) = history.membership() else {
        let founded = history.last_index() > 1;
        let voters = nodes.iter().map(|node| node.id).filter(|id| history.was_member(*id)).collect();
        return founded.then_some(Known { voters, learners: Vec::new(), leaving: BTreeSet::new() });
    };
    let voters: BTreeSet<MachineId> = membership.voter_ids().collect();
    let learners = membership.nodes().map(|(id, _)| *id).filter(|id| !voters.contains(id)).collect();
    let mut leaving = BTreeSet::new();
    for (id, member) in membership.nodes() {
        leaving.extend(member.extra.contains_key("removing").then_some(*id));
        let old = member.extra.get("replaces").and_then(|old| std::str::from_utf8(old).ok()?.parse::<u64>().ok());
        leaving.extend(old);
    }
    Some(Known { voters, learners, leaving })
}

/// The reason for which the members are not settled; `None` if they are. Settled members have one
/// uniform membership and no change half done, every member is ready, and each removed node has
/// ended.
pub(crate) fn unsettled(nodes: &[Node], faults: &Faults, history: &History) -> Option<String> {
    let ready = |node: &Node| node.status.as_ref().is_some_and(|status| status.ready == replica::Readiness::Ready);
    let Some((index, membership)) = history.membership() else {
        let waiting = nodes.iter().find(|node| history.was_member(node.id) && !ready(node));
        return waiting.map(|node| format!("node {} is not ready", node.id));
    };
    if membership.get_joint_config().len() != 1 {
        return Some("a change of the voters is half done".into());
    }
    let voters: BTreeSet<MachineId> = membership.voter_ids().collect();
    for (id, member) in membership.nodes() {
        let has = |name: &str| member.extra.contains_key(name);
        if has("removing") || has("replaces") || !(voters.contains(id) || has("role") || has("promote")) {
            return Some(format!("node {id} is not what it is to be: {:?}", member.extra));
        }
    }
    nodes.iter().find_map(|node| {
        let id = node.id;
        if membership.get_node(&id).is_some() {
            let has = node.replica().map(|replica| replica.voters().0);
            return (!ready(node) || has != Some(index))
                .then(|| format!("member {id} is not ready, or has membership {has:?}"));
        }
        // A node hears of its removal from a member that it knows. A node that was wiped knows
        // none, nor does a node that comes back after all members of its log have been replaced.
        let known = node.replica().map(|replica| replica.voters().1).unwrap_or_default();
        let knows_a_member = known.iter().flatten().any(|known| membership.get_node(known).is_some());
        let can_hear = faults.is_whole(id) && knows_a_member;
        let ended = node.fate == Fate::Removed || !history.was_member(id) || !can_hear;
        (!ended).then(|| format!("node {id} was removed and has not ended"))
    })
}

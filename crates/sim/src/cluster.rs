//! A run of the simulation: nodes, clients, faults and invariants, which advance step by step.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use replica::Config;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;
use znode::{LEVEL_MIN, Limits, Zxid};

use crate::client;
use crate::counts::{ACKNOWLEDGED, Counts, FAULTS, GRANTS};
use crate::faults::Faults;
use crate::history::History;
use crate::hub::{Event, Hub};
use crate::invariants::{Invariants, World, nodes};
use crate::machine::{Clock, Fate, Node, Stepped};
use crate::member_faults::{MemberFaults, Recruits, unsettled};
use crate::observation::{NodeView, Observation, Standing};
use crate::switchboard::Switchboard;
use crate::trace::Detail;
use crate::{dialing, panics, workload};

/// Length in simulated milliseconds of the first part of a run, in which faults happen.
const ACTIVE_MS: u64 = 15_000;
/// Simulated time for which clients go on after the last fault.
const CALM_MS: u64 = 2_500;
/// Time from the last fault within which every node must be ready.
const READY_MS: u64 = 12_000;
/// One in this many seeds has an operator that changes the members of the cluster. A seed starts
/// the random numbers of a run.
const MEMBERS_EVERY: u64 = 4;
/// Time from the last fault within which the changes of the members must be complete, and every
/// member ready.
const SETTLED_MEMBERS_MS: u64 = 25_000;
/// Time after the repair of all faults in which clients may still wait for answers that were lost
/// before the repair.
const SETTLED_MS: u64 = 3_000;
/// Time after [`SETTLED_MS`] in which all clients queue for one lock without any fault.
const QUEUEING_MS: u64 = 3_000;
/// Time from the last fault within which all nodes must have applied the same entries.
const CONVERGED_MS: u64 = 40_000;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed, from which all random choices of the run follow.
    pub seed: u64,
    /// The events of the trace that are kept as text.
    pub detail: Detail,
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The hash of the trace.
    pub hash: u64,
    /// Number of events in the trace.
    pub events: u64,
    /// Counts of the faults, entries, snapshots and changes of members in the run.
    pub counts: Counts,
    /// Length of the run in simulated milliseconds.
    pub simulated_ms: u64,
    /// Description of the violated invariant or other failure; `None` if the run passed.
    pub failure: Option<String>,
    /// The last events of the trace as text; empty unless [`Plan::detail`] keeps them.
    pub last: Vec<String>,
}

struct Cluster {
    hub: Hub,
    nodes: Vec<Node>,
    shared: client::Shared,
    clients: Runtime,
    local: LocalSet,
    started: Instant,
    lives: JoinSet<()>,
    faults: Faults,
    /// Changes of the members and faults aimed at them; `None` in seeds without such changes.
    members: Option<MemberFaults>,
    history: History,
    invariants: Invariants,
    shown: Vec<(u64, Zxid, Option<znode::Term>)>,
    /// Observations of clients, oldest first, each with its time. An observation waits here until
    /// the log entry on which it depends is known to be committed.
    early: VecDeque<(u64, Observation)>,
}

/// Tells whether an operator changes the members in this seed.
pub fn changes_members(seed: u64) -> bool {
    seed % MEMBERS_EVERY == MEMBERS_EVERY - 1
}

/// Tells whether a run with this seed has rounds of the scrub. They are rare enough that the seeds
/// of planted bugs (`tests/mutations/planted.toml`) find these bugs as they are.
fn scrubs(seed: u64) -> bool {
    matches!(seed % 16, 3 | 5 | 6 | 13 | 14)
}

/// Runs one simulated cluster with these parameters, from its start to its end.
pub fn run(plan: Plan) -> Outcome {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    storage::seed_random(Some(random.u64(..)));
    panics::begin(plan.seed);
    let hub = Hub::new(random.u64(..), plan.detail);
    let mut cluster = Cluster::new(hub, &mut random, plan.seed);
    let failure = cluster.live().err();
    let outcome = cluster.outcome(plan.seed, failure);
    cluster.clear();
    storage::seed_random(None);
    panics::end();
    outcome
}

fn config(random: &mut fastrand::Rng, nodes: u64) -> Config {
    let election_timeout_min_ms = random.u64(300..600);
    Config {
        cluster_id: "sim".into(),
        members: Node::members(nodes),
        heartbeat_ms: random.u64(election_timeout_min_ms / 10..=election_timeout_min_ms / 8),
        election_timeout_min_ms,
        election_timeout_max_ms: election_timeout_min_ms * random.u64(12..=20) / 10,
        // A longer timeout lets answers count that arrive very late.
        peer_timeout_ms: if random.u8(..4) == 0 { random.u64(1_500..3_000) } else { random.u64(500..1_200) },
        snapshot_log_entries: random.u64(20..300),
        log_entries_kept: random.u64(0..50),
        event_ring_max: random.usize(20..2_000),
        reap_batch_max: random.usize(1..20),
        limits: Limits {
            session_timeout_min_ms: 400,
            container_idle_ms: 1_500,
            replies_max: 8,
            used_keys_max: 64,
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl Cluster {
    fn new(hub: Hub, random: &mut fastrand::Rng, seed: u64) -> Cluster {
        let count = if random.u8(..4) == 0 { 5 } else { 3 };
        let mut config = config(random, count);
        let mut of_members = fastrand::Rng::with_seed(seed ^ 0x6d65_6d62_6572_7321);
        if changes_members(seed) {
            config.promote_after_ms = of_members.u64(100..1_000);
        }
        if scrubs(seed) {
            config.scrub_round_ms = 2_000;
        }
        let flush_ms = [0, 2, 5, 20][random.usize(..4)];
        let drift = random.u64(..3) * 100;
        let node = |id| {
            let rate = Clock::TRUE_RATE - drift + random.u64(..=2 * drift);
            let clock = Clock { rate, ahead_ms: random.i64(-2_000..2_000) };
            Node::new(hub.clone(), id, config.clone(), clock, flush_ms)
        };
        let nodes: Vec<Node> = (1..=count).map(node).collect();
        let fastest = nodes.iter().map(|node| node.clock.rate).max().unwrap_or(Clock::TRUE_RATE);
        let clients = Builder::new_current_thread().enable_time().start_paused(true).build();
        let clients = clients.expect("a runtime without IO needs nothing from the system");
        let started = clients.block_on(async { Instant::now() });
        let shared = client::Shared {
            hub: hub.clone(),
            switchboard: Switchboard::default(),
            nodes: Rc::new(RefCell::new((1..=count).collect())),
            seen: Rc::default(),
            leases: Rc::default(),
            newest: Rc::default(),
            pace_ms: [10, 50, 150, 400][random.usize(..4)],
            queueing: Rc::new(RefCell::new(false)),
            closing: Rc::new(RefCell::new(false)),
        };
        let faults = Faults::new(hub.clone(), random.fork());
        let rates = nodes.iter().map(|node| node.clock.rate).collect();
        let recruits = Recruits { config: config.clone(), flush_ms, rates };
        let members = changes_members(seed)
            .then(|| MemberFaults::new(hub.clone(), shared.switchboard.clone(), of_members, recruits));
        let local = LocalSet::new();
        let lives = clients.block_on(local.run_until(async { workload::begin(&shared, random) }));
        let invariants = Invariants::new(World { fastest_rate: fastest }, hub.clone());
        let shown = vec![(0, Zxid(0), None); nodes.len()];
        let mut history = History::default();
        history.found(1..=count);
        let early = VecDeque::new();
        Cluster {
            hub,
            nodes,
            shared,
            clients,
            local,
            started,
            lives,
            faults,
            members,
            history,
            invariants,
            shown,
            early,
        }
    }

    fn live(&mut self) -> Result<(), String> {
        for node in &mut self.nodes {
            self.faults.programs.choose(node, LEVEL_MIN);
            node.start()?;
        }
        while self.hub.now_ms() < ACTIVE_MS {
            self.faults.act(&mut self.nodes)?;
            self.change_members()?;
            self.step()?;
        }
        if let Some(members) = &mut self.members {
            members.end();
        }
        self.hub.lock().event(&[16], || "no more faults".into());
        while self.hub.now_ms() < ACTIVE_MS + CALM_MS {
            self.repair()?;
            self.step()?;
        }
        self.mend()?;
        *self.shared.closing.borrow_mut() = true;
        let converged_ms = CONVERGED_MS + if self.members.is_some() { SETTLED_MEMBERS_MS - READY_MS } else { 0 };
        while !(self.lives.is_empty() && self.is_converged()) {
            if self.hub.now_ms() > ACTIVE_MS + converged_ms {
                return Err(self.why_not_converged(converged_ms));
            }
            self.repair()?;
            self.step()?;
            while self.lives.try_join_next().is_some() {}
        }
        if let Some((seen_ms, observation)) = self.early.front() {
            let (zxid, last) = (observation.zxid(), self.history.last());
            return Err(format!("a client saw {zxid} at {seen_ms} ms, and {last} is the last that was committed"));
        }
        self.invariants.ask(|invariant| invariant.end(&mut self.history))
    }

    /// Waits until every node is ready, then lets clients queue for one lock without any fault.
    fn mend(&mut self) -> Result<(), String> {
        let ready_ms = if self.members.is_some() { SETTLED_MEMBERS_MS } else { READY_MS };
        while let Some(why) = unsettled(&self.nodes, &self.faults, &self.history) {
            if self.hub.now_ms() > ACTIVE_MS + ready_ms {
                return Err(format!("{}; {why}", self.why_not_converged(ready_ms)));
            }
            self.repair()?;
            self.step()?;
        }
        self.hub.lock().network.calm();
        *self.shared.queueing.borrow_mut() = true;
        let calm_ms = self.hub.now_ms() + SETTLED_MS;
        self.invariants.calm_from(calm_ms);
        while self.hub.now_ms() < calm_ms + QUEUEING_MS {
            self.step()?;
        }
        Ok(())
    }

    fn repair(&mut self) -> Result<(), String> {
        let now_ms = self.hub.now_ms();
        self.faults.end(&mut self.nodes);
        self.faults.restart(&mut self.nodes, now_ms)
    }

    fn step(&mut self) -> Result<(), String> {
        self.hub.pass_step();
        self.deliver();
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            match node.step() {
                Stepped::Ran | Stepped::Down => {}
                Stepped::Stopped => {
                    node.bury();
                    self.faults.ended(self.nodes[index].id);
                }
                Stepped::Failed(why) => {
                    // A removed node may end within the step in which it is the first to apply its
                    // removal.
                    let applied = node.replica().map(|replica| replica.state().last_zxid());
                    applied.map_or(Ok(()), |applied| self.learn(index, applied))?;
                    let node = &mut self.nodes[index];
                    let id = node.id;
                    self.hub.lock().event(&[17, id], || format!("node {id} ends itself: {why}"));
                    let turned_away = self.faults.programs.may_end(node, &why);
                    node.bury();
                    if why.starts_with(nodes::REMOVED) {
                        node.fate = Fate::Removed;
                        self.invariants.node_removed(self.hub.now_ms());
                    }
                    self.faults.ended(id);
                    if !turned_away {
                        self.invariants.ask(|invariant| invariant.ended(id, &why, &self.history))?;
                    }
                }
            }
        }
        self.tell_clients();
        let until = self.started + Duration::from_millis(self.hub.now_ms());
        let sleep = async { tokio::time::sleep_until(until).await };
        self.clients.block_on(self.local.run_until(sleep));
        if let Some(panic) = panics::taken() {
            return Err(panic);
        }
        self.observe()
    }

    /// Handles all scheduled events that are due.
    fn deliver(&mut self) {
        while let Some(event) = dialing::next_event(&self.hub) {
            match event {
                Event::Flush { node, boot } => self.nodes[node as usize - 1].log.flushed(boot),
                Event::Call { from, to, id, call } => {
                    let door = {
                        let mut shared = self.hub.lock();
                        let lost = shared.loses() || shared.network.is_cut(from, to);
                        let presence = shared.network.presence.get(&to);
                        presence.filter(|_| !lost).and_then(|presence| presence.door.clone())
                    };
                    if let Some(door) = door {
                        let _ = door.calls.try_send((from, id, call));
                    }
                }
                Event::Reply { from, to, id, reply } => {
                    let lost = {
                        let mut shared = self.hub.lock();
                        let lost = shared.loses() || shared.network.is_cut(from, to);
                        shared.event(&[18, from, to, id, lost.into()], || {
                            let fate = if lost { "(lost) " } else { "" };
                            format!("node {from} answers client {to}: {fate}{}", crate::words::reply(&reply))
                        });
                        lost
                    };
                    if !lost {
                        self.shared.switchboard.answer(id, reply);
                    }
                }
                Event::Arrival(_) | Event::Connect { .. } | Event::Connected { .. } => {
                    unreachable!("`next_event` has handled it")
                }
            }
        }
    }

    /// Takes the entries up to `applied`, which a node has applied, for committed ones.
    fn learn(&mut self, node: usize, applied: Zxid) -> Result<(), String> {
        let now_ms = self.hub.now_ms();
        for zxid in self.history.learn(&self.nodes[node].log, applied, now_ms)? {
            self.hub.lock().event(&[19, zxid.0], || self.history.in_words(zxid));
            self.invariants.committed(&self.history, zxid, now_ms)?;
        }
        Ok(())
    }

    /// Passes all that nodes and clients showed in this step to the invariants.
    fn observe(&mut self) -> Result<(), String> {
        let now_ms = self.hub.now_ms();
        let standings: Vec<Standing> = self.nodes.iter().filter_map(|node| node.standing(now_ms)).collect();
        self.invariants.ask(|invariant| invariant.step(&standings, now_ms))?;
        let mut views = Vec::new();
        for (node, shown) in self.nodes.iter().zip(&mut self.shown) {
            let Some(replica) = node.replica() else { continue };
            let state = replica.state();
            let leads = node.leads_in();
            let now = (node.boots, state.last_zxid(), leads);
            if *shown != now {
                *shown = now;
                let levels = node.levels();
                views.push(NodeView { node: node.id, boot: node.boots, levels, state, leads });
            }
        }
        for view in &views {
            self.learn(view.node as usize - 1, view.state.last_zxid())?;
        }
        for view in &views {
            let log = &self.nodes[view.node as usize - 1].log;
            self.hub.lock().event(&[20, view.node, view.state.last_zxid().0], || {
                let leads = view.leads.map_or(String::new(), |term| format!(", leads in term {term}"));
                format!("node {} has applied {}{leads}", view.node, view.state.last_zxid())
            });
            self.invariants.ask(|invariant| invariant.node(view, log, &mut self.history))?;
        }
        // A node may answer and die within one step, before another node shows that the entry is
        // committed. So an observation is judged only once the history has the observation's zxid.
        self.early.extend(self.shared.seen.take().into_iter().map(|observation| (now_ms, observation)));
        while self.early.front().is_some_and(|(_, observation)| observation.zxid() <= self.history.last()) {
            let Some((seen_ms, observation)) = self.early.pop_front() else { break };
            self.invariants.client(&self.history, &observation, seen_ms)?;
        }
        Ok(())
    }

    fn is_converged(&self) -> bool {
        let zxid = |node: &Node| node.replica().map(|replica| replica.state().last_zxid());
        let members = || self.nodes.iter().filter(|node| self.is_member(node));
        let first = members().next().and_then(zxid);
        first.is_some() && members().all(|node| zxid(node) == first && is_ready(node))
    }

    /// Tells whether a node is a member by the last membership that is known to be committed.
    fn is_member(&self, node: &Node) -> bool {
        self.history
            .membership()
            .map_or_else(|| self.history.was_member(node.id), |(_, membership)| membership.get_node(&node.id).is_some())
    }

    /// Runs the operator and the faults of members, in a seed that has them.
    fn change_members(&mut self) -> Result<(), String> {
        let Some(members) = &mut self.members else { return Ok(()) };
        members.act(&mut self.nodes, &mut self.faults, &self.history)?;
        self.shown.resize(self.nodes.len(), (0, Zxid(0), None));
        Ok(())
    }

    /// Tells clients the present members.
    fn tell_clients(&self) {
        if self.members.is_some() {
            let members = self.nodes.iter().filter(|node| node.fate != Fate::Removed && self.is_member(node));
            *self.shared.nodes.borrow_mut() = members.map(|node| node.id).collect();
        }
    }

    fn why_not_converged(&self, after_ms: u64) -> String {
        let status = |node: &Node| match &node.status {
            None => format!("node {} does not run", node.id),
            Some(status) => format!(
                "node {} is a {} in term {}, knows leader {:?}, has log {} committed {} applied {} and is {:?}",
                node.id,
                status.role.as_str(),
                status.term,
                status.leader,
                status.last_log,
                status.committed,
                status.applied,
                status.ready
            ),
        };
        let nodes: Vec<String> = self.nodes.iter().map(status).collect();
        format!(
            "liveness: {after_ms} ms after the last fault {} clients are not through, and: {}",
            self.lives.len(),
            nodes.join("; ")
        )
    }

    fn outcome(&self, seed: u64, failure: Option<String>) -> Outcome {
        // Only a flush that failed is a fault: a process may end before the next flush of a disk
        // that was to fail.
        let disk_faults: u64 = self.nodes.iter().map(|node| node.log.failures()).sum();
        let mut counts = self.faults.watcher.counts.clone();
        counts.merge(&self.history.changes, true);
        counts.merge(&self.faults.programs.seen, true);
        counts.note("entries", self.history.last_index());
        counts.note(ACKNOWLEDGED, self.invariants.acknowledged());
        counts.note(GRANTS, self.invariants.grants());
        counts.note(FAULTS, self.faults.count + disk_faults);
        counts.note("disks failed", disk_faults);
        counts.note("leaders transferred", self.members.as_ref().map_or(0, |members| members.transfers));
        let level = self.history.state(self.history.last()).map_or(LEVEL_MIN, znode::State::level);
        counts.note("levels raised", u64::from(level > LEVEL_MIN));
        let shared = self.hub.lock();
        Outcome {
            seed,
            hash: shared.trace.hash(),
            events: shared.trace.events(),
            counts,
            simulated_ms: shared.now_ms,
            last: shared.trace.last().map(str::to_string).collect(),
            failure,
        }
    }

    /// Drops nodes, events and network, in an order in which no remaining task uses a part that is
    /// dropped already.
    fn clear(&mut self) {
        self.nodes.clear();
        loop {
            // The hub must be unlocked here, because a connection locks it when it is dropped.
            let event = self.hub.any();
            let Some(event) = event else { break };
            drop(event);
        }
        self.hub.lock().network.presence.clear();
    }
}

fn is_ready(node: &Node) -> bool {
    node.status.as_ref().is_some_and(|status| status.ready == replica::Readiness::Ready)
}

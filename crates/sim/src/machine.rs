//! A node: its disk, its clock, and its process while it runs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use replica::simulation::{self, Duplex, Machine};
use replica::{Config, Consistency, Member, NodeStatus, Order, Program, Replica};
use storage::Identity;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use znode::{Levels, Request, State, Term};

use crate::call::{self, Call, CallId};
use crate::hub::{Event, Hub};
use crate::log_disk::LogDisk;
use crate::memory_disk::MemoryDisk;
use crate::network::{Door, MachineId};
use crate::observation::Standing;

/// Number of connections that may wait until the node accepts them.
const BACKLOG: usize = 128;
/// Number of clients' calls that may wait until the node begins them.
const CALLS_MAX: usize = 1_024;
/// Time that a node has for a request of [`Node::propose`] or [`Node::hand_over`].
const ASKED_MAX: Duration = Duration::from_secs(5);

/// Clock of a node.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Seconds by which this clock advances in 10,000 true seconds; above 10,000 the clock is fast.
    pub rate: u64,
    /// Time by which the node's wall clock is ahead of the true time.
    pub ahead_ms: i64,
}

impl Clock {
    /// The rate of a correct clock.
    pub const TRUE_RATE: u64 = 10_000;
}

/// Fate of a node: it serves, is dead, or was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The node serves, or comes back soon.
    Serves,
    /// The node is dead, and comes back when it is replaced or all faults are repaired.
    Dead,
    /// The node was removed, and has ended because of that.
    Removed,
}

/// A running process.
struct Process {
    runtime: Runtime,
    /// The time of the process's start, by the clock of its tokio runtime.
    started: Instant,
    started_ms: u64,
    replica: oneshot::Receiver<Result<Replica, String>>,
    running: Option<Replica>,
    failed: oneshot::Receiver<String>,
    /// Resolves when a shutdown is complete.
    shut_down: Option<oneshot::Receiver<()>>,
}

/// A node of the simulation.
pub struct Node {
    /// The id of the node.
    pub id: MachineId,
    /// The node's log.
    pub log: LogDisk,
    /// All other data on the node's disk.
    pub disk: MemoryDisk,
    /// The node's clock.
    pub clock: Clock,
    /// The fate of the node.
    pub fate: Fate,
    /// Simulated time until which the process is paused; 0 while it is not.
    pub paused_until_ms: u64,
    /// Number of starts so far.
    pub boots: u64,
    /// Number of times that the node lost written data, or its disk.
    pub losses: u64,
    /// The status of the process after its last step, read on its own clock; `None` until the
    /// process serves.
    pub status: Option<NodeStatus>,
    config: Config,
    hub: Hub,
    ahead_ms: Arc<AtomicI64>,
    process: Option<Process>,
}

/// Result of one step of a node's process.
#[derive(Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The process ran.
    Ran,
    /// The process does not run.
    Down,
    /// The process has shut down.
    Stopped,
    /// The process ended itself, for this reason.
    Failed(String),
}

struct World {
    hub: Hub,
    node: MachineId,
    /// Time by which the clock is ahead of the true time.
    ahead_ms: Arc<AtomicI64>,
}

impl simulation::World for World {
    fn connect(&self, addr: &str) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>> {
        let to = addr.rsplit('-').next().and_then(|id| id.parse().ok());
        let (hub, from) = (self.hub.clone(), self.node);
        Box::pin(async move {
            let to = to.ok_or(io::ErrorKind::NotFound)?;
            let (dialing, connected) = oneshot::channel();
            {
                let mut shared = hub.lock();
                let delay_ms = shared.latency_ms(from, to);
                shared.schedule(delay_ms, Event::Connect { from, to, dialing });
            }
            match connected.await {
                Ok(result) => result,
                // The packets are lost, so no answer comes.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn wall_clock_ms(&self) -> u64 {
        self.hub.lock().wall_clock_ms().saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed))
    }
}

impl Node {
    /// Returns a node that does not run yet.
    pub fn new(hub: Hub, id: MachineId, config: Config, clock: Clock, flush_ms: u64) -> Node {
        let log = LogDisk::new(hub.clone(), id, flush_ms);
        let config = Config { node_id: id, ..config };
        let disk = MemoryDisk::default();
        Node {
            id,
            log,
            disk,
            clock,
            fate: Fate::Serves,
            paused_until_ms: 0,
            boots: 0,
            losses: 0,
            status: None,
            config,
            hub,
            ahead_ms: Arc::default(),
            process: None,
        }
    }

    /// Returns the first members, as every node's configuration names them.
    pub fn members(count: u64) -> Vec<Member> {
        (1..=count).map(Node::member).collect()
    }

    /// Returns a member as a configuration names it.
    pub(crate) fn member(id: MachineId) -> Member {
        Member { id, peer_addr: format!("node-{id}"), http_addr: format!("node-{id}") }
    }

    /// Sets the members in the node's configuration from its next start on.
    pub(crate) fn set_members(&mut self, members: Vec<Member>) {
        self.config.members = members;
    }

    /// The format levels that the node's program knows.
    pub fn levels(&self) -> Levels {
        self.config.program.levels
    }

    /// Sets the program version that the node runs from its next start on.
    pub fn run_program(&mut self, program: Program) {
        self.config.program = program;
    }

    /// Tells whether the node called itself the leader at the end of its last step.
    pub fn leads(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.role == replica::Role::Leader)
    }

    /// The term in which the node called itself the leader at the end of its last step; `None` if
    /// it did not.
    pub fn leads_in(&self) -> Option<Term> {
        let status = self.status.as_ref()?;
        (status.role == replica::Role::Leader).then_some(status.term)
    }

    /// The node's own view of its role and state; `None` if its process has not run in this step.
    pub fn standing(&self, now_ms: u64) -> Option<Standing> {
        let process = self.process.as_ref()?;
        let replica = process.running.as_ref().filter(|_| now_ms >= self.paused_until_ms)?;
        // `sure_to_lead` reads the clock of the node's runtime.
        let _entered = process.runtime.enter();
        let (leads, sure) = (self.leads_in(), replica.sure_to_lead());
        let applied = replica.state().last_zxid();
        let role = self.status.as_ref().map(|status| status.role);
        let term = self.status.as_ref().map_or(Term(0), |status| status.term);
        let elects = matches!(role, Some(replica::Role::Leader | replica::Role::Candidate)) || sure.is_some();
        let voters = if elects { replica.voters().1 } else { Vec::new() };
        let (node, boot, losses) = (self.id, self.boots, self.losses);
        Some(Standing { node, boot, losses, applied, leads, sure, term, voters })
    }

    /// Tells whether the node's process runs.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Handle of the running node; `None` until the process serves.
    pub fn replica(&self) -> Option<&Replica> {
        self.process.as_ref()?.running.as_ref()
    }

    /// Starts the process.
    ///
    /// # Errors
    /// The node's error about its own disk. A loss of power must never cause one.
    pub fn start(&mut self) -> Result<(), String> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let identity = Identity { cluster_id: self.config.cluster_id.clone(), node_id: self.id };
        let disk = self.disk.open(identity).map_err(|error| error.to_string())?;
        let (peers, listener) = mpsc::channel(BACKLOG);
        let (calls, queue) = mpsc::channel(CALLS_MAX);
        let (started_tx, replica) = oneshot::channel();
        let (failed_tx, failed) = oneshot::channel();
        let log = self.log.open();
        let world = World { hub: self.hub.clone(), node: self.id, ahead_ms: Arc::clone(&self.ahead_ms) };
        let machine = Machine { world: Arc::new(world), listener, log_writes: log.writes.clone(), log, disk };
        let config = self.config.clone();
        let (hub, id) = (self.hub.clone(), self.id);
        let started = {
            let _entered = runtime.enter();
            tokio::spawn(async move {
                match Replica::start_simulated(config, machine).await {
                    Ok(replica) => {
                        let _ = started_tx.send(Ok(replica.clone()));
                        let failed = replica.failed();
                        tokio::spawn(answer(hub, id, replica, queue));
                        let _ = failed_tx.send(failed.await.to_string());
                    }
                    Err(error) => drop(started_tx.send(Err(error.to_string()))),
                }
            });
            Instant::now()
        };
        let started_ms = {
            let mut shared = self.hub.lock();
            // Connections to the previous process get a reset with their next packet.
            shared.break_connections(|machines| machines.contains(&id));
            let presence = shared.network.presence.entry(id).or_default();
            presence.up = true;
            presence.door = Some(Door { peers, calls });
            shared.event(&[4, self.id], || format!("node {id} starts"));
            shared.now_ms
        };
        self.boots += 1;
        self.process = Some(Process { runtime, started, started_ms, replica, running: None, failed, shut_down: None });
        Ok(())
    }

    /// Lets the process run up to the present simulated time.
    pub fn step(&mut self) -> Stepped {
        let now_ms = self.hub.now_ms();
        let rate = self.clock.rate;
        let Some(process) = &mut self.process else { return Stepped::Down };
        if now_ms < self.paused_until_ms {
            return Stepped::Ran;
        }
        self.ahead_ms.store(self.clock.ahead_ms, Ordering::Relaxed);
        let elapsed = Duration::from_millis((now_ms - process.started_ms) * rate / Clock::TRUE_RATE);
        let until = process.started + elapsed;
        process.runtime.block_on(async {
            if self.paused_until_ms > 0 {
                // The process was paused: all the time passed at once.
                let gap = until.saturating_duration_since(Instant::now());
                tokio::time::advance(gap).await;
            }
            tokio::time::sleep_until(until).await;
        });
        self.paused_until_ms = 0;
        if process.running.is_none() {
            match process.replica.try_recv() {
                Ok(Ok(replica)) => process.running = Some(replica),
                Ok(Err(why)) => return Stepped::Failed(why),
                Err(_) => {}
            }
        }
        {
            let _entered = process.runtime.enter();
            self.status = process.running.as_ref().map(Replica::status);
        }
        if let Ok(why) = process.failed.try_recv() {
            return Stepped::Failed(why);
        }
        if process.shut_down.as_mut().is_some_and(|done| done.try_recv().is_ok()) {
            return Stepped::Stopped;
        }
        Stepped::Ran
    }

    /// Asks the process to shut down.
    pub fn shut_down(&mut self) {
        let Some(process) = &mut self.process else { return };
        let Some(replica) = process.running.clone() else { return };
        let (done, shut_down) = oneshot::channel();
        process.shut_down = Some(shut_down);
        process.runtime.spawn(async move {
            replica.shutdown().await;
            let _ = done.send(());
        });
    }

    /// Proposes a write to the node, without waiting for an answer.
    pub fn propose(&mut self, request: Request) {
        self.ask(|replica, deadline| async move { drop(replica.propose(request, deadline).await) });
    }

    /// Begins a linearizable read at the node, and returns the channel of its result. `None` while
    /// the node does not serve.
    pub fn read(&self) -> Option<oneshot::Receiver<Result<Arc<State>, replica::Error>>> {
        let process = self.process.as_ref()?;
        let replica = process.running.clone()?;
        let (done, result) = oneshot::channel();
        process.runtime.spawn(async move {
            let _ = done.send(replica.read(Consistency::Linearizable, Instant::now() + ASKED_MAX).await);
        });
        Some(result)
    }

    /// Asks the node to transfer leadership to another voter.
    pub fn hand_over(&mut self) {
        self.ask(|replica, deadline| async move { drop(replica.order(Order::Transfer { to: None }, deadline).await) });
    }

    /// Drains the node, or ends its drain.
    pub fn drain(&mut self, drained: bool) {
        self.ask(move |replica, _| async move { _ = replica.set_drained(drained).await });
    }

    fn ask<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        ask: impl FnOnce(Replica, Instant) -> F + Send + 'static,
    ) {
        let Some(process) = &self.process else { return };
        let Some(replica) = process.running.clone() else { return };
        process.runtime.spawn(async move { ask(replica, Instant::now() + ASKED_MAX).await });
    }

    /// Kills the process at once. With `power` the whole machine loses power: other machines are
    /// not told of the end of their connections, and `power`/256 of the unflushed data stays on the
    /// disk. After a failed flush a random part stays.
    pub fn kill(&mut self, power: Option<u8>) {
        {
            let mut shared = self.hub.lock();
            let id = self.id;
            let presence = shared.network.presence.entry(id).or_default();
            presence.up = power.is_none();
            presence.door = None;
            shared.event(&[5, id, power.map_or(0, u64::from)], || match power {
                Some(part) => format!("node {id} loses power; {part}/256 of what was not flushed stays"),
                None => format!("node {id} is killed"),
            });
        }
        self.hub.lock().close_all(self.id);
        // Syncs of a snapshot never fail here. But log and snapshots share one disk, so a loss of
        // log data is a loss of snapshot data, too.
        let lost = self.log.crash(power);
        self.losses += u64::from(lost.is_some());
        self.disk.crash(lost.map_or(usize::MAX, |part| self.disk.unsynced() * usize::from(part) / 256));
        self.drop_process();
    }

    /// Handles the end of a process that ended by itself.
    pub fn bury(&mut self) {
        self.kill(None);
    }

    /// Loses everything on the disk. The process must not run.
    pub fn wipe(&mut self) {
        self.log.wipe();
        self.disk.wipe();
        self.losses += 1;
        let id = self.id;
        self.hub.lock().event(&[6, id], || format!("node {id} loses its disk"));
    }

    fn drop_process(&mut self) {
        self.status = None;
        let Some(process) = self.process.take() else { return };
        let Process { runtime, replica, running, failed, shut_down, .. } = process;
        drop((replica, running, failed, shut_down));
        // The tasks of the process end with its runtime.
        drop(runtime);
    }
}

/// Serves the calls of clients.
async fn answer(hub: Hub, node: MachineId, replica: Replica, mut calls: mpsc::Receiver<(MachineId, CallId, Call)>) {
    while let Some((client, id, call)) = calls.recv().await {
        let (hub, replica) = (hub.clone(), replica.clone());
        tokio::spawn(async move {
            let within = Duration::from_millis(match call {
                Call::Events { .. } | Call::WaitGrant(_) | Call::WaitExists(_) => 700,
                Call::Order(_) => 3_000,
                _ => 1_000,
            });
            let reply = call::serve(&replica, call, within).await;
            let mut shared = hub.lock();
            let delay_ms = shared.latency_ms(node, client);
            shared.schedule(delay_ms, Event::Reply { from: node, to: client, id, reply });
        });
    }
}

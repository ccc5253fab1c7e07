//! The one that breaks things, and mends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use testkit::LinkRule;

use crate::cluster::{Breakage, Cluster, LOSS_PERCENT, Network, disk};
use crate::recorder::Recorder;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// kill -9 of one node.
    Kill,
    /// kill -9 of the leader.
    KillLeader,
    /// kill -9 of a majority at once.
    KillMajority,
    /// kill -9 of all nodes at once.
    KillAll,
    /// SIGTERM of one node, which stops cleanly.
    Stop,
    /// SIGTERM of the leader, which stops cleanly.
    StopLeader,
    /// SIGSTOP of one node.
    Pause,
    /// SIGSTOP of the leader.
    PauseLeader,
    /// The network falls into two parts.
    Halves,
    /// The leader is cut off from everybody.
    IsolateLeader,
    /// Every node sees a majority, but no two the same.
    Ring,
    /// One node is heard by nobody but hears all, or hears nobody but is heard.
    OneWay,
    /// All links are slow, by tens of milliseconds that vary.
    Slow,
    /// Packets between nodes are lost, or, with proxies, connections break again and again.
    Loss,
    /// A node loses its data and comes back.
    Wipe,
    /// Wall clocks jump by up to an hour, forwards and backwards.
    Clock,
    /// One node's disk is full.
    DiskFull,
    /// One node's fsync fails, and what it had not written is lost.
    Fsync,
    /// One node or all at once lose power, and with it what they had not fsynced.
    PowerLoss,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 19] = [
        Fault::Kill,
        Fault::KillLeader,
        Fault::KillMajority,
        Fault::KillAll,
        Fault::Stop,
        Fault::StopLeader,
        Fault::Pause,
        Fault::PauseLeader,
        Fault::Halves,
        Fault::IsolateLeader,
        Fault::Ring,
        Fault::OneWay,
        Fault::Slow,
        Fault::Loss,
        Fault::Wipe,
        Fault::Clock,
        Fault::DiskFull,
        Fault::Fsync,
        Fault::PowerLoss,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::KillLeader => "kill-leader",
            Fault::KillMajority => "kill-majority",
            Fault::KillAll => "kill-all",
            Fault::Stop => "stop",
            Fault::StopLeader => "stop-leader",
            Fault::Pause => "pause",
            Fault::PauseLeader => "pause-leader",
            Fault::Halves => "halves",
            Fault::IsolateLeader => "isolate-leader",
            Fault::Ring => "ring",
            Fault::OneWay => "one-way",
            Fault::Slow => "slow",
            Fault::Loss => "loss",
            Fault::Wipe => "wipe",
            Fault::Clock => "clock",
            Fault::DiskFull => "disk-full",
            Fault::Fsync => "fsync",
            Fault::PowerLoss => "power-loss",
        }
    }

    /// The faults that a name on the command line stands for; `partition` stands for four, `none`
    /// for none.
    pub fn from_name(name: &str) -> Option<Vec<Fault>> {
        match name {
            "none" => Some(Vec::new()),
            "partition" => Some(vec![Fault::Halves, Fault::IsolateLeader, Fault::Ring, Fault::OneWay]),
            name => Fault::ALL.into_iter().find(|fault| fault.name() == name).map(|fault| vec![fault]),
        }
    }
}

/// How often each fault was made.
pub type Injected = BTreeMap<&'static str, u64>;

/// Why a nemesis did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A fault could not be made or mended: nothing can be said about the cluster.
    Harness(String),
    /// Everything was mended and the cluster did not recover.
    NotRecovered(String),
}

/// The pace of faults.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between the end of a fault and the next.
    pub calm: Duration,
    /// How long a fault lasts.
    pub fault: Duration,
}

/// Breaks a cluster, for as long as it is let.
pub struct Nemesis {
    faults: Vec<Fault>,
    pace: Pace,
    rng: fastrand::Rng,
    recorder: Arc<Recorder>,
    cluster: Arc<Mutex<Cluster>>,
    injected: Injected,
    /// Ends of nodes that the history has already.
    ends_told: usize,
    /// Faults whose turn is still to come before any comes again.
    bag: Vec<Fault>,
    /// What holds for links just now.
    rules: BTreeMap<(u64, u64), LinkRule>,
}

impl Nemesis {
    /// One that knows these faults.
    pub fn new(
        faults: Vec<Fault>,
        pace: Pace,
        seed: u64,
        recorder: Arc<Recorder>,
        cluster: Arc<Mutex<Cluster>>,
    ) -> Nemesis {
        let rng = fastrand::Rng::with_seed(seed);
        Nemesis {
            faults,
            pace,
            rng,
            recorder,
            cluster,
            injected: BTreeMap::new(),
            ends_told: 0,
            bag: Vec::new(),
            rules: BTreeMap::new(),
        }
    }

    /// Breaks and mends until told to stop, then mends. Gives how often each fault was made, and
    /// what went wrong.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> (Injected, Result<(), Trouble>) {
        let mut result = Ok(());
        while !self.faults.is_empty() && result.is_ok() {
            if timeout(self.pace.calm, stop.wait_for(|stop| *stop)).await.is_ok() {
                break;
            }
            result = self.round(&mut stop).await;
        }
        let healed = self.heal("final-heal").await;
        (self.injected, result.and(healed))
    }

    fn next_fault(&mut self) -> Option<Fault> {
        if self.bag.is_empty() {
            self.bag.clone_from(&self.faults);
            self.rng.shuffle(&mut self.bag);
        }
        self.bag.pop()
    }

    async fn round(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), Trouble> {
        let mut faults: Vec<Fault> = self.next_fault().into_iter().collect();
        // Now and then two at once.
        if self.faults.len() > 1 && self.rng.u8(..3) == 0 {
            faults.extend(self.next_fault());
            faults.dedup();
        }
        for fault in faults {
            self.recorder.nemesis(&format!("begin-{}", fault.name()), Value::Null);
            let done = self.inject(fault).await.map_err(Trouble::Harness)?;
            *self.injected.entry(fault.name()).or_default() += 1;
            self.recorder.nemesis(&format!("start-{}", fault.name()), done);
        }
        let lasts = self.pace.fault.mul_f64(0.6 + 0.8 * self.rng.f64());
        let _ = timeout(lasts, stop.wait_for(|stop| *stop)).await;
        self.heal("heal").await
    }

    async fn inject(&mut self, fault: Fault) -> Result<Value, String> {
        let cluster = self.cluster.clone();
        let mut cluster = cluster.lock().await;
        let all: Vec<u64> = (1..=cluster.endpoints.len() as u64).collect();
        let one = all[self.rng.usize(..all.len())];
        let mut leader = None;
        if matches!(fault, Fault::KillLeader | Fault::StopLeader | Fault::PauseLeader | Fault::IsolateLeader) {
            leader = cluster.leader().await;
        }
        let leader = leader.unwrap_or(one);
        match fault {
            Fault::Kill => Ok(kill(&mut cluster, &[one])),
            Fault::KillLeader => Ok(kill(&mut cluster, &[leader])),
            Fault::KillMajority => {
                let mut some = all.clone();
                self.rng.shuffle(&mut some);
                Ok(kill(&mut cluster, &some[..all.len() / 2 + 1]))
            }
            Fault::KillAll => Ok(kill(&mut cluster, &all)),
            Fault::Stop => Ok(stop(&mut cluster, one).await),
            Fault::StopLeader => Ok(stop(&mut cluster, leader).await),
            Fault::Pause => Ok(pause(&mut cluster, one)),
            Fault::PauseLeader => Ok(pause(&mut cluster, leader)),
            Fault::Halves | Fault::IsolateLeader | Fault::Ring | Fault::OneWay | Fault::Slow | Fault::Loss => {
                self.rewire(fault, &cluster, &all, leader)
            }
            Fault::Wipe => {
                let node = &mut cluster.nodes[(one - 1) as usize];
                node.wipe().map_err(|error| format!("wipe of node {one}: {error}"))?;
                cluster.restart(one).map_err(|error| format!("restart of node {one}: {error}"))?;
                Ok(json!({"nodes": [one]}))
            }
            Fault::PowerLoss => {
                let nodes = if self.rng.bool() { all } else { vec![one] };
                kill(&mut cluster, &nodes);
                lose_power(&mut cluster, &nodes, &mut self.rng)
            }
            Fault::Clock => self.set_clocks(&mut cluster),
            Fault::DiskFull | Fault::Fsync => {
                let node = &mut cluster.nodes[(one - 1) as usize];
                let filled = if fault == Fault::DiskFull {
                    node.break_disk(Breakage::Full);
                    disk::fill(&node.data_dir)
                } else {
                    node.break_disk(Breakage::LosesWrites);
                    disk::fill_below(&node.data_dir)
                };
                filled.map_err(|error| format!("disk of node {one}: {error}"))?;
                Ok(json!({"nodes": [one]}))
            }
        }
    }

    fn rewire(&mut self, fault: Fault, cluster: &Cluster, all: &[u64], leader: u64) -> Result<Value, String> {
        let network = cluster.network.as_ref().ok_or("the links of a cluster that was there before are not ours")?;
        let mut shuffled = all.to_vec();
        self.rng.shuffle(&mut shuffled);
        let pairs = || all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        let cut = LinkRule::CUT;
        let (rules, told): (BTreeMap<(u64, u64), LinkRule>, Value) = match fault {
            Fault::Halves => {
                let (one, other) = shuffled.split_at(all.len() / 2);
                let crosses = |(a, b): &(u64, u64)| one.contains(a) != one.contains(b);
                (pairs().filter(crosses).map(|link| (link, cut)).collect(), json!({"parts": [one, other]}))
            }
            Fault::IsolateLeader => {
                let touches = |(a, b): &(u64, u64)| *a == leader || *b == leader;
                (pairs().filter(touches).map(|link| (link, cut)).collect(), json!({"leader": leader}))
            }
            Fault::Ring => {
                // On a ring each node sees its neighbours: itself and half of the others, rounded
                // up.
                let reach = all.len().div_ceil(2) / 2;
                let place = |node: u64| shuffled.iter().position(|other| *other == node).unwrap_or(0);
                let apart = |(a, b): &(u64, u64)| {
                    let gap = place(*a).abs_diff(place(*b));
                    gap.min(all.len() - gap) > reach
                };
                // Three nodes on a ring all see each other: one link goes.
                let lone = (shuffled[0], shuffled[shuffled.len() - 1]);
                let is_lone = |(a, b): &(u64, u64)| all.len() <= 3 && [(*a, *b), (*b, *a)].contains(&lone);
                let far = pairs().filter(|link| apart(link) || is_lone(link));
                (far.map(|link| (link, cut)).collect(), json!({"ring": shuffled}))
            }
            Fault::OneWay => {
                let (node, deaf) = (shuffled[0], self.rng.bool());
                let blocked = |(a, b): &(u64, u64)| if deaf { *b == node } else { *a == node };
                let told = json!({"node": node, "is": if deaf { "deaf" } else { "dumb" }});
                (pairs().filter(blocked).map(|link| (link, cut)).collect(), told)
            }
            Fault::Slow => {
                let delay = Duration::from_millis(self.rng.u64(5..60));
                let rule = LinkRule { delay, jitter: delay, ..LinkRule::default() };
                (pairs().map(|link| (link, rule)).collect(), json!({"delay_ms": delay.as_millis() as u64}))
            }
            _ => {
                let rule = LinkRule { break_one_in: 20, ..LinkRule::default() };
                let told = match network {
                    Network::Proxies(..) => json!({"connection_breaks_one_read_in": rule.break_one_in}),
                    Network::Namespaces(_) => json!({"packets_dropped_percent": LOSS_PERCENT}),
                };
                (pairs().map(|link| (link, rule)).collect(), told)
            }
        };
        // On top of what another fault has done to the links.
        for (link, rule) in rules {
            let all = self.rules.entry(link).or_default();
            *all = all.and(rule);
        }
        network.set(self.rules.clone()).map_err(|error| error.to_string())?;
        Ok(told)
    }

    fn set_clocks(&mut self, cluster: &mut Cluster) -> Result<Value, String> {
        let mut offsets = Vec::new();
        for node in &mut cluster.nodes {
            let offset = self.rng.i64(-3_600..=3_600);
            if !node.set_clock(offset).map_err(|error| error.to_string())? {
                return Err("clocks cannot jump: libfaketime was not found (Debian: apt-get install faketime)".into());
            }
            offsets.push(offset);
        }
        Ok(json!({"offsets_s": offsets}))
    }

    /// Undoes everything and starts what does not run, be it killed or ended because of its disk. A
    /// node that ended for no such reason is started too, so that the run can go on, and is held
    /// against it at the end.
    async fn heal(&mut self, f: &str) -> Result<(), Trouble> {
        let mut cluster = self.cluster.lock().await;
        self.rules.clear();
        mend(&mut cluster).map_err(Trouble::Harness)?;
        let ended: Vec<Value> =
            cluster.ends().into_iter().map(|end| json!({"node": end.node, "how": end.how})).collect();
        let (_, ended) = ended.split_at(std::mem::replace(&mut self.ends_told, ended.len()));
        // A second disk must not be lost before the first node has its data back.
        let careful = self.faults.iter().any(|fault| matches!(fault, Fault::Wipe | Fault::Fsync | Fault::DiskFull));
        // Now and then the power goes again while a node still recovers.
        let patient = self.faults.contains(&Fault::PowerLoss) && self.rng.u8(..4) > 0;
        let waits = careful || patient || f == "final-heal";
        self.recorder.nemesis(f, json!({"ended_by_themselves": ended, "waits_for_nodes": waits}));
        for id in 1..=cluster.nodes.len() as u64 {
            cluster.restart(id).map_err(|error| Trouble::Harness(format!("start of node {id}: {error}")))?;
        }
        if waits {
            cluster.recover().await.map_err(|error| Trouble::NotRecovered(error.to_string()))?;
            self.recorder.nemesis("recovered", Value::Null);
        }
        Ok(())
    }
}

/// Undoes what was done to links, disks, clocks and processes that stand still.
fn mend(cluster: &mut Cluster) -> Result<(), String> {
    if let Some(network) = &cluster.network {
        network.set(BTreeMap::new()).map_err(|error| error.to_string())?;
    }
    for node in &mut cluster.nodes {
        disk::mend(&node.data_dir).map_err(|error| format!("disk of node {}: {error}", node.id))?;
        node.mend_disk();
        if node.is_paused() {
            node.pause(false);
        }
        node.set_clock(0).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn kill(cluster: &mut Cluster, ids: &[u64]) -> Value {
    for id in ids {
        cluster.nodes[(*id - 1) as usize].kill();
    }
    json!({"nodes": ids})
}

fn lose_power(cluster: &mut Cluster, ids: &[u64], rng: &mut fastrand::Rng) -> Result<Value, String> {
    let mut lost = Vec::new();
    for id in ids {
        let seed = rng.u64(..);
        let data_dir = &cluster.nodes[(*id - 1) as usize].data_dir;
        let cut = cluster.disks.lose_power(data_dir, seed).map_err(|error| format!("disk of node {id}: {error}"))?;
        lost.push(
            json!({"node": id, "pages": [cut.pages_kept, cut.pages_lost], "names": [cut.names_kept, cut.names_lost]}),
        );
    }
    Ok(json!({"nodes": ids, "kept_and_lost": lost}))
}

async fn stop(cluster: &mut Cluster, id: u64) -> Value {
    cluster.nodes[(id - 1) as usize].stop().await;
    json!({"nodes": [id]})
}

fn pause(cluster: &mut Cluster, id: u64) -> Value {
    cluster.nodes[(id - 1) as usize].pause(true);
    json!({"nodes": [id]})
}

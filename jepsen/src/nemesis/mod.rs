//! The nemesis, which makes faults in a cluster and mends them.
//!
//! ```text
//!  kind.rs      the interface of a fault, and the scene that it acts on
//!  processes.rs, disks.rs, links.rs           processes with their clocks, disks, links
//!  operator.rs, members.rs, upgrade.rs        the work of an operator
//!  fault.rs     the list of all faults: name, requirement, constructor
//!  mod.rs       the choice of the next fault, and the mending
//! ```

mod disks;
mod fault;
mod kind;
mod links;
mod members;
mod operator;
mod processes;
mod upgrade;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use crate::cluster::{Clock, Cluster};
use crate::recorder::Recorder;

pub use fault::{Fault, Need};
use kind::{AnyKind, Rules, Scene};

/// Number of times that each fault was made.
pub type Injected = BTreeMap<String, u64>;

/// Faults that a nemesis has made, and their outcome.
#[derive(Debug, Default)]
pub struct Broken {
    /// Number of times that each fault was made.
    pub injected: Injected,
    /// Sums of the counts that the faults returned for the report, by name.
    pub figures: BTreeMap<&'static str, u64>,
    /// Descriptions of promises that the cluster broke under a fault.
    pub wrong: Vec<String>,
    /// Reason why the nemesis did not finish; `None` if it did.
    pub trouble: Option<Trouble>,
}

/// Reason why a nemesis did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A fault could not be made or mended, which says nothing about the cluster.
    Harness(String),
    /// The cluster did not recover after everything was mended.
    NotRecovered(String),
}

/// Length of a fault, and of the time without faults after it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between the end of a fault and the beginning of the next.
    pub calm: Duration,
    /// Approximate length of a fault.
    pub fault: Duration,
}

/// A fault that is under way, and the time of the next call that continues it; `None` for no
/// further call.
struct UnderWay {
    fault: Fault,
    kind: Box<dyn AnyKind>,
    next: Option<Instant>,
}

/// State of the nemesis, which makes faults in a cluster again and again, and mends them.
pub struct Nemesis {
    faults: Vec<Fault>,
    pace: Pace,
    rng: fastrand::Rng,
    recorder: Arc<Recorder>,
    cluster: Arc<Mutex<Cluster>>,
    broken: Broken,
    /// Number of unexpected process ends of nodes that the history already has.
    ends_told: usize,
    /// Faults that are still to be made before any fault is repeated, in random order.
    bag: Vec<Fault>,
    /// Present rules of links, by name of the fault that set them.
    links: BTreeMap<&'static str, Rules>,
    /// True once each fault was made.
    completed: watch::Sender<bool>,
}

impl Nemesis {
    /// Returns a nemesis that makes these faults. It sets `completed` once each of them was made.
    pub fn new(
        faults: Vec<Fault>,
        pace: Pace,
        seed: u64,
        recorder: Arc<Recorder>,
        cluster: Arc<Mutex<Cluster>>,
        completed: watch::Sender<bool>,
    ) -> Nemesis {
        let rng = fastrand::Rng::with_seed(seed);
        Nemesis {
            faults,
            pace,
            rng,
            recorder,
            cluster,
            broken: Broken::default(),
            ends_told: 0,
            bag: Vec::new(),
            links: BTreeMap::new(),
            completed,
        }
    }

    /// Makes and mends faults until `stop` is true, and then mends a last time.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Broken {
        let mut result = Ok(());
        while !self.faults.is_empty() && result.is_ok() {
            if timeout(self.pace.calm, stop.wait_for(|stop| *stop)).await.is_ok() {
                break;
            }
            result = self.round(&mut stop).await;
        }
        let healed = self.heal("final-heal").await;
        self.broken.trouble = result.and(healed).err();
        self.broken
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
        // In a third of the rounds two faults are made at once.
        if self.faults.len() > 1 && self.rng.u8(..3) == 0 {
            faults.extend(self.next_fault());
            faults.dedup();
        }
        let alone = faults.len() == 1;
        let mut under_way = Vec::new();
        for fault in faults {
            self.recorder.nemesis(&format!("begin-{}", fault.name()), Value::Null);
            let mut kind = fault.make();
            let mut cluster = self.cluster.lock().await;
            let (rng, links) = (&mut self.rng, &mut self.links);
            let scene = Scene { cluster: &mut cluster, rng, links, name: fault.name(), alone };
            let done = kind.begin(scene).await.map_err(Trouble::Harness)?;
            drop(cluster);
            self.recorder.nemesis(&format!("start-{}", fault.name()), done);
            under_way.push(UnderWay { fault, kind, next: Some(Instant::now()) });
        }
        let least = under_way.iter().map(|one| one.kind.least()).max().unwrap_or_default();
        let lasts = self.pace.fault.mul_f64(0.6 + 0.8 * self.rng.f64()).max(least);
        self.go_on(&mut under_way, Instant::now() + lasts, alone, stop).await?;
        for one in &mut under_way {
            self.end(one, alone).await?;
        }
        self.heal("heal").await
    }

    /// Continues the faults until `until`, or until `stop` is true.
    async fn go_on(
        &mut self,
        under_way: &mut [UnderWay],
        until: Instant,
        alone: bool,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Trouble> {
        loop {
            let due = under_way.iter().filter_map(|one| one.next).min().unwrap_or(until).min(until);
            let stopped = timeout(due - Instant::now(), stop.wait_for(|stop| *stop)).await.is_ok();
            if stopped || Instant::now() >= until {
                return Ok(());
            }
            for one in under_way.iter_mut().filter(|one| one.next.is_some_and(|next| next <= Instant::now())) {
                let mut cluster = self.cluster.lock().await;
                let (rng, links) = (&mut self.rng, &mut self.links);
                let scene = Scene { cluster: &mut cluster, rng, links, name: one.fault.name(), alone };
                let pause = one.kind.go_on(scene).await.map_err(Trouble::Harness)?;
                one.next = pause.map(|pause| Instant::now() + pause);
            }
        }
    }

    async fn end(&mut self, one: &mut UnderWay, alone: bool) -> Result<(), Trouble> {
        let name = one.fault.name();
        let mut cluster = self.cluster.lock().await;
        let scene = Scene { cluster: &mut cluster, rng: &mut self.rng, links: &mut self.links, name, alone };
        let outcome = one.kind.end(scene).await.map_err(Trouble::Harness)?;
        if outcome.made {
            *self.broken.injected.entry(name.to_owned()).or_default() += 1;
        }
        if self.faults.iter().all(|fault| self.broken.injected.contains_key(fault.name())) {
            self.completed.send_replace(true);
        }
        for (figure, count) in outcome.figures {
            *self.broken.figures.entry(figure).or_default() += count;
        }
        self.broken.wrong.extend(outcome.wrong);
        if !outcome.told.is_null() {
            self.recorder.nemesis(&format!("end-{name}"), outcome.told);
        }
        Ok(())
    }

    /// Undoes all faults, and starts every node that does not run. A node that ended without an
    /// excuse is started as well, so that the run can go on; its end is judged after the run.
    async fn heal(&mut self, f: &str) -> Result<(), Trouble> {
        let mut cluster = self.cluster.lock().await;
        self.links.clear();
        mend(&mut cluster).map_err(Trouble::Harness)?;
        let ended: Vec<Value> =
            cluster.ends().into_iter().map(|end| json!({"node": end.node, "how": end.how})).collect();
        let (_, ended) = ended.split_at(std::mem::replace(&mut self.ends_told, ended.len()));
        // The next fault may make another node lose its data, or signal a node that must have
        // started before. So the cluster must recover first.
        let careful = self.faults.iter().any(|fault| {
            use Fault::{DiskFull, Fsync, Members, Restore, Rotation, Wipe};
            matches!(fault, Wipe | Fsync | DiskFull | Members | Restore | Rotation)
        });
        // In a quarter of the rounds, power may be lost again while a node still recovers.
        let patient = self.faults.contains(&Fault::PowerLoss) && self.rng.u8(..4) > 0;
        let waits = careful || patient || f == "final-heal";
        self.recorder.nemesis(f, json!({"ended_by_themselves": ended, "waits_for_nodes": waits}));
        for id in cluster.endpoints.members() {
            cluster.restart(id).map_err(|error| Trouble::Harness(format!("start of node {id}: {error}")))?;
        }
        if waits {
            cluster.recover().await.map_err(|error| Trouble::NotRecovered(error.to_string()))?;
            self.recorder.nemesis("recovered", Value::Null);
        }
        Ok(())
    }
}

/// Undoes the faults of links, disks, clocks and control groups, and resumes paused processes.
fn mend(cluster: &mut Cluster) -> Result<(), String> {
    cluster.network.set(BTreeMap::new()).map_err(|error| error.to_string())?;
    for node in &mut cluster.nodes {
        node.mend_disk();
        node.pause(false);
        node.set_clock(Clock::RIGHT).map_err(|error| error.to_string())?;
        node.release().map_err(|error| format!("control group of node {}: {error}", node.id))?;
    }
    Ok(())
}

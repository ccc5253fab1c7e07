//! One run: it starts a cluster, breaks and mends it, reads the final state, judges and reports.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::ballast;
use crate::check::{self, Workload};
use crate::client::Client;
use crate::cluster::{Cluster, Node, Plan, program_beside};
use crate::convergence;
use crate::endpoints::Endpoints;
use crate::ends;
use crate::history::Entry;
use crate::needs;
use crate::nemesis::{Broken, Fault, Injected, Need, Nemesis, Pace, Trouble};
use crate::options::Options;
use crate::pulse;
use crate::recorder::{Counts, Recorder};
use crate::replay;
use crate::report::{self, Results};
use crate::snapshots;
use crate::store;
use crate::verdict::{Validity, Verdict};
use crate::workload::{
    Bank, Delays, Doors, Elections, Ephemerals, Fenced, LockKind, Locks, Mixed, QueueKind, Queues, Registers, Retries,
    Revokes, Sequences, Sessions, Watchers, Work, make_root,
};

/// Longest time for the workers' last requests and for the reads of the final state.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// Longest time beyond `--time` for faults that were not made yet.
const LONGER_MAX: Duration = Duration::from_secs(120);

/// Number of nodes that can join the cluster in a run with the nemesis `members`.
const SPARES: u64 = 30;

/// Time for which clients go on after the last fault is mended, so that grants and events are
/// judged without faults. It is the time that a cluster gets to recover, twice the longest time of
/// a grant, and three seconds more.
const LAST_CALM: Duration = Duration::from_nanos(check::SETTLE_NS + 2 * check::GRANT_MAX_NS + 3_000_000_000);

/// Tells whether a workload has a negative control: a mode in which clients leave out a part of
/// their protocol, so that the checker must find the workload's promise broken.
pub fn has_negative(workload: Workload) -> bool {
    use Workload::{ExactlyOnce, FencedLock, Register, Session, Watch};
    matches!(workload, Register | FencedLock | ExactlyOnce | Session | Watch)
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the clients began.
    pub elapsed: Duration,
    /// Operations so far.
    pub counts: Counts,
}

/// Runs a workload and judges it.
///
/// # Errors
/// When the harness failed: the cluster did not start, a fault could not be made, results could not
/// be written.
pub async fn run(options: &Options, progress: impl Fn(Progress) + Send + 'static) -> Result<Results, String> {
    needs::check(&options.faults, options.network)?;
    options.check()?;
    let dir = match &options.dir {
        Some(dir) => dir.clone(),
        None => {
            let made = store::new_run(&options.common.store, options.workload.name());
            made.map_err(|error| told("the store", &error))?
        }
    };
    let cluster = start_cluster(options, &dir).await.map_err(|error| told("the cluster", &error))?;
    let recorder = Arc::new(Recorder::create(&dir).map_err(|error| told("the history", &error))?);
    let run = Run { options: options.clone(), cluster: Arc::new(Mutex::new(cluster)), recorder, dir };
    let (n, negative) = (options.common.concurrency, options.negative);
    let zookeeper = run.cluster.lock().await.zookeeper.clone().into();
    let doors = Doors { which: options.common.door, zookeeper };
    match options.workload {
        Workload::Register => run.go(Registers::new(doors, negative), progress).await,
        Workload::Lock => run.go(Locks::new(doors, LockKind::Plain, n), progress).await,
        Workload::ReentrantLock => run.go(Locks::new(doors, LockKind::Reentrant, n), progress).await,
        Workload::RwLock => run.go(Locks::new(doors, LockKind::ReadWrite, n), progress).await,
        Workload::FencedLock => run.go(Fenced::new(n, negative), progress).await,
        Workload::Queue => run.go(Queues::new(QueueKind::Plain, n), progress).await,
        Workload::Sequential => run.go(Sequences::default(), progress).await,
        Workload::Ephemeral => run.go(Ephemerals::default(), progress).await,
        Workload::Watch => run.go(Watchers::new(doors, n, negative), progress).await,
        Workload::Multi => run.go(Bank::new(doors), progress).await,
        Workload::Session => run.go(Sessions::new(negative), progress).await,
        Workload::ExactlyOnce => run.go(Retries::new(negative), progress).await,
        Workload::Semaphore => run.go(Queues::new(QueueKind::Semaphore, n), progress).await,
        Workload::Election => run.go(Elections::new(n), progress).await,
        Workload::Mixed => run.go(Mixed::new(n), progress).await,
        Workload::Revoke => run.go(Revokes::new(n), progress).await,
        Workload::LockDelay => run.go(Delays::new(n), progress).await,
        Workload::Restore => run.go(Delays::none(n), progress).await,
    }
}

fn told(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}

async fn start_cluster(options: &Options, dir: &std::path::Path) -> io::Result<Cluster> {
    if !options.endpoints.is_empty() {
        return Ok(Cluster::of(options.endpoints.clone()));
    }
    let common = &options.common;
    let own_disks = options.faults.iter().any(|fault| fault.need() == Need::Disk);
    let changes = options.faults.contains(&Fault::Members);
    let spares = if changes { SPARES } else { 0 };
    let mut settings = options.settings.clone();
    if own_disks {
        settings.push_str("\ndisk.free_bytes_min = \"8MiB\"\n");
    }
    // A new member becomes a voter within seconds, so that a run has several changes.
    if changes && !settings.contains("raft.promotion_delay") {
        settings.push_str("\nraft.promotion_delay = \"1s\"\n");
    }
    // After a restore the cluster grants no lock for the longest session timeout.
    if options.faults.contains(&Fault::Restore) && !settings.contains("limits.session_timeout_max") {
        settings.push_str("\nlimits.session_timeout_max = \"4s\"\n");
    }
    let program = match &common.zlock {
        Some(program) => program.clone(),
        None => program_beside()?,
    };
    let jumps = options.faults.iter().any(|fault| fault.need() == Need::Faketime);
    let faketime = if jumps { Some(needs::faketime()?) } else { None };
    let (nodes, dir, network) = (common.nodes, dir.to_owned(), options.network);
    let (next, peer_tls) = (common.zlock_next.clone(), common.peer_tls);
    let plan = Plan { nodes, spares, program, next, dir, faketime, own_disks, settings, network, peer_tls };
    Cluster::start(&plan).await
}

struct Run {
    options: Options,
    cluster: Arc<Mutex<Cluster>>,
    recorder: Arc<Recorder>,
    dir: PathBuf,
}

/// Schedule of the moments at which workers begin their next steps, so that all workers together
/// keep the rate.
struct Pacer {
    next: std::sync::Mutex<Instant>,
    gap: Duration,
}

impl Pacer {
    fn slot(&self, rng: &mut fastrand::Rng) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let slot = (*next).max(Instant::now());
        *next = slot + self.gap.mul_f64(0.5 + rng.f64());
        slot
    }
}

impl Run {
    async fn go<W: Work>(self, work: W, progress: impl Fn(Progress) + Send + 'static) -> Result<Results, String> {
        let endpoints = self.cluster.lock().await.endpoints.clone();
        let mut client = Client::new(&endpoints, &self.recorder, self.options.seed);
        make_root(&mut client, self.options.workload.name()).await?;
        work.prepare(&mut client).await?;
        ballast::load(&endpoints, self.options.common.ballast, self.options.seed).await?;
        let work = Arc::new(work);
        let began = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let (completed, complete) = watch::channel(self.options.faults.is_empty());
        let nemesis = Nemesis::new(
            self.options.faults.clone(),
            Pace { calm: self.options.common.calm, fault: self.options.common.fault },
            self.options.seed ^ 0x5eed,
            self.recorder.clone(),
            self.cluster.clone(),
            completed,
        );
        // A `JoinSet` aborts its tasks when this function returns, also with an error.
        let (mut breaking, mut ticking) = (JoinSet::new(), JoinSet::new());
        breaking.spawn(nemesis.run(stopped));
        ticking.spawn(tick(self.recorder.clone(), began, progress));
        let end = Arc::new(OnceLock::new());
        let last_calm = self.options.workload.is_timed() && !self.options.faults.is_empty();
        if self.options.workload.is_timed() {
            ticking.spawn(pulse::beat(Client::new(&endpoints, &self.recorder, self.options.seed ^ 0x9015e)));
        }
        let mend = async {
            time_and_faults(self.options.common.time, complete).await;
            if !last_calm {
                let _ = end.set(Instant::now());
                return None;
            }
            stop.send_replace(true);
            let mended = breaking.join_next().await;
            let _ = end.set(Instant::now() + LAST_CALM);
            mended
        };
        let (workers, mended) = tokio::join!(self.work_until(&work, &endpoints, &end), mend);
        drop(ticking);
        stop.send_replace(true);
        let broken = if last_calm { mended } else { breaking.join_next().await };
        let broken = broken.ok_or("the nemesis is gone")?.map_err(|error| format!("the nemesis: {error}"))?;
        let settled = tokio::time::timeout(SETTLE_MAX, settle(&*work, workers?, &mut client)).await;
        let unsettled = match settled {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("the last reads were not answered within {} s", SETTLE_MAX.as_secs())),
        };
        self.judge(broken, unsettled).await
    }

    async fn work_until<W: Work>(
        &self,
        work: &Arc<W>,
        endpoints: &Endpoints,
        end: &Arc<OnceLock<Instant>>,
    ) -> Result<Vec<(W::Worker, Client)>, String> {
        let gap = Duration::from_secs_f64(1.0 / self.options.common.rate.max(0.001));
        let pacer = Arc::new(Pacer { next: std::sync::Mutex::new(Instant::now()), gap });
        let mut workers = JoinSet::new();
        for index in 0..self.options.common.concurrency {
            let seed = self.options.seed.wrapping_mul(1_000_003).wrapping_add(index as u64 + 1);
            let mut client = Client::new(endpoints, &self.recorder, seed);
            let (work, pacer, end) = (work.clone(), pacer.clone(), end.clone());
            workers.spawn(async move {
                let mut worker = work.worker(index);
                loop {
                    let slot = pacer.slot(&mut client.rng);
                    if end.get().is_some_and(|end| slot >= *end) {
                        return Ok((worker, client));
                    }
                    tokio::time::sleep_until(slot.into()).await;
                    // A worker's step may fail to open a session or to create a znode while the
                    // cluster is down. The next step tries again, so the error counts only at the
                    // end.
                    if let Err(why) = work.step(&mut worker, &mut client).await
                        && end.get().is_some_and(|end| Instant::now() >= *end)
                    {
                        return Err(why);
                    }
                }
            });
        }
        let mut done = Vec::new();
        while let Some(worker) = workers.join_next().await {
            done.push(worker.map_err(|error| format!("a worker: {error}"))??);
        }
        Ok(done)
    }

    /// Judges events that the clients' history does not show: the nodes' final states, unexpected
    /// process ends, snapshots, and failures of the nemesis. Returns the number of
    /// times that each fault was made, and the verdict.
    async fn judge_cluster(&self, cluster: &mut Cluster, broken: Broken, entries: &[Entry]) -> (Injected, Verdict) {
        let Broken { injected: faults, figures, wrong, trouble } = broken;
        let mut convergence = convergence::check(cluster).await;
        let ends = cluster.ends();
        ends::judge(&ends, &mut convergence);
        if !cluster.nodes.is_empty() {
            snapshots::count(cluster, &mut convergence).await;
            snapshots::judge(&self.options.settings, snapshots::missed(entries), &mut convergence);
        }
        // A node must end when an fsync fails. If no node has ended, no fsync has failed.
        if faults.contains_key(Fault::Fsync.name()) && !ends.iter().any(|end| end.for_its_disk) {
            convergence.doubt("no fsync has failed: no node ended for its disk".to_owned());
        }
        figures.into_iter().for_each(|(name, count)| convergence.figure(name, count));
        wrong.into_iter().for_each(|why| convergence.found("fault-not-met", why, &[]));
        match trouble {
            Some(Trouble::NotRecovered(why)) => convergence.found("not-recovered", why, &[]),
            Some(Trouble::Harness(why)) => convergence.doubt(why),
            None => {}
        }
        (faults, convergence)
    }

    async fn judge(self, broken: Broken, unsettled: Option<String>) -> Result<Results, String> {
        let entries = self.recorder.finish().map_err(|error| told("the history", &error))?;
        let mut cluster = self.cluster.lock().await;
        let (faults, convergence) = self.judge_cluster(&mut cluster, broken, &entries).await;
        let alarms: Vec<String> = cluster.nodes.iter().flat_map(|node| node.alarms()).collect();
        // The nodes are ended before the check, because the checkers may need the memory.
        cluster.nodes.iter_mut().for_each(Node::kill);
        let used = cluster.nodes.iter().filter(|node| node.was_used());
        let data_dirs: Vec<PathBuf> = used.map(|node| node.data_dir.clone()).collect();
        let facts = match &self.options.common.replay {
            Some(program) => replay::run(program, &data_dirs, &self.dir).await?,
            None => Vec::new(),
        };
        let (workload, counts, began) = (self.options.workload, self.recorder.counts(), Instant::now());
        let check = move || {
            let mut verdict = check::check(workload, &entries);
            replay::judge(workload, &entries, &facts, &mut verdict);
            verdict
        };
        let checked = tokio::task::spawn_blocking(check).await;
        let mut checker = checked.map_err(|error| format!("the checker: {error}"))?;
        let check_ms = began.elapsed().as_millis() as u64;
        self.check_worth(&faults, counts, &mut checker);
        if let Some(why) = unsettled {
            checker.doubt(why);
        }
        let mut valid = checker.valid.max(convergence.valid);
        if !alarms.is_empty() {
            valid = Validity::Invalid;
        }
        let results = Results {
            valid,
            workload: self.options.workload.name().to_owned(),
            command: self.options.command(),
            seed: self.options.seed,
            ok: counts.ok,
            fail: counts.fail,
            info: counts.info,
            faults,
            checker,
            convergence,
            alarms,
            check_ms,
            dir: self.dir,
        };
        if valid == Validity::Valid {
            // Nodes' data is kept for invalid and unknown runs only: a matrix has hundreds of runs.
            data_dirs.iter().for_each(|dir| _ = std::fs::remove_dir_all(dir));
        } else {
            let saved = cluster.nodes.iter().try_for_each(Node::save_disk);
            saved.map_err(|error| told("what the disks hold", &error))?;
        }
        report::write(&results.dir, &results).map_err(|error| told("the report", &error))?;
        Ok(results)
    }

    /// Makes a valid verdict unknown when too few operations were acknowledged or a fault was never
    /// made.
    fn check_worth(&self, faults: &Injected, counts: Counts, checker: &mut Verdict) {
        check::check_worth(self.options.workload, checker);
        let wanted = self.options.common.time.as_secs().min(20);
        if counts.ok < wanted {
            checker.doubt(format!("only {} operations were acknowledged", counts.ok));
        }
        for fault in &self.options.faults {
            if !faults.contains_key(fault.name()) {
                checker.doubt(format!("the fault {} was never made: run for longer", fault.name()));
            }
        }
    }
}

/// Waits for `time`, and then until every fault was made at least once, for at most [`LONGER_MAX`].
async fn time_and_faults(time: Duration, mut complete: watch::Receiver<bool>) {
    tokio::time::sleep(time).await;
    // An error means that the nemesis has ended. Its trouble is judged later.
    let _ = tokio::time::timeout(LONGER_MAX, complete.wait_for(|complete| *complete)).await;
}

async fn tick(recorder: Arc<Recorder>, began: Instant, progress: impl Fn(Progress)) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        progress(Progress { elapsed: began.elapsed(), counts: recorder.counts() });
    }
}

async fn settle<W: Work>(work: &W, workers: Vec<(W::Worker, Client)>, client: &mut Client) -> Result<(), String> {
    for (worker, mut client) in workers {
        work.settle(worker, &mut client).await?;
    }
    work.finish(client).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clients_go_on_until_every_fault_was_made() {
        let lasts = async |complete, made_s| {
            let (completed, complete) = watch::channel(complete);
            tokio::spawn(async move {
                let made = tokio::time::timeout(Duration::from_secs(made_s), std::future::pending::<()>());
                assert!(made.await.is_err());
                completed.send_replace(true);
            });
            let began = tokio::time::Instant::now();
            time_and_faults(Duration::from_secs(30), complete).await;
            began.elapsed().as_secs()
        };
        assert_eq!(lasts(true, 999).await, 30);
        assert_eq!(lasts(false, 20).await, 30);
        assert_eq!(lasts(false, 50).await, 50);
        assert_eq!(lasts(false, 999).await, 150);
    }
}

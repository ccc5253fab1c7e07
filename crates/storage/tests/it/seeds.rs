//! Tests of the real storage on a simulated disk. Each seed determines a series of processes on one
//! disk. A process opens the storage, checks all writes that were acknowledged before, and makes
//! random writes. It ends at a write, a sync or a rename that the seed chooses: by a power cut, by
//! SIGKILL, or after a failed fsync.
//!
//! ```sh
//! STORAGE_SEEDS=0..400 cargo test -p storage --test it seeds -- --nocapture
//! ```
//!
//! The disk is the crate `power-disk`, which needs root and FUSE; without them the tests pass with
//! a note on stderr. The seed gives the end of a process as a number of changes to the disk. The
//! order of the process's threads varies between runs, so repeat a failed seed several times.

mod facts;
mod node;

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use power_disk::Mounted;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::seeds_asked;

/// Time after which a process counts as hanging; a process needs far less.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// Seeds that the test uses without `STORAGE_SEEDS`; they take a few seconds.
const SEEDS: Range<u64> = 0..12;

/// A mounted simulated disk, and a directory outside it for the facts: the writes that processes
/// began and acknowledged.
struct Bench {
    disk: Mounted,
    mounted: TempDir,
    facts: TempDir,
}

/// Way in which a process of the test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A loss of power.
    PowerLoss,
    /// A kill by SIGKILL.
    Kill,
    /// A failed fsync. The next process starts with the same content of the kernel's page cache.
    FailedSync,
    /// A normal end of the process.
    Done,
}

/// Totals over several seeds: simulated failures, and facts (acknowledged or begun writes) that
/// were compared with the storage.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    power_losses: u64,
    kills: u64,
    failed_syncs: u64,
    facts: u64,
}

impl Bench {
    fn new() -> Bench {
        let mounted = tempfile::tempdir().unwrap();
        let disk = Mounted::on(mounted.path()).unwrap();
        let facts = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Bench { disk, mounted, facts }
    }

    /// Runs the processes that the seed determines, one after another, in a new directory of the
    /// disk.
    ///
    /// # Errors
    /// A description of the failure.
    fn run(&self, seed: u64) -> Result<Tally, String> {
        let mut rng = Rng::with_seed(seed);
        let own = self.mounted.path().join(format!("seed-{seed}"));
        let facts = self.facts.path().join("facts");
        let _none = fs::remove_file(&facts);
        fs::create_dir(&own).unwrap();
        File::open(self.mounted.path()).unwrap().sync_all().unwrap();
        let mut tally = Tally { seeds: 1, ..Tally::default() };
        let mut past = Vec::new();
        for _ in 0..rng.u32(4..9) {
            let end = match rng.u8(..10) {
                0..=4 => End::PowerLoss,
                5..=6 => End::Kill,
                7 => End::FailedSync,
                _ => End::Done,
            };
            let most = 1 << rng.u32(3..10);
            let after = rng.u64(..most);
            let ran = self.live(&own, &facts, rng.u64(..), (rng.u32(1..40), end, after));
            tally.facts += ran.map_err(|wrong| format!("seed {seed}, behind {past:?}: {wrong}"))?;
            let cut = end == End::PowerLoss || rng.u8(..3) == 0;
            if cut {
                self.disk.cut(rng.u64(..));
            }
            tally.power_losses += u64::from(cut);
            tally.kills += u64::from(end == End::Kill);
            tally.failed_syncs += u64::from(end == End::FailedSync);
            past.push(format!("{end:?} at {after}{}", if cut { ", power cut" } else { "" }));
        }
        let ran = self.live(&own, &facts, 0, (0, End::Done, 0));
        tally.facts += ran.map_err(|wrong| format!("seed {seed}, behind {past:?}: {wrong}"))?;
        fs::remove_dir_all(&own).unwrap();
        File::open(self.mounted.path()).unwrap().sync_all().unwrap();
        Ok(tally)
    }

    /// Runs one process until its end. Returns the number of facts (acknowledged writes) that it
    /// has compared with the storage.
    fn live(&self, own: &Path, facts: &Path, seed: u64, (ops, end, after): (u32, End, u64)) -> Result<u64, String> {
        let (waits, over) = channel();
        let stopped = match end {
            End::PowerLoss | End::Kill => self.disk.stop_after(after),
            End::FailedSync | End::Done => over,
        };
        if end == End::FailedSync {
            self.disk.fail_after(after);
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "seeds::node::child", "--nocapture", "--test-threads=1"]);
        command.env(node::DIR, own.join("data")).env(node::FACTS, facts);
        command.env(node::SEED, seed.to_string()).env(node::OPS, ops.to_string());
        let errors = self.facts.path().join("stderr");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let (code, stdout) = self.watch(command.spawn().unwrap(), stopped, waits)?;
        let stderr = fs::read_to_string(errors).unwrap();
        let broken = end != End::Done;
        match code {
            Some(node::WRONG) => Err(stderr),
            Some(0) => Ok(judged(&stdout)),
            // No exit code after a kill; 101 after a panic of sled.
            None | Some(node::FAILED | 101) if broken => Ok(judged(&stdout)),
            code => Err(format!("it ended with {code:?}: {stderr}")),
        }
    }

    /// Reads the process's output until its end, and kills it when the simulated disk stops.
    /// Returns the exit code, which is `None` after a kill, and the output.
    fn watch(
        &self,
        mut child: Child,
        stopped: Receiver<()>,
        waits: Sender<()>,
    ) -> Result<(Option<i32>, String), String> {
        let (pid, mut stdout) = (Pid::from_child(&child), String::new());
        let hangs = std::thread::scope(|scope| {
            let killer = scope.spawn(move || {
                let told = stopped.recv_timeout(HANGS_AFTER);
                if told != Err(RecvTimeoutError::Disconnected) {
                    kill_process(pid, Signal::KILL).unwrap();
                }
                told == Err(RecvTimeoutError::Timeout)
            });
            child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
            // The process has ended, but its pid is not free yet.
            drop(waits);
            self.disk.go_on();
            killer.join().unwrap()
        });
        let status = child.wait().unwrap();
        if hangs { Err("it hangs".into()) } else { Ok((status.code(), stdout)) }
    }
}

fn judged(stdout: &str) -> u64 {
    // Output of the test harness can precede the word on its line.
    let at = stdout.split_once("judged ").map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default());
    at.map_or(0, |number| number.parse().unwrap())
}

/// Runs seeds on one thread for each processor; a thread runs one seed after the other on its own
/// simulated disk. Stops at the first failure and returns its seed and description.
fn run(seeds: Range<u64>) -> Result<Tally, (u64, String)> {
    let (next, failed, sum) = (AtomicU64::new(seeds.start), Mutex::new(None), Mutex::new(Tally::default()));
    let work = || {
        let bench = Bench::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.lock().unwrap().is_some() {
                return;
            }
            match bench.run(seed) {
                Ok(Tally { seeds, power_losses, kills, failed_syncs, facts }) => {
                    let mut sum = sum.lock().unwrap();
                    sum.seeds += seeds;
                    sum.power_losses += power_losses;
                    sum.kills += kills;
                    sum.failed_syncs += failed_syncs;
                    sum.facts += facts;
                }
                Err(wrong) => {
                    let mut failed = failed.lock().unwrap();
                    if failed.as_ref().is_none_or(|(first, _)| *first > seed) {
                        *failed = Some((seed, wrong));
                    }
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |threads| threads.get()) {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap() {
        Some(failed) => Err(failed),
        None => Ok(sum.into_inner().unwrap()),
    }
}

/// Tells whether the simulated disk can be mounted here; if not, prints a note for the test.
fn available(test: &str) -> bool {
    power_disk::available().inspect_err(|why| eprintln!("NOT TESTED: {test}: no disk to simulate: {why}")).is_ok()
}

#[test]
fn what_was_acknowledged_is_found_after_every_loss_of_power() {
    if !available("what_was_acknowledged_is_found_after_every_loss_of_power") {
        return;
    }
    let began = Instant::now();
    let tally = run(seeds_asked().unwrap_or(SEEDS)).unwrap_or_else(|(_, wrong)| panic!("{wrong}"));
    let Tally { seeds, power_losses, kills, failed_syncs, facts } = tally;
    let rate = seeds as f64 / began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {rate:.1} a second: {power_losses} losses of power, {kills} kills, {failed_syncs} failed fsyncs, \
         {facts} facts judged"
    );
}

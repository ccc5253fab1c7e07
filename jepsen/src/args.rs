//! Command line of the program `jepsen`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use jepsen::check::Workload;
use jepsen::cluster::NetworkKind;
use jepsen::needs;
use jepsen::nemesis::{Fault, Pace};
use jepsen::runner::{Door, Options, has_negative};
use jepsen::snapshots::SMALL;
use zlock_client::api::Millis;

/// Causes faults in a zlock cluster while clients use it, and checks the clients' history.
#[derive(Debug, Parser)]
#[command(name = "jepsen", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs one workload under faults. Exit code: 0 valid, 1 invalid, 2 unknown or the harness
    /// failed.
    Test(Test),
    /// Checks a stored history again.
    Check {
        /// A directory with `history.jsonl`.
        dir: PathBuf,
        /// The workload of the run, if neither results.json in the directory nor its parent's name
        /// tells it.
        #[arg(long, value_parser = workload)]
        workload: Option<Workload>,
    },
    /// Runs every workload under every fault and writes `matrix.md` and `matrix.json` into the
    /// store. Exit code: the worst of all runs.
    All(All),
}

/// Options that `test` and `all` share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// Nodes of the cluster that is started.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    pub(crate) nodes: u64,
    /// Time for which clients work, such as 60s or 5m.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub(crate) time: Duration,
    /// Number of clients that work at the same time.
    #[arg(long, default_value_t = 10)]
    pub(crate) concurrency: usize,
    /// Steps (one operation or a few each) per second, of all clients together.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) rate: f64,
    /// Seed of every random choice, taken from the clock if not given, and printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Directory for the results of all runs.
    #[arg(long, default_value = "store")]
    pub(crate) store: PathBuf,
    /// The program `zlock`. The default is the one in the directory of this program.
    #[arg(long)]
    pub(crate) zlock: Option<PathBuf>,
    /// A program `zlock` that knows one level (version of the data format) more than `--zlock`, for
    /// the nemesis `upgrade`. `cargo build -p zlock --features next-level` builds it.
    #[arg(long)]
    pub(crate) zlock_next: Option<PathBuf>,
    /// The program `replay`, which reads the logs of the nodes after the run. With it, the grants
    /// in the logs are judged as well.
    #[arg(long)]
    pub(crate) replay: Option<PathBuf>,
    /// Time between faults.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) calm: Duration,
    /// Approximate time for which a fault lasts.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) fault: Duration,
    /// Means by which links between nodes are broken. The default is the best that this machine
    /// has.
    #[arg(long, value_enum)]
    pub(crate) network: Option<NetworkKind>,
    /// Makes certificates with `zlock tls init`, and lets the nodes demand TLS of each other. Needs
    /// network namespaces.
    #[arg(long)]
    pub(crate) peer_tls: bool,
    /// Protocol of the clients. The values zookeeper and both are only for the workloads register,
    /// lock, watch and multi.
    #[arg(long, value_enum, default_value_t = Door::Http)]
    pub(crate) door: Door,
    /// Number of znodes of 24 KiB created before clients begin. With them snapshots take longer.
    #[arg(long, default_value_t = 0)]
    pub(crate) ballast: u64,
    /// Distance between snapshots: small (one every 200 log entries, 20 entries kept in the log),
    /// large (as configured), or half (small in runs with an odd seed, large in others).
    #[arg(long, default_value = "half")]
    pub(crate) snapshots: String,
    /// A line for the configuration of every node, such as 'disk.snapshot_log_entries = 500'. May
    /// be repeated.
    #[arg(long)]
    pub(crate) set: Vec<String>,
}

/// `jepsen test`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Test {
    /// Workload: register, lock, fenced-lock, reentrant-lock, rw-lock, queue, sequential,
    /// ephemeral, watch, multi, session, exactly-once, semaphore, election, mixed, revoke,
    /// lock-delay or restore.
    #[arg(long, value_parser = workload)]
    workload: Workload,
    /// Faults, separated by commas: none, or any of kill, kill-leader, kill-majority, kill-all,
    /// stop, stop-leader, pause, pause-leader, restart-in-lease, partition (halves, isolate-leader,
    /// ring, one-way), asymmetric, flapping, slow, loss, held-answers, wipe, clock, clock-steps,
    /// clock-rates, disk-full, fsync, slow-disk, disk-stall, power-loss, memory, cpu, upgrade,
    /// transfer, members, restore, rotation.
    #[arg(long, default_value = "none", value_delimiter = ',')]
    nemesis: Vec<String>,
    /// `host:port` of each node of a cluster that runs already. Faults cannot be made in it, so
    /// `--nemesis` must be none.
    #[arg(long, value_delimiter = ',')]
    endpoints: Vec<String>,
    /// Negative control of the checker: clients leave out a part of their protocol (linearizable
    /// reads, idempotency keys, zxids, resuming of watches, or tokens), and the verdict must be
    /// invalid. For register, exactly-once, session, watch and fenced-lock.
    #[arg(long)]
    negative: bool,
    /// Directory for the results of a run that `jepsen all` started. The run ends when its stdin
    /// ends.
    #[arg(long, hide = true)]
    pub(crate) supervised: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// `jepsen all`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct All {
    /// Workloads to run. The default is all.
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    pub(crate) workloads: Vec<Workload>,
    /// Faults, each in its own run; `a+b` has both faults in one run. The default has nearly all
    /// faults.
    #[arg(long, value_delimiter = ',')]
    pub(crate) nemeses: Vec<String>,
    /// Number of runs of each workload under each fault, with another seed each time.
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: u64,
    /// Number of runs at the same time, each in its own process and network.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) parallel: u64,
    /// Time that a run may take beyond its `--time`. Then it is stopped and counts as unknown.
    #[arg(long, default_value = "6m", value_parser = duration)]
    pub(crate) grace: Duration,
    /// Continues the matrix in the store: runs that were judged valid or invalid are not repeated.
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse().map(|Millis(ms)| Duration::from_millis(ms)).map_err(|error| format!("{error}"))
}

/// Returns the faults with these names.
pub(crate) fn faults(names: &[String]) -> Result<Vec<Fault>, String> {
    let mut faults = Vec::new();
    for name in names {
        faults.extend(Fault::from_name(name).ok_or_else(|| format!("no fault is called `{name}`; see --help"))?);
    }
    faults.sort_unstable();
    faults.dedup();
    Ok(faults)
}

/// Returns the workload with this name.
fn workload(name: &str) -> Result<Workload, String> {
    Workload::from_name(name).ok_or_else(|| format!("no workload is called `{name}`; see --help"))
}

impl Common {
    /// Returns the options of one run.
    pub(crate) fn options(&self, workload: Workload, faults: Vec<Fault>, seed: u64) -> Result<Options, String> {
        let (door, network) = (self.door, self.network.unwrap_or_else(|| needs::best_network(&faults)));
        if !door.has(workload) {
            return Err(format!(
                "{} is only possible with --door http; use register, lock, watch or multi",
                workload.name()
            ));
        }
        if self.peer_tls && network == NetworkKind::Proxies {
            let why = "the proxies between nodes cannot read TLS";
            return Err(format!("{why}: --peer-tls needs --network namespaces, and no nemesis that needs proxies"));
        }
        Ok(Options {
            workload,
            door,
            faults,
            nodes: self.nodes,
            time: self.time,
            concurrency: self.concurrency.max(1),
            rate: self.rate,
            seed,
            store: self.store.clone(),
            dir: None,
            zlock: self.zlock.clone(),
            zlock_next: self.zlock_next.clone(),
            replay: self.replay.clone(),
            endpoints: Vec::new(),
            pace: Pace { calm: self.calm, fault: self.fault },
            settings: self.settings(seed)?,
            network,
            peer_tls: self.peer_tls,
            ballast: self.ballast,
            negative: false,
        })
    }

    /// Returns the additional configuration lines for every node of the run with this seed: those
    /// of `--set`, and those for small snapshots if `--snapshots` asks for them. A line of `--set`
    /// with the same key takes precedence.
    fn settings(&self, seed: u64) -> Result<String, String> {
        let small = match self.snapshots.as_str() {
            "small" => true,
            "large" => false,
            "half" => seed % 2 == 1,
            other => return Err(format!("no snapshots are called `{other}`: small, large or half")),
        };
        let mut lines = self.set.clone();
        let own = |(key, _): &(&str, &str)| self.set.iter().any(|line| line.trim_start().starts_with(key));
        for setting in SMALL.iter().filter(|setting| small && !own(setting)) {
            lines.push(format!("{} = {}", setting.0, setting.1));
        }
        Ok(lines.join("\n"))
    }

    /// Returns the seed of the command line, or else a random one.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000_000))
    }
}

impl Test {
    /// Returns the options of the run.
    pub(crate) fn options(&self) -> Result<Options, String> {
        let faults = faults(&self.nemesis)?;
        if !self.endpoints.is_empty() && !faults.is_empty() {
            return Err("faults cannot be made in a running cluster: leave out --nemesis or --endpoints".into());
        }
        if !self.endpoints.is_empty() && self.common.peer_tls {
            return Err("a running cluster has certificates or none: leave out --peer-tls or --endpoints".into());
        }
        let mut options = self.common.options(self.workload, faults, self.common.seed())?;
        if options.door != Door::Http && !self.endpoints.is_empty() {
            return Err("--endpoints are HTTP addresses: leave out --door".into());
        }
        options.endpoints.clone_from(&self.endpoints);
        options.negative = self.negative;
        options.dir.clone_from(&self.supervised);
        if self.negative && !has_negative(options.workload) {
            return Err(format!("{} has no negative control", self.workload.name()));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns why these options of `jepsen test` are refused.
    fn refusal(options: &[&str]) -> String {
        let args = Args::try_parse_from(["jepsen", "test", "--workload", "lock"].iter().chain(options)).unwrap();
        let Command::Test(test) = args.command else { panic!("another command") };
        test.options().unwrap_err()
    }

    #[test]
    fn tls_between_nodes_does_not_pass_proxies() {
        let why = "the proxies between nodes cannot read TLS";
        assert!(refusal(&["--peer-tls", "--network", "proxy"]).starts_with(why));
        assert!(refusal(&["--peer-tls", "--nemesis", "transfer"]).starts_with(why));
        let why = "a running cluster has certificates or none: leave out --peer-tls or --endpoints";
        assert_eq!(refusal(&["--peer-tls", "--endpoints", "127.0.0.1:7001"]), why);
    }
}

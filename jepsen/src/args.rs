//! Command line of the program `jepsen`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use jepsen::check::Workload;
use jepsen::nemesis::Fault;
use jepsen::options::{Common, Door, Options, duration};
use jepsen::runner::has_negative;

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
        /// The workload of the run, if no results.json in the directory tells it.
        #[arg(long, value_parser = workload)]
        workload: Option<Workload>,
    },
    /// Runs every workload under every fault and writes `matrix.md` into the store. Exit code: the
    /// worst of all runs.
    All(All),
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
    /// `host:port` of each node of a cluster that runs already. No node is started and no fault is
    /// made, so `--nemesis` must be none.
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
    #[command(flatten)]
    pub(crate) common: Common,
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

/// Returns the seed of the command line, or else a random one.
pub(crate) fn seed(common: &Common) -> u64 {
    common.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000_000))
}

impl Test {
    /// Returns the options of the run.
    pub(crate) fn options(&self) -> Result<Options, String> {
        let mut options = self.common.options(self.workload, faults(&self.nemesis)?, seed(&self.common))?;
        let Options { faults, common: Common { peer_tls, door, .. }, .. } = &options;
        if !self.endpoints.is_empty() && (!faults.is_empty() || *peer_tls || *door != Door::Http) {
            return Err("jepsen only sends HTTP requests to a cluster that runs already: leave out --nemesis, --peer-tls and --door, or --endpoints".into());
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
    fn a_cluster_that_runs_already_gets_no_faults() {
        for options in [["--nemesis", "kill"], ["--door", "both"]] {
            let why = refusal(&["--endpoints", "127.0.0.1:7001", options[0], options[1]]);
            assert!(why.starts_with("jepsen only sends HTTP requests"), "{why}");
        }
    }

    #[test]
    fn tls_between_nodes_does_not_pass_proxies() {
        let why = "the proxies between nodes cannot read TLS";
        assert!(refusal(&["--peer-tls", "--network", "proxy"]).starts_with(why));
        assert!(refusal(&["--peer-tls", "--nemesis", "transfer"]).starts_with(why));
    }
}

//! Options of a run.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use zlock_client::api::Millis;

use crate::check::Workload;
use crate::cluster::NetworkKind;
use crate::needs;
use crate::nemesis::Fault;
use crate::snapshots::SMALL;

/// Protocols that the clients of a run use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// HTTP.
    #[default]
    Http,
    /// ZooKeeper's protocol.
    Zookeeper,
    /// HTTP for every second client and ZooKeeper's protocol for the other ones, on the same
    /// znodes.
    Both,
}

impl Door {
    /// Value of `--door` on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Tells whether the workload can be run over these protocols.
    pub fn has(self, workload: Workload) -> bool {
        let of_either = [Workload::Register, Workload::Lock, Workload::Watch, Workload::Multi];
        self == Door::Http || of_either.contains(&workload)
    }
}

/// Options that `jepsen test` and `jepsen all` share.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Nodes of the cluster that is started.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    pub nodes: u64,
    /// Time for which clients work, such as 60s or 5m. They go on for up to two minutes more until
    /// each kind of fault was made.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub time: Duration,
    /// Number of clients that work at the same time.
    #[arg(long, default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub concurrency: usize,
    /// Steps (one operation or a few each) per second, of all clients together.
    #[arg(long, default_value_t = 100.0)]
    pub rate: f64,
    /// Seed of every random choice, taken from the clock if not given, and printed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Directory for the results of all runs.
    #[arg(long, default_value = "store")]
    pub store: PathBuf,
    /// The program `zlock`. The default is the one in the directory of this program.
    #[arg(long)]
    pub zlock: Option<PathBuf>,
    /// A program `zlock` that knows one level (version of the data format) more than `--zlock`, for
    /// the nemesis `upgrade`. `cargo build -p zlock --features next-level` builds it.
    #[arg(long)]
    pub zlock_next: Option<PathBuf>,
    /// The program `replay`, which reads the logs of the nodes after the run. With it, the grants
    /// in the logs are judged as well.
    #[arg(long)]
    pub replay: Option<PathBuf>,
    /// Time between faults.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub calm: Duration,
    /// Approximate time for which a fault lasts.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub fault: Duration,
    /// Means by which links between nodes are broken. The default is the best that this machine
    /// has.
    #[arg(long, value_enum)]
    pub network: Option<NetworkKind>,
    /// Makes certificates with `zlock tls init`, and lets the nodes demand TLS of each other. Needs
    /// network namespaces.
    #[arg(long)]
    pub peer_tls: bool,
    /// Protocol of the clients. The values zookeeper and both are only for the workloads register,
    /// lock, watch and multi.
    #[arg(long, value_enum, default_value_t = Door::Http)]
    pub door: Door,
    /// Number of znodes of 24 KiB created before clients begin. With them snapshots take longer.
    #[arg(long, default_value_t = 0)]
    pub ballast: u64,
    /// Distance between snapshots: small (one every 200 log entries, 20 entries kept in the log),
    /// large (as configured), or half (small in runs with an odd seed, large in others).
    #[arg(long, default_value = "half")]
    pub snapshots: String,
    /// A line for the configuration of every node, such as 'disk.snapshot_log_entries = 500'. May
    /// be repeated.
    #[arg(long)]
    pub set: Vec<String>,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workload of the clients.
    pub workload: Workload,
    /// Faults that are made.
    pub faults: Vec<Fault>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Additional lines for the configuration of every node.
    pub settings: String,
    /// Means by which faults break the links between nodes.
    pub network: NetworkKind,
    /// Leaves out a part of the clients' protocol that the promise of the workload ([`Workload`])
    /// needs. The checker must then find that the promise is broken: see
    /// [`crate::runner::has_negative`].
    pub negative: bool,
    /// `host:port` of each node of a cluster that runs already; empty to start one.
    pub endpoints: Vec<String>,
    /// Empty directory for the results, instead of a new one in the store.
    pub dir: Option<PathBuf>,
    /// Options that the runs of a matrix share.
    pub common: Common,
}

/// Parses a duration such as `60s` or `5m`.
///
/// # Errors
/// When the text is not a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    text.parse().map(|Millis(ms)| Duration::from_millis(ms)).map_err(|error| format!("{error}"))
}

impl Common {
    /// Returns the options of one run.
    ///
    /// # Errors
    /// When the options cannot be combined.
    pub fn options(&self, workload: Workload, faults: Vec<Fault>, seed: u64) -> Result<Options, String> {
        let network = self.network.unwrap_or_else(|| needs::best_network(&faults));
        if !self.door.has(workload) {
            return Err(format!(
                "{} is only possible with --door http; use register, lock, watch or multi",
                workload.name()
            ));
        }
        if self.peer_tls && network == NetworkKind::Proxies {
            let why = "the proxies between nodes cannot read TLS";
            return Err(format!("{why}: --peer-tls needs --network namespaces, and no nemesis that needs proxies"));
        }
        let settings = self.settings(seed)?;
        let (endpoints, common) = (Vec::new(), self.clone());
        Ok(Options { workload, faults, seed, settings, network, negative: false, endpoints, dir: None, common })
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

    /// Returns the arguments of `jepsen` for these options, without the seed and the store.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut say = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        let span = |time: Duration| format!("{}ms", time.as_millis());
        say("door", self.door.name());
        say("nodes", self.nodes.to_string());
        say("time", span(self.time));
        say("concurrency", self.concurrency.to_string());
        say("rate", self.rate.to_string());
        say("calm", span(self.calm));
        say("fault", span(self.fault));
        say("ballast", self.ballast.to_string());
        say("snapshots", self.snapshots.clone());
        self.set.iter().for_each(|setting| say("set", setting.clone()));
        let programs = [("zlock", &self.zlock), ("zlock-next", &self.zlock_next), ("replay", &self.replay)];
        for (name, program) in programs {
            program.iter().for_each(|program| say(name, program.display().to_string()));
        }
        words.extend(self.peer_tls.then(|| "--peer-tls".into()));
        words
    }
}

impl Options {
    /// Checks that these faults can be made with the other options.
    ///
    /// # Errors
    /// The requirement that is not met.
    pub fn check(&self) -> Result<(), String> {
        let has = |fault| self.faults.contains(&fault);
        if has(Fault::Upgrade) && self.common.zlock_next.is_none() {
            return Err("the nemesis upgrade needs a second program: name it with --zlock-next".into());
        }
        if has(Fault::Members) && has(Fault::Upgrade) {
            return Err("new members run the first program: run the nemeses members and upgrade separately".into());
        }
        if has(Fault::Members) && self.common.door != Door::Http {
            return Err("clients of ZooKeeper's protocol do not follow the members: use --door http".into());
        }
        if has(Fault::Restore) && (self.workload != Workload::Restore || self.common.replay.is_some()) {
            return Err("a restore loses writes and logs: use --workload restore, without --replay".into());
        }
        if has(Fault::Rotation) && !self.common.peer_tls {
            return Err("the nemesis rotation replaces the certificates of the nodes: use --peer-tls".into());
        }
        for fault in [Fault::Restore, Fault::Rotation] {
            if has(fault) && self.faults.len() > 1 {
                let name = fault.name();
                return Err(format!("the nemesis {name} needs all nodes: run it by itself"));
            }
        }
        Ok(())
    }

    /// Returns the command that repeats the run.
    pub fn command(&self) -> String {
        format!("cargo run --release -p jepsen -- {}", quoted(self.arguments()))
    }

    /// Returns the arguments of `jepsen` that repeat the run.
    pub fn arguments(&self) -> Vec<String> {
        let faults: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(",") };
        let seed = self.seed.to_string();
        let words = ["test", "--workload", self.workload.name(), "--nemesis", &faults, "--seed", &seed];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.extend(["--network".into(), self.network.name()]);
        if !self.endpoints.is_empty() {
            words.extend(["--endpoints".into(), self.endpoints.join(",")]);
        }
        words.extend(self.common.arguments());
        words.extend(self.negative.then(|| "--negative".into()));
        words
    }
}

/// Returns words as a part of a shell's command line.
pub fn quoted(words: Vec<String>) -> String {
    let quoted = |word: String| if word.contains([' ', '"', '$']) { format!("'{word}'") } else { word };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

//! Network namespaces of Linux: one for each node, and one with the bridge between them. Packet
//! filters of the kernel make the partitions.
//!
//! Needs root, `ip` and `nft`. A set of address pairs on the bridge says which packets are dropped,
//! so each direction of each link is cut separately, and all of them in one step. Connections stay
//! open, and go on when the link heals unless they have timed out.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use testkit::LinkRule;

/// Number of runs on this machine that can have namespaces at the same time.
const SLOTS: u32 = 1_000;

/// Largest number of nodes of a run.
const NODES_MAX: u64 = 9;

/// Percentage of packets that a lossy link drops.
pub(crate) const LOSS_PERCENT: u32 = 20;

/// Network namespaces for the nodes and the bridge of a run. They are removed when the value is
/// dropped.
pub struct Namespaces {
    prefix: String,
    subnet: String,
    nodes: u64,
    /// Lock file that reserves the run's number. The names and addresses of the namespaces contain
    /// this number.
    _slot: File,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        remove(&self.prefix, self.nodes);
    }
}

/// Removes all namespaces and links of a run.
fn remove(prefix: &str, nodes: u64) {
    // The kernel removes namespaces only after a while. The link on this side is removed by itself,
    // because its address must be free for the next run at once.
    let _ = ip(&format!("link del {prefix}h"));
    let names = (1..=nodes).map(|node| format!("{prefix}n{node}")).chain([format!("{prefix}sw")]);
    for name in names {
        let _ = ip(&format!("netns del {name}"));
    }
}

/// Checks that this process may make namespaces and has the tools, by making a namespace for one
/// node.
pub(crate) fn available() -> io::Result<()> {
    Namespaces::make(1).map(|_| ())
}

/// Reserves a number for the run. No other run on this machine gets it while the file is open.
fn take_slot() -> io::Result<(u32, File)> {
    for slot in 0..SLOTS {
        // Only root may write to this directory, which is enough: only root can make namespaces.
        let path = format!("/run/zlock-jepsen-net-{slot}.lock");
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => return Ok((slot, file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(format!("{SLOTS} runs have namespaces already")))
}

impl Namespaces {
    /// Makes a namespace for each node, and one with a bridge by which this process reaches them.
    ///
    /// # Errors
    /// When the process is not permitted to do that, or a tool is missing.
    pub fn make(nodes: u64) -> io::Result<Namespaces> {
        let (slot, file) = take_slot()?;
        let (prefix, subnet) = (format!("jp{slot}"), format!("10.{}.{}", 90 + slot / 250, slot % 250));
        // A killed run may have left namespaces with this number.
        if ip(&format!("netns pids {prefix}sw")).is_ok() {
            remove(&prefix, NODES_MAX);
        }
        let made = Namespaces { prefix, subnet, nodes, _slot: file };
        let switch = made.switch();
        let (prefix, subnet) = (&made.prefix, &made.subnet);
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        ip(&format!("link add {prefix}h type veth peer name vh netns {switch}"))?;
        ip(&format!("-n {switch} link set vh master br0 up"))?;
        ip(&format!("addr add {subnet}.254/24 dev {prefix}h"))?;
        ip(&format!("link set {prefix}h up"))?;
        for node in 1..=nodes {
            let name = made.name(node);
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add v{node} netns {switch} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {switch} link set v{node} master br0 up"))?;
            ip(&format!("-n {name} addr add {} dev eth0", made.addr(node) + "/24"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        made.nft(&format!(
            "table bridge part {{\n set cut {{ type ipv4_addr . ipv4_addr; }}\n set lossy {{ type ipv4_addr . ipv4_addr; }}\n chain forw {{\n type filter hook forward priority 0; policy accept;\n ip saddr . ip daddr @cut drop\n ip saddr . ip daddr @lossy numgen random mod 100 < {LOSS_PERCENT} drop\n }}\n}}\n"
        ))?;
        Ok(made)
    }

    fn name(&self, node: u64) -> String {
        format!("{}n{node}", self.prefix)
    }

    fn switch(&self) -> String {
        format!("{}sw", self.prefix)
    }

    /// Returns the IP address of a node.
    pub fn addr(&self, node: u64) -> String {
        format!("{}.{node}", self.subnet)
    }

    /// Returns the beginning of a command line that runs in the node's namespace.
    pub fn enter(&self, node: u64) -> Vec<String> {
        ["ip", "netns", "exec"].into_iter().map(str::to_owned).chain([self.name(node)]).collect()
    }

    /// Gives every directed link its rule. Links without a rule pass all packets.
    ///
    /// # Errors
    /// When a rule delays or holds packets, which namespaces cannot do.
    pub fn set(&self, rules: &BTreeMap<(u64, u64), LinkRule>) -> io::Result<()> {
        if rules.values().any(|rule| rule.hold || !rule.delay.is_zero()) {
            return Err(io::Error::other("namespaces cannot delay packets: use --network proxy"));
        }
        let elements = |which: fn(&LinkRule) -> bool| {
            let links = rules.iter().filter(|(_, rule)| which(rule));
            let pairs: Vec<String> =
                links.map(|((from, to), _)| format!("{} . {}", self.addr(*from), self.addr(*to))).collect();
            pairs.join(", ")
        };
        let mut script = String::from("flush set bridge part cut\nflush set bridge part lossy\n");
        for (set, pairs) in [("cut", elements(|rule| rule.cut)), ("lossy", elements(|rule| rule.break_one_in > 0))] {
            if !pairs.is_empty() {
                script.push_str(&format!("add element bridge part {set} {{ {pairs} }}\n"));
            }
        }
        self.nft(&script)
    }

    fn nft(&self, script: &str) -> io::Result<()> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.switch(), "nft", "-f", "-"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        succeeded("nft", &output)
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    succeeded(&format!("ip {arguments}"), &output)
}

fn succeeded(what: &str, output: &std::process::Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

//! Plan of a cluster, and the configuration lines that follow from the plan.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::network::NetworkKind;

/// Directory of the certificates in the directory of the run.
pub(super) const TLS_DIR: &str = "tls";

/// Plan of a cluster that the harness starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of nodes that start the cluster.
    pub nodes: u64,
    /// Number of further nodes, which are started when they are to join the cluster.
    pub spares: u64,
    /// Path of the program `zlock`.
    pub program: PathBuf,
    /// Path of a second program `zlock`, which knows one level (version of the data format) more,
    /// for upgrades.
    pub next: Option<PathBuf>,
    /// Directory for configurations, data and logs.
    pub dir: PathBuf,
    /// Path of the library libfaketime; `None` if no fault changes wall clocks.
    pub faketime: Option<PathBuf>,
    /// Tells whether each node has a disk of its own, which can break.
    pub own_disks: bool,
    /// Additional `key = value` lines for the configuration of every node.
    pub settings: String,
    /// Means by which faults break the links between nodes.
    pub network: NetworkKind,
    /// Tells whether the nodes demand TLS of each other.
    pub peer_tls: bool,
}

impl Plan {
    /// Returns the additional lines for the configuration of a node.
    ///
    /// # Errors
    /// When the directory of the run is missing.
    pub(super) fn settings_of(&self, id: u64) -> io::Result<String> {
        if !self.peer_tls {
            return Ok(self.settings.clone());
        }
        let dir = fs::canonicalize(&self.dir)?.join(TLS_DIR);
        let file = |key, name: &str| format!("peers.tls_{key} = \"{}\"\n", dir.join(name).display());
        let own = format!("node-{id}");
        let files =
            [file("certificate", &format!("{own}.pem")), file("key", &format!("{own}-key.pem")), file("ca", "ca.pem")];
        Ok(format!("{}\npeers.tls = \"require\"\n{}", self.settings, files.concat()))
    }
}

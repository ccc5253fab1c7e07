//! TLS between nodes: the certificates that `zlock tls init` makes, and the keys in configurations.

use std::fs;
use std::io;

use rustix::process::Signal;

use super::{CLUSTER_ID, Cluster, Node, Plan};

/// Message in the log of a node that uses new certificates.
const RELOADED: &str = "the TLS files of a port were reloaded";
/// Directory of the certificates in the directory of the run.
const DIR: &str = "tls";

impl Plan {
    /// Returns the additional lines for the configuration of a node.
    ///
    /// # Errors
    /// When the directory of the run is missing.
    pub(super) fn settings_of(&self, id: u64) -> io::Result<String> {
        if !self.peer_tls {
            return Ok(self.settings.clone());
        }
        let dir = fs::canonicalize(&self.dir)?.join(DIR);
        let file = |key, name: &str| format!("peers.tls_{key} = \"{}\"\n", dir.join(name).display());
        let own = format!("node-{id}");
        let files =
            [file("certificate", &format!("{own}.pem")), file("key", &format!("{own}-key.pem")), file("ca", "ca.pem")];
        Ok(format!("{}\npeers.tls = \"require\"\n{}", self.settings, files.concat()))
    }
}

impl Cluster {
    /// Makes a certificate for each member. The first call also makes the authority that signs all
    /// certificates.
    ///
    /// # Errors
    /// As [`Cluster::zlock`].
    pub async fn make_certificates(&self) -> Result<(), String> {
        let (out, members) = (self.file(DIR), self.members_option());
        self.zlock(&["tls", "init", "--out", &out, "--cluster-id", CLUSTER_ID, "--members", &members]).await
    }
}

impl Node {
    /// Sends SIGHUP, at which the process reads its certificate again.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn hang_up(&self) -> io::Result<()> {
        let process = self.process.as_ref().ok_or_else(|| io::Error::other("it does not run"))?;
        process.signal(Signal::HUP)
    }

    /// Returns the number of times that the node has replaced its certificate without a restart.
    pub fn reloads(&self) -> u64 {
        self.told(RELOADED)
    }
}

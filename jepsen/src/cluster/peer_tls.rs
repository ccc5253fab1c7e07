//! TLS between nodes: the certificates that `zlock tls init` makes, and the keys in configurations.

use std::fs;
use std::io;

use super::{CLUSTER_ID, Cluster, Plan};

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

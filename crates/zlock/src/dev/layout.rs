//! Layout of a cluster of `zlock dev`: each node's configuration file, data directory and ports.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use replica::Member;

use crate::{cli, config};

/// Name of the cluster.
const CLUSTER_ID: &str = "dev";
const NODES: u64 = 3;
const BASE_PORT: u16 = 7001;
/// Offset of a node's peer port from its HTTP port.
const PEER_PORTS: u16 = 100;
/// Offset of a node's ZooKeeper port from its HTTP port.
const ZOOKEEPER_PORTS: u16 = 200;

/// Addresses, configuration file and data directory of one node.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) http_addr: String,
    pub(super) peer_addr: String,
    /// Address for ZooKeeper clients. `None` in a layout that was written by a version without a
    /// ZooKeeper server.
    pub(super) zookeeper_addr: Option<String>,
    pub(super) config: PathBuf,
    pub(super) data_dir: PathBuf,
}

impl Node {
    /// Flags that make the node require TLS of its peers, with the certificates in `directory`.
    pub(super) fn tls_args(&self, directory: &Path) -> Vec<OsString> {
        let path = |name: String| directory.join(name).into_os_string();
        let node = format!("node-{}", self.id);
        let flags = [
            ("--peers-tls", "require".into()),
            ("--peers-tls-certificate", path(format!("{node}.pem"))),
            ("--peers-tls-key", path(format!("{node}-key.pem"))),
            ("--peers-tls-ca", path("ca.pem".to_owned())),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.into(), value]).collect()
    }
}

/// Layout of all nodes. It is stored in the nodes' configuration files, where the next start finds
/// it.
pub(super) struct Layout {
    pub(super) nodes: Vec<Node>,
}

impl Layout {
    /// Reads the layout in `dir`, or creates one. For `nodes` and `base_port`, `None` means the
    /// value of the existing layout, or the default for a new one. A value that differs from the
    /// existing layout is an error. Nothing is written for a new layout with a port that is used.
    pub(super) fn open_or_make(dir: &Path, nodes: Option<u64>, base_port: Option<u16>) -> Result<Layout, String> {
        if !config_file(dir, 1).exists() {
            return Layout::make(dir, addrs(nodes.unwrap_or(NODES), base_port.unwrap_or(BASE_PORT))?);
        }
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let first = config_file(&dir, 1);
        let settings = config::load(Some(&first), []).map_err(|error| error.to_string())?;
        let mut nodes_found = Vec::new();
        for (id, member) in (1..).zip(settings.replica.members) {
            let own = config::load(Some(&config_file(&dir, member.id)), []).map_err(|error| error.to_string())?;
            let zookeeper = own.zookeeper_listen.map(|addr| addr.to_string());
            nodes_found.push(node(&dir, id, member.http_addr, member.peer_addr, zookeeper));
        }
        let found = nodes_found.len() as u64;
        if let Some(asked) = nodes.filter(|asked| *asked != found) {
            return Err(format!(
                "{} holds a cluster of {found} nodes, not {asked}: leave out --nodes, or give another --data",
                dir.display()
            ));
        }
        let layout = Layout { nodes: nodes_found };
        let there = layout.nodes[0].http_addr.clone();
        match base_port {
            Some(port) if port != 0 && there != format!("127.0.0.1:{port}") => Err(format!(
                "{} holds a cluster whose node 1 is at {there}: leave out --base-port, or give another --data",
                dir.display()
            )),
            _ => Ok(layout),
        }
    }

    /// Creates a layout with these addresses, after a check that all of them are free.
    fn make(dir: &Path, addrs: Vec<[String; 3]>) -> Result<Layout, String> {
        let layout = |dir: &Path| {
            let made = |(id, [http, peer, zookeeper]): (u64, [String; 3])| node(dir, id, http, peer, Some(zookeeper));
            Layout { nodes: (1..).zip(addrs.clone()).map(made).collect() }
        };
        layout(dir).check_ports_are_free()?;
        std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let layout = layout(&dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?);
        layout.write()?;
        Ok(layout)
    }

    /// Returns the node with this id.
    pub(super) fn node(&self, id: u64) -> &Node {
        self.nodes.iter().find(|node| node.id == id).expect("ids come from this layout")
    }

    /// Makes the nodes' certificates for TLS between them, and returns their directory.
    pub(super) fn make_certificates(&self) -> Result<PathBuf, String> {
        let directory = self.nodes[0].config.with_file_name("certs");
        let member =
            |node: &Node| Member { id: node.id, peer_addr: node.peer_addr.clone(), http_addr: node.http_addr.clone() };
        let members: Vec<Member> = self.nodes.iter().map(member).collect();
        cli::offline::make_certificates(&directory, CLUSTER_ID, &members)?;
        Ok(directory)
    }

    /// Checks that all ports are free, before any node is started. The error names the used port
    /// and the remedy.
    pub(super) fn check_ports_are_free(&self) -> Result<(), String> {
        for node in &self.nodes {
            for addr in [&node.http_addr, &node.peer_addr].into_iter().chain(&node.zookeeper_addr) {
                TcpListener::bind(addr.as_str()).map_err(|error| {
                    format!(
                        "node {} cannot listen on {addr}: {error}. Is another `zlock dev` running? --base-port with another --data starts one beside it",
                        node.id
                    )
                })?;
            }
        }
        Ok(())
    }

    fn write(&self) -> Result<(), String> {
        let mut members = String::new();
        for node in &self.nodes {
            let _ = writeln!(
                members,
                "    {{ id = {}, peer_addr = \"{}\", http_addr = \"{}\" }},",
                node.id, node.peer_addr, node.http_addr
            );
        }
        // Node 1's file is written last, as its existence means that the layout is complete.
        for node in self.nodes.iter().rev() {
            let data_dir = toml::Value::String(node.data_dir.display().to_string());
            let zookeeper = node.zookeeper_addr.as_ref().map(|addr| format!("\n[zookeeper]\nlisten = \"{addr}\"\n"));
            let text = format!(
                "# Written by `zlock dev`.\n[node]\nid = {}\ncluster_id = \"{CLUSTER_ID}\"\ndata_dir = {data_dir}\nmembers = [\n{members}]\n{}",
                node.id,
                zookeeper.unwrap_or_default()
            );
            std::fs::write(&node.config, text).map_err(|error| format!("{}: {error}", node.config.display()))?;
        }
        Ok(())
    }
}

fn node(dir: &Path, id: u64, http_addr: String, peer_addr: String, zookeeper_addr: Option<String>) -> Node {
    let data_dir = dir.join(format!("node{id}"));
    Node { id, http_addr, peer_addr, zookeeper_addr, config: config_file(dir, id), data_dir }
}

fn config_file(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("node{id}.toml"))
}

/// Returns the addresses of `nodes` nodes. Each node has three: for HTTP, for peers and for
/// ZooKeeper clients.
fn addrs(nodes: u64, base_port: u16) -> Result<Vec<[String; 3]>, String> {
    if base_port == 0 {
        return free_addrs(nodes).map_err(|error| format!("cannot find free ports: {error}"));
    }
    let of_node = |node| {
        let http = u16::try_from(node).ok().and_then(|node| base_port.checked_add(node));
        let [Some(http), Some(peer), Some(zookeeper)] =
            [0, PEER_PORTS, ZOOKEEPER_PORTS].map(|above| http?.checked_add(above))
        else {
            return Err(format!("--base-port {base_port} is too high"));
        };
        Ok([http, peer, zookeeper].map(|port| format!("127.0.0.1:{port}")))
    };
    (0..nodes).map(of_node).collect()
}

/// Returns addresses with ports that are free now, three for each node. All ports stay bound until
/// the last one is found, so that no two are equal.
fn free_addrs(nodes: u64) -> std::io::Result<Vec<[String; 3]>> {
    let held = (0..nodes * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    let addrs = held.iter().map(|held| Ok(held.local_addr()?.to_string())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(addrs.as_chunks().0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_was_made_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let made = Layout::open_or_make(dir.path(), None, Some(0)).unwrap();
        let found = Layout::open_or_make(dir.path(), None, None).unwrap();
        assert_eq!(made.nodes.len(), 3);
        for (made, found) in made.nodes.iter().zip(&found.nodes) {
            assert_eq!((&made.http_addr, &made.peer_addr), (&found.http_addr, &found.peer_addr));
            assert!(made.zookeeper_addr.is_some() && made.zookeeper_addr == found.zookeeper_addr);
            let settings = config::load(Some(&found.config), []).unwrap();
            assert_eq!((settings.replica.node_id, &settings.replica.data_dir), (made.id, &made.data_dir));
        }
    }

    #[test]
    fn a_layout_is_not_changed_in_passing() {
        let dir = tempfile::tempdir().unwrap();
        let made = Layout::open_or_make(dir.path(), Some(1), Some(0)).unwrap();
        let addr = &made.nodes[0].http_addr;
        let port: u16 = addr.rsplit_once(':').unwrap().1.parse().unwrap();
        let error = |nodes, port| Layout::open_or_make(dir.path(), nodes, port).err().unwrap();
        assert!(error(Some(3), None).contains("holds a cluster of 1 nodes, not 3"));
        assert!(error(None, Some(port - 1)).contains(&format!("whose node 1 is at {addr}")));
        assert!(Layout::open_or_make(dir.path(), Some(1), Some(port)).is_ok());
    }

    #[test]
    fn nothing_is_left_of_a_layout_whose_port_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let used = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = used.local_addr().unwrap().port();
        let error = Layout::open_or_make(&data, Some(1), Some(port)).err().unwrap();
        assert!(error.contains(&format!("node 1 cannot listen on 127.0.0.1:{port}")), "{error}");
        assert!(!data.exists());
    }

    #[test]
    fn a_base_port_without_room_above_is_refused() {
        assert!(addrs(3, 65_534).is_err());
        assert_eq!(addrs(1, 7001).unwrap(), [["127.0.0.1:7001", "127.0.0.1:7101", "127.0.0.1:7201"]]);
    }
}

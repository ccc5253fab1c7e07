//! Links between the nodes, and the ways to break them.

use std::collections::BTreeMap;
use std::io;

use clap::ValueEnum;
use testkit::{LinkRule, Links, Ports};

use super::CLUSTER_ID;
use super::namespaces::{self, Namespaces};

/// Way to break links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum NetworkKind {
    /// A user-space TCP proxy for each link. Needs nothing.
    #[value(name = "proxy")]
    Proxies,
    /// Network namespaces on a bridge. Needs root.
    Namespaces,
}

impl NetworkKind {
    /// Returns namespaces where they are available and links need not be slow, else proxies.
    pub fn best(with_delay: bool) -> NetworkKind {
        if !with_delay && namespaces::available().is_ok() { NetworkKind::Namespaces } else { NetworkKind::Proxies }
    }

    /// Name of the way on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Addresses of one node, and the way into its namespace.
#[derive(Clone, Debug)]
pub struct Place {
    /// `host:port` of the node's HTTP door.
    pub http: String,
    /// `ip:port` of the node's ZooKeeper door.
    pub zookeeper: String,
    /// `ip:port` on which the node listens for peers.
    pub peer_listen: String,
    /// `host:port` that peers connect to.
    pub peer: String,
    /// Beginning of the node's command.
    pub enter: Vec<String>,
}

/// The links between the nodes.
pub enum Network {
    /// Proxies on loopback, and the ports of the nodes behind them.
    Proxies(Links, Ports),
    /// Network namespaces and the bridge between them.
    Namespaces(Namespaces),
}

impl Network {
    /// Makes a network for this number of nodes. Returns the network and the addresses of each
    /// node.
    ///
    /// # Errors
    /// When ports or namespaces cannot be had.
    pub async fn make(kind: NetworkKind, nodes: u64) -> io::Result<(Network, Vec<Place>)> {
        if kind == NetworkKind::Namespaces {
            let made = Namespaces::make(nodes)?;
            let place = |node| {
                let (addr, enter) = (made.addr(node), made.enter(node));
                let peer = format!("{addr}:7101");
                let (http, zookeeper) = (format!("{addr}:7001"), format!("{addr}:2181"));
                Place { http, zookeeper, peer_listen: peer.clone(), peer, enter }
            };
            let places = (1..=nodes).map(place).collect();
            return Ok((Network::Namespaces(made), places));
        }
        let ports = Ports::claim(nodes as u16 * 3)?;
        let addrs: Vec<String> = (0..nodes as u16 * 3).map(|n| ports.addr(n)).collect();
        let (http, rest) = addrs.split_at(nodes as usize);
        let (peers, zookeeper) = rest.split_at(nodes as usize);
        let links = Links::start(CLUSTER_ID, peers).await?;
        let place = |(i, (http, peer)): (usize, (&String, &String))| Place {
            http: http.clone(),
            zookeeper: zookeeper[i].clone(),
            peer_listen: peer.clone(),
            peer: links.addr(i as u64 + 1).to_owned(),
            enter: Vec::new(),
        };
        let places = http.iter().zip(peers).enumerate().map(place).collect();
        Ok((Network::Proxies(links, ports), places))
    }

    /// Gives every directed link its rule; links that are not named pass everything.
    ///
    /// # Errors
    /// When this network cannot do that.
    pub fn set(&self, rules: BTreeMap<(u64, u64), LinkRule>) -> io::Result<()> {
        match self {
            Network::Proxies(links, _) => links.set(rules),
            Network::Namespaces(namespaces) => namespaces.set(&rules)?,
        }
        Ok(())
    }

    /// Bytes that a link has held back and then delivered.
    pub fn late_bytes(&self) -> u64 {
        match self {
            Network::Proxies(links, _) => links.late_bytes(),
            Network::Namespaces(_) => 0,
        }
    }
}

//! Links between the nodes, and the means to break them.

use std::collections::BTreeMap;
use std::io;

use clap::ValueEnum;
use testkit::{LinkRule, Links, Ports};

use super::CLUSTER_ID;
use super::namespaces::{self, Namespaces};

/// Means by which faults break the links between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum NetworkKind {
    /// A user-space TCP proxy for each link. Works on every machine.
    #[value(name = "proxy")]
    Proxies,
    /// Network namespaces on a bridge. Needs root.
    Namespaces,
}

impl NetworkKind {
    /// Returns the best means on this machine: namespaces where they are available, else proxies.
    /// With `with_delay` it always returns proxies, because only proxies can delay messages.
    pub fn best(with_delay: bool) -> NetworkKind {
        if !with_delay && namespaces::available().is_ok() { NetworkKind::Namespaces } else { NetworkKind::Proxies }
    }

    /// Value of `--network` on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Addresses of one node, and the command that enters its network namespace.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address (`host:port`) of the node for HTTP.
    pub http: String,
    /// Address (`ip:port`) of the node for ZooKeeper's protocol.
    pub zookeeper: String,
    /// `ip:port` on which the node listens for peers.
    pub peer_listen: String,
    /// Address (`host:port`) that peers connect to; with proxies, that of the node's proxy.
    pub peer: String,
    /// Beginning of the node's command line, which enters its namespace; empty with proxies.
    pub enter: Vec<String>,
}

/// The links between the nodes.
pub enum Network {
    /// Proxies on loopback, and the ports of the nodes behind them.
    Proxies(Links, Ports),
    /// Network namespaces and the bridge between them.
    Namespaces(Namespaces),
    /// Links of a cluster that runs already, in which no fault is made.
    Foreign,
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

    /// Gives every directed link its rule. Links without a rule pass all messages.
    ///
    /// # Errors
    /// When a rule needs a feature that this kind of network does not have.
    pub fn set(&self, rules: BTreeMap<(u64, u64), LinkRule>) -> io::Result<()> {
        match self {
            Network::Proxies(links, _) => links.set(rules),
            Network::Namespaces(namespaces) => namespaces.set(&rules)?,
            Network::Foreign => {}
        }
        Ok(())
    }

    /// Returns the number of bytes that links have held back and then delivered; 0 with namespaces.
    pub fn late_bytes(&self) -> u64 {
        match self {
            Network::Proxies(links, _) => links.late_bytes(),
            Network::Namespaces(_) | Network::Foreign => 0,
        }
    }
}

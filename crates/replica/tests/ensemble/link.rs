//! Links between nodes that can be frozen: while a link is frozen, no byte arrives and none is
//! lost. A link has the connections that one node has opened to another one.
//!
//! Each node has one proxy in front of it, and so one address for all others: members take each
//! other's addresses from the membership, which one of them has written. A proxy reads in the first
//! frame of a connection who has opened it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Links between all nodes of a cluster, by the indexes of the node that opens connections and of
/// the node that answers. The proxies end with the test's runtime.
pub(crate) struct Links {
    addrs: Vec<SocketAddr>,
    frozen: Arc<HashMap<(usize, usize), Frozen>>,
}

/// Tells whether the two directions of a link are frozen.
#[derive(Default)]
struct Frozen {
    there: watch::Sender<bool>,
    back: watch::Sender<bool>,
}

impl Links {
    pub(crate) async fn to(cluster_id: &'static str, nodes: &[SocketAddr]) -> Links {
        let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
        let frozen = Arc::new(pairs.map(|pair| (pair, Frozen::default())).collect());
        let mut addrs = Vec::new();
        for (to, target) in nodes.iter().copied().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addrs.push(listener.local_addr().unwrap());
            let frozen = Arc::clone(&frozen);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(pass(cluster_id, stream, (to, target), Arc::clone(&frozen)));
                }
            });
        }
        Links { addrs, frozen }
    }

    /// Address of the proxy in front of a node.
    pub(crate) fn addr(&self, node: usize) -> SocketAddr {
        self.addrs[node]
    }

    /// Freezes or thaws all links of a node, in both directions.
    pub(crate) fn freeze_all(&self, node: usize, frozen: bool) {
        let touched = self.frozen.keys().filter(|(from, to)| *from == node || *to == node);
        touched.for_each(|link| self.freeze(*link, frozen));
    }

    /// Freezes the links to a node, in both directions. The links from the node to others pass.
    pub(crate) fn deafen(&self, node: usize) {
        self.frozen.keys().filter(|(_, to)| *to == node).for_each(|link| self.freeze(*link, true));
    }

    pub(crate) fn freeze(&self, link: (usize, usize), frozen: bool) {
        self.frozen[&link].there.send_replace(frozen);
        self.freeze_back(link, frozen);
    }

    /// Freezes or thaws only the direction in which the second node answers.
    pub(crate) fn freeze_back(&self, link: (usize, usize), frozen: bool) {
        self.frozen[&link].back.send_replace(frozen);
    }
}

async fn pass(
    cluster_id: &'static str,
    from: TcpStream,
    (to, target): (usize, SocketAddr),
    links: Arc<HashMap<(usize, usize), Frozen>>,
) {
    let Some(caller) = testkit::caller(&from, cluster_id, to as u64 + 1).await else { return };
    let Some(link) = links.get(&(caller as usize - 1, to)) else { return };
    let (mut there, back) = (link.there.subscribe(), link.back.subscribe());
    // A new connection waits for a frozen link, too.
    let _ = there.wait_for(|frozen| !frozen).await;
    let Ok(to) = TcpStream::connect(target).await else {
        return;
    };
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::select! {
        () = copy(from_read, to_write, there) => {}
        () = copy(to_read, from_write, back) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frozen: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // A frozen link also holds back the end of a connection.
    let _ = frozen.wait_for(|frozen| !frozen).await;
}

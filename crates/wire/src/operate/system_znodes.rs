//! Znodes that ZooKeeper clients expect: `/zookeeper` and those below it.

use std::time::Duration;

use replica::{Member, Replica};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};
use znode::{ALL, Acl, Create, Error, Identity, KEEPER, Op, READ, Request, SUPER, State, ZPath, ZnodeOp};

/// Znodes that are created when the node starts, in this order.
const OWN: [&str; 3] = ["/zookeeper", "/zookeeper/quota", CONFIG];
/// Pause before a failed write of a znode is proposed again.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a write that the state machine refused. It is longer, because every such write adds
/// an entry to the log.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// Timeout of one proposal.
const PROPOSE_MAX: Duration = Duration::from_secs(10);
/// Path of the znode with the list of members.
const CONFIG: &str = "/zookeeper/config";

/// Creates the missing znodes of [`OWN`], and updates this node's line in `/zookeeper/config`. In a
/// new cluster all nodes do this at once, and each znode is created by one of them.
pub(crate) async fn make_own_znodes(replica: &Replica, addr: &str) {
    for path in OWN {
        loop {
            let path = ZPath::parse(path).expect("a constant");
            if replica.state().node(&path).is_some() {
                break;
            }
            if propose(replica, kept(make(&path)), Error::NodeExists).await {
                info!(%path, "made a znode that ZooKeeper clients expect");
                break;
            }
        }
    }
    tell_members(replica, if addr == "none" { "" } else { addr }).await;
}

/// Removes this node's address for ZooKeeper clients from `/zookeeper/config`, because the node
/// does not listen for them.
pub async fn announce_no_door(replica: &Replica) {
    let path = ZPath::parse(CONFIG).expect("a constant");
    if replica.state().node(&path).is_some() {
        tell_members(replica, "").await;
    }
}

/// Writes the members into `/zookeeper/config`, again and again until it lists all members and this
/// node's address for clients.
async fn tell_members(replica: &Replica, addr: &str) {
    let path = ZPath::parse(CONFIG).expect("a constant");
    loop {
        let status = replica.status();
        let Some(set) = new_config(&replica.state(), &path, &status.members, status.node_id, addr) else {
            // Members are known only after the cluster is founded.
            if !status.members.is_empty() {
                return;
            }
            sleep(PAUSE).await;
            continue;
        };
        propose(replica, kept(set), Error::BadVersion).await;
    }
}

/// Returns the write that updates `/zookeeper/config`; `None` if its data is up to date, if the
/// znode does not exist yet, or if no members are known.
fn new_config(state: &State, path: &ZPath, members: &[Member], own: u64, addr: &str) -> Option<ZnodeOp> {
    let node = state.node(path)?;
    let before = std::str::from_utf8(node.data()).unwrap_or_default();
    let (lines, version) = before.rsplit_once("\nversion=").unwrap_or((before, "0"));
    let wanted = lines_of(members, own, addr, lines);
    if members.is_empty() || wanted == lines {
        return None;
    }
    let version = u64::from_str_radix(version.trim(), 16).unwrap_or(0).saturating_add(1);
    let data = format!("{wanted}\nversion={version:x}").into_bytes();
    Some(ZnodeOp::SetData { path: path.clone(), data, version: node.stat().version })
}

/// Returns a line for each member, in the form of ZooKeeper's dynamic configuration. The first port
/// is the peer port; the address for clients follows the semicolon. A node knows only its own
/// address for clients, and keeps those of other members from `before`.
///
/// The second port is made up. ZooKeeper uses it for elections, and clients of ZooKeeper 3.9 refuse
/// a line with two equal ports.
fn lines_of(members: &[Member], own: u64, addr: &str, before: &str) -> String {
    let line = |member: &Member| {
        let Member { id, peer_addr, .. } = member;
        let port = peer_addr.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or_default();
        let second = if port == u16::MAX { port - 1 } else { port + 1 };
        let line = format!("server.{id}={peer_addr}:{second}:participant");
        let known = before.lines().find_map(|other| other.strip_prefix(&line)?.strip_prefix(';'));
        match if *id == own { addr } else { known.unwrap_or_default() } {
            "" => line,
            addr => format!("{line};{addr}"),
        }
    };
    members.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Proposes a write. True if the write was applied, or refused with the error `faster` because
/// another node wrote first. Otherwise pauses and returns false.
async fn propose(replica: &Replica, request: Request, faster: Error) -> bool {
    match replica.propose(request, Instant::now() + PROPOSE_MAX).await {
        Ok(applied) => match applied.reply.err().map(|refusal| refusal.error) {
            None => return true,
            // This node has applied the other node's write only now.
            Some(error) if error == faster => return true,
            Some(refused) => {
                warn!(?refused, "a znode that ZooKeeper clients expect is refused");
                sleep(LONG_PAUSE).await;
                return false;
            }
        },
        Err(error) => debug!(%error, "a znode that ZooKeeper clients expect is not written yet"),
    }
    sleep(PAUSE).await;
    false
}

/// Makes a write with the node's own identity, for znodes that no client may write.
fn kept(op: ZnodeOp) -> Request {
    let keeper = [SUPER, KEEPER].map(|scheme| Identity { scheme: scheme.into(), id: "zlock".into() });
    Request { identities: keeper.into(), ..Request::new(Op::Znode(op)) }
}

fn make(path: &ZPath) -> ZnodeOp {
    // As in ZooKeeper, all clients may read the configuration, and none may write it.
    let perms = if path.name() == "config" { READ } else { ALL };
    let acl = vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }];
    ZnodeOp::Create(Create { acl, ..Create::new(path.parent().unwrap_or_else(ZPath::root), path.name()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, peer_addr: &str) -> Member {
        Member { id, peer_addr: peer_addr.into(), http_addr: String::new() }
    }

    #[test]
    fn every_node_keeps_its_own_line() {
        let members = [member(1, "10.0.0.1:7101"), member(2, "[::1]:7101")];
        let first = lines_of(&members, 1, "10.0.0.1:2181", "");
        assert_eq!(
            first,
            "server.1=10.0.0.1:7101:7102:participant;10.0.0.1:2181\nserver.2=[::1]:7101:7102:participant"
        );
        let both = lines_of(&members, 2, "[::1]:2181", &first);
        assert_eq!(both, format!("{first};[::1]:2181"));
        assert_eq!(lines_of(&members, 1, "10.0.0.1:2181", &both), both);
        let closed = lines_of(&members, 1, "", &both);
        assert_eq!(closed, "server.1=10.0.0.1:7101:7102:participant\nserver.2=[::1]:7101:7102:participant;[::1]:2181");
        // A member with a new address gets the address for clients when it writes its line.
        let moved = [member(1, "10.0.0.9:7101"), member(2, "[::1]:7101")];
        assert_eq!(
            lines_of(&moved, 2, "[::1]:2181", &both).lines().next(),
            Some("server.1=10.0.0.9:7101:7102:participant")
        );
    }

    /// Peer addresses without a port, with the highest port, and with port 0. Each must give a line
    /// for `/zookeeper/config`, without a panic.
    #[test]
    fn a_member_without_a_port_ends_no_node() {
        let members = [member(1, "10.0.0.1"), member(2, "10.0.0.2:65535"), member(3, "10.0.0.3:0")];
        let lines = lines_of(&members, 1, "", "");
        assert_eq!(
            lines,
            "server.1=10.0.0.1:1:participant\nserver.2=10.0.0.2:65535:65534:participant\nserver.3=10.0.0.3:0:1:participant"
        );
    }
}

//! Znodes that ZooKeeper clients expect: `/zookeeper` and those below it.

use std::time::Duration;

use replica::{Member, Readiness, Replica};
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

/// Time between two looks whether `/zookeeper/config` lists the present members.
const LOOK: Duration = Duration::from_secs(2);

/// Creates the missing znodes of [`OWN`], and then keeps `/zookeeper/config` up to date, until the
/// future is dropped. In a new cluster all nodes do this at once, and each znode is created by one
/// of them.
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
/// does not listen for them. Then keeps the znode up to date, until the future is dropped.
pub async fn announce_no_door(replica: &Replica) {
    tell_members(replica, "").await;
}

/// Writes this node's address for clients into `/zookeeper/config`, and then the members each time
/// that they have changed.
async fn tell_members(replica: &Replica, addr: &str) {
    let path = ZPath::parse(CONFIG).expect("a constant");
    let mut is_told = false;
    loop {
        let (status, state) = (replica.status(), replica.state());
        let own = (status.node_id, addr);
        if let Some(set) = new_config(&state, &path, &status.members, Some(own).filter(|_| !is_told)) {
            drop(state);
            propose(replica, kept(set), Error::BadVersion).await;
            continue;
        }
        // A node that has not caught up may have an old state, and may not know that it is a
        // member.
        let is_member = status.members.iter().any(|member| member.id == status.node_id);
        is_told |= is_member && status.ready == Readiness::Ready && state.node(&path).is_some();
        drop(state);
        sleep(LOOK).await;
    }
}

/// Returns the write that updates `/zookeeper/config`; `None` if its data is up to date, if the
/// znode does not exist yet, or if no members are known.
fn new_config(state: &State, path: &ZPath, members: &[Member], own: Option<(u64, &str)>) -> Option<ZnodeOp> {
    let node = state.node(path)?;
    let before = std::str::from_utf8(node.data()).unwrap_or_default();
    let (lines, version) = before.rsplit_once("\nversion=").unwrap_or((before, "0"));
    let wanted = lines_of(members, own, lines);
    if members.is_empty() || wanted == lines {
        return None;
    }
    let version = u64::from_str_radix(version.trim(), 16).unwrap_or(0).saturating_add(1);
    let data = format!("{wanted}\nversion={version:x}").into_bytes();
    Some(ZnodeOp::SetData { path: path.clone(), data, version: node.stat().version })
}

/// Returns a line for each member, in the form of ZooKeeper's dynamic configuration. The first port
/// is the peer port; the address for clients follows the semicolon. `own` is this node's id and its
/// address for clients. The addresses of other members are kept from `before`.
///
/// The second port is made up. ZooKeeper uses it for elections, and clients of ZooKeeper 3.9 refuse
/// a line with two equal ports.
fn lines_of(members: &[Member], own: Option<(u64, &str)>, before: &str) -> String {
    let line = |member: &Member| {
        let Member { id, peer_addr, .. } = member;
        let port = peer_addr.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or_default();
        let second = if port == u16::MAX { port - 1 } else { port + 1 };
        let line = format!("server.{id}={peer_addr}:{second}:participant");
        let server = format!("server.{id}=");
        let before = before.lines().find_map(|other| other.strip_prefix(&server)?.split_once(';'));
        let own = own.filter(|(own, _)| own == id).map(|(_, addr)| addr);
        match own.or(before.map(|(_, addr)| addr)).unwrap_or_default() {
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
        let first = lines_of(&members, Some((1, "10.0.0.1:2181")), "");
        assert_eq!(
            first,
            "server.1=10.0.0.1:7101:7102:participant;10.0.0.1:2181\nserver.2=[::1]:7101:7102:participant"
        );
        let both = lines_of(&members, Some((2, "[::1]:2181")), &first);
        assert_eq!(both, format!("{first};[::1]:2181"));
        assert_eq!(lines_of(&members, Some((1, "10.0.0.1:2181")), &both), both);
        let closed = lines_of(&members, Some((1, "")), &both);
        assert_eq!(closed, "server.1=10.0.0.1:7101:7102:participant\nserver.2=[::1]:7101:7102:participant;[::1]:2181");
        // A member that has moved keeps its address for clients until it starts again and writes
        // its line, and a member that was removed has no line.
        let moved = [member(1, "10.0.0.9:7101")];
        assert_eq!(lines_of(&moved, None, &both), "server.1=10.0.0.9:7101:7102:participant;10.0.0.1:2181");
    }

    /// Peer addresses without a port, with the highest port, and with port 0. Each must give a line
    /// for `/zookeeper/config`, without a panic.
    #[test]
    fn a_member_without_a_port_ends_no_node() {
        let members = [member(1, "10.0.0.1"), member(2, "10.0.0.2:65535"), member(3, "10.0.0.3:0")];
        let lines = lines_of(&members, Some((1, "")), "");
        assert_eq!(
            lines,
            "server.1=10.0.0.1:1:participant\nserver.2=10.0.0.2:65535:65534:participant\nserver.3=10.0.0.3:0:1:participant"
        );
    }
}

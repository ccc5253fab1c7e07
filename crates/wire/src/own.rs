//! The znodes that ZooKeeper's clients expect: `/zookeeper` and what is below it.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, info};
use znode::{ALL, Acl, Create, CreateMode, Error, Op, READ, Request, ZPath, ZnodeOp};

use crate::door::Door;
use crate::writes::OWN;

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes them when they are missing. Every node of a new cluster tries, and one of them makes each.
///
/// `/zookeeper/config` stays empty: Curator would connect to whatever addresses it names.
pub(crate) async fn make_own_znodes(door: &Door) {
    for path in OWN {
        loop {
            let path = ZPath::parse(path).expect("a constant");
            if door.replica.state().node(&path).is_some() {
                break;
            }
            match door.replica.propose(Request::new(make(&path)), door.propose_deadline()).await {
                Ok(applied) if applied.reply.is_ok() => {
                    info!(%path, "made a znode that ZooKeeper clients expect");
                    break;
                }
                Ok(applied) => {
                    let refused = applied.reply.err().map(|refusal| refusal.error);
                    if refused == Some(Error::NodeExists) {
                        break;
                    }
                    debug!(%path, ?refused, "a znode that ZooKeeper clients expect cannot be made");
                }
                Err(error) => debug!(%path, %error, "a znode that ZooKeeper clients expect is not made yet"),
            }
            sleep(PAUSE).await;
        }
    }
}

fn make(path: &ZPath) -> Op {
    // As in ZooKeeper: everybody may read the configuration, and nobody writes it.
    let perms = if path.name() == "config" { READ } else { ALL };
    Op::Znode(ZnodeOp::Create(Create {
        parent: path.parent().unwrap_or_else(ZPath::root),
        name: path.name().to_owned(),
        data: Vec::new(),
        mode: CreateMode::Persistent,
        acl: vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }],
    }))
}

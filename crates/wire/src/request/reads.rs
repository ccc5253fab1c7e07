//! Reads without a watch, as pure functions of a state. Also parts of answers that several
//! operations share.

use jute::{
    AclStat, Buffer, DataStat, MultiOp, MultiResult, Names, NamesStat, Number, Record, Stat as WireStat,
    WhoAmIResponse, error, write_multi_results,
};
use znode::{ADMIN, Identity, READ, SessionId, State, ZPath, Znode};

use crate::client::auth;

/// State from which a client reads, and the client's identities.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) state: &'a State,
    pub(crate) identities: &'a [Identity],
}

impl<'a> Reader<'a> {
    /// Returns a znode if the client may read it. A malformed path is answered like a missing
    /// znode.
    pub(crate) fn readable(self, path: &str) -> Result<&'a Znode, i32> {
        self.permitted(path, READ).map(|(_, node)| node)
    }

    /// Returns a znode and its path, if the client has one of the permissions `perms` on the znode.
    fn permitted(self, path: &str, perms: u32) -> Result<(ZPath, &'a Znode), i32> {
        let path = ZPath::parse(path).map_err(|_| error::NO_NODE)?;
        let node = self.state.node(&path).ok_or(error::NO_NODE)?;
        if self.state.may(&path, node, perms, self.identities) { Ok((path, node)) } else { Err(error::NO_AUTH) }
    }

    fn node(self, path: &str) -> Result<&'a Znode, i32> {
        ZPath::parse(path).ok().and_then(|path| self.state.node(&path)).ok_or(error::NO_NODE)
    }

    pub(crate) fn exists(self, path: &str) -> Result<Vec<u8>, i32> {
        self.node(path).map(|node| stat_of(node).to_bytes())
    }

    pub(crate) fn data(self, path: &str) -> Result<Vec<u8>, i32> {
        self.readable(path).map(|node| data_stat(node).to_bytes())
    }

    pub(crate) fn children(self, path: &str, with_stat: bool) -> Result<Vec<u8>, i32> {
        let node = self.readable(path)?;
        let names = self.names(path)?;
        Ok(if with_stat { NamesStat { names, stat: stat_of(node) }.to_bytes() } else { Names { names }.to_bytes() })
    }

    pub(crate) fn acl(self, path: &str) -> Result<Vec<u8>, i32> {
        let (path, node) = self.permitted(path, READ | ADMIN)?;
        let may_set = self.state.may(&path, node, ADMIN, self.identities);
        Ok(AclStat { acl: auth::shown_acl(self.state.acl_of(&path, node), may_set), stat: stat_of(node) }.to_bytes())
    }

    pub(crate) fn descendants(self, path: &str) -> Result<Vec<u8>, i32> {
        self.readable(path)?;
        let path = ZPath::parse(path).map_err(|_| error::NO_NODE)?;
        let number = i32::try_from(self.state.descendant_count(&path)).unwrap_or(i32::MAX);
        Ok(Number { number }.to_bytes())
    }

    /// Lists the session's ephemeral znodes whose paths begin with `prefix`.
    pub(crate) fn ephemerals(self, session: SessionId, prefix: &str) -> Vec<u8> {
        let all = self.state.session(session).into_iter().flat_map(|session| session.ephemerals());
        let names = all.map(ZPath::as_str).filter(|path| path.starts_with(prefix)).map(String::from).collect();
        Names { names }.to_bytes()
    }

    pub(crate) fn who(self) -> Vec<u8> {
        WhoAmIResponse { clients: auth::who(self.identities) }.to_bytes()
    }

    /// Answers several reads from one state, each with its own result. Refuses the whole request if
    /// the answer would be longer than `bytes_max`, because a short request can ask for many GiB.
    pub(crate) fn multi(self, ops: &[MultiOp], bytes_max: usize) -> Result<Vec<u8>, i32> {
        let one = |op: &MultiOp| match op {
            MultiOp::GetData(which) => self.readable(&which.path).map(|node| MultiResult::Data(data_stat(node))),
            MultiOp::GetChildren(which) => {
                self.readable(&which.path).and_then(|_| self.names(&which.path)).map(MultiResult::Children)
            }
            _ => Err(error::MARSHALLING),
        };
        let mut body = Vec::new();
        for op in ops {
            one(op).unwrap_or_else(MultiResult::Error).write(&mut body);
            if body.len() > bytes_max {
                return Err(error::BAD_ARGUMENTS);
            }
        }
        write_multi_results(&[], &mut body);
        Ok(body)
    }

    fn names(self, path: &str) -> Result<Vec<String>, i32> {
        let path = ZPath::parse(path).map_err(|_| error::NO_NODE)?;
        Ok(self.state.children(&path).map_err(|_| error::NO_NODE)?.map(String::from).collect())
    }
}

fn data_stat(node: &Znode) -> DataStat {
    DataStat { data: Buffer::from(&**node.data()), stat: stat_of(node) }
}

/// Returns the stat of a znode in the form that clients get.
pub(crate) fn stat_of(node: &Znode) -> WireStat {
    wire_stat(&node.stat())
}

/// Converts a stat to the form that clients get. The marks that containers and TTL znodes have in
/// `ephemeral_owner` are replaced by 0, as DataNode.getClientEphemeralOwner does.
pub(crate) fn wire_stat(stat: &znode::Stat) -> WireStat {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let small = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    // Session ids are zxids, far below the bits that mark containers and TTL znodes.
    let ephemeral_owner = if stat.ephemeral_owner >> 56 == 0 { number(stat.ephemeral_owner) } else { 0 };
    WireStat {
        czxid: number(stat.czxid.0),
        mzxid: number(stat.mzxid.0),
        ctime_ms: number(stat.ctime_ms),
        mtime_ms: number(stat.mtime_ms),
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner,
        data_length: small(stat.data_length),
        num_children: small(stat.num_children),
        pzxid: number(stat.pzxid.0),
    }
}

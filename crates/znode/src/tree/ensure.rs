//! Creates that see to it that a session has an ephemeral znode, in one entry of the log: a member
//! of a group, a simple lock.
//!
//! [`State`] creates missing directories on the way to it, and answers with the znode that the
//! session has already. So a door need not look before it asks, nor ask again after it has looked.

use crate::tree::permissions::check_client_path;
use crate::{Ensure, Error, Op, Refusal, SessionId, Stat, State, ZPath, Znode, ZnodeOp};

impl ZnodeOp {
    /// Whether it has no place in a multi.
    pub(crate) fn stands_alone(&self) -> bool {
        matches!(self, ZnodeOp::Create(create) if create.ensure != Ensure::New)
    }
}

impl Znode {
    /// Whether it is what a create would see to: the session's own, with the same data where that
    /// counts.
    pub(crate) fn is_ensured(&self, ensure: Ensure, session: Option<SessionId>, data: &[u8]) -> bool {
        match ensure {
            Ensure::New => false,
            Ensure::Own => self.is_owned_by(session),
            Ensure::OwnWithData => self.is_owned_by(session) && *self.data == *data,
        }
    }
}

impl State {
    /// Whether what an earlier create has seen to is not there any more.
    pub(crate) fn is_gone_since(&self, op: &Op, path: &ZPath, stat: &Stat) -> bool {
        let ensured = matches!(op, Op::Znode(op) if op.stands_alone());
        ensured && self.node(path).is_none_or(|node| node.czxid != stat.czxid)
    }

    /// The parent that a create needs, or the nearest ancestor that exists and what is to be made
    /// below it, deepest first.
    pub(crate) fn way_to(&self, parent: &ZPath, ensure: Ensure) -> Result<(ZPath, Vec<ZPath>), Refusal> {
        let refuse = |error| Refusal::at(error, parent);
        if ensure == Ensure::New {
            let there = self.tree.contains(parent);
            return if there { Ok((parent.clone(), Vec::new())) } else { Err(refuse(Error::NoNode)) };
        }
        check_client_path(parent)?;
        self.missing_on_the_way(parent).map_err(refuse)
    }
}

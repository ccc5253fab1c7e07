//! The cost of a request in steps of an entry's budget (`budget.rs`), known before the request is
//! executed.

use crate::edits::budget::{steps_at, steps_to};
use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::edits::permissions::permit;
use crate::{CREATE, DELETE, Error, Op, READ, Refusal, State, WRITE, ZPath, ZnodeOp};

impl State {
    /// Steps of a log entry's budget that a multi, or a revocation that takes effect at once, may
    /// take. 0 for all other operations, which take few steps.
    pub(crate) fn cost_of(&self, op: &Op) -> u64 {
        match op {
            Op::Multi(ops) => self.cost_of_multi(ops),
            Op::Revoke { path, deadline_ms: Some(0) } => self.cost_of_revoking(path),
            _ => 0,
        }
    }

    fn cost_of_multi(&self, ops: &[ZnodeOp]) -> u64 {
        ops.iter().map(|op| self.cost_of_one(op)).sum()
    }

    fn cost_of_one(&self, op: &ZnodeOp) -> u64 {
        match op {
            ZnodeOp::Create(create) => steps_at(create.parent.depth() + 1),
            ZnodeOp::Delete { path, .. } => self.cost_of_removing(path),
            ZnodeOp::SetData { .. } | ZnodeOp::Check { .. } => 0,
        }
    }

    /// Refuses a multi that would exceed the entry's budget, before any part of it is executed.
    /// Undoing it later would double its cost, and a client may repeat the request. The count stops
    /// at an operation that is not permitted, because the multi fails there at the latest.
    ///
    /// # Errors
    /// `TooManyOps`, with the index of the operation that exceeds the budget.
    pub(crate) fn check_multi_cost(&self, ops: &[ZnodeOp], effects: &Effects) -> Result<(), Refusal> {
        let mut left = self.steps_left(effects);
        for (index, op) in ops.iter().enumerate() {
            if self.is_denied(op, &ops[..index], &effects.context) {
                return Ok(());
            }
            let Some(less) = left.checked_sub(self.cost_of_one(op)) else {
                let op_index = u32::try_from(index).ok();
                return Err(Refusal { op_index, ..Error::TooManyOps.into() });
            };
            left = less;
        }
        Ok(())
    }

    /// Tells whether an operation of a multi is certainly refused for lack of permission, even
    /// after the operations `before` it.
    fn is_denied(&self, op: &ZnodeOp, before: &[ZnodeOp], context: &Context) -> bool {
        let (guard, perms) = match op {
            ZnodeOp::Create(create) => (create.parent.as_str(), CREATE),
            ZnodeOp::Delete { path, .. } => (path.parent_str().unwrap_or("/"), DELETE),
            ZnodeOp::SetData { path, .. } => (path.as_str(), WRITE),
            ZnodeOp::Check { path, .. } => (path.as_str(), READ),
        };
        let Some(node) = self.tree().get(guard) else { return false };
        let denied = match op {
            ZnodeOp::SetData { path, data, .. } => self.permit_data(path, data, context).is_err(),
            _ => permit(&node.acl, perms, context).is_err(),
        };
        // An earlier operation may delete the guarding znode, and another one may make it again
        // with another ACL.
        denied && !before.iter().any(|op| matches!(op, ZnodeOp::Delete { path, .. } if path.as_str() == guard))
    }

    fn cost_of_revoking(&self, path: &ZPath) -> u64 {
        // A missing lock is refused for that reason.
        let there = Some(path).filter(|path| self.tree().contains(*path));
        let tickets = there.and_then(|path| self.holders(path).ok()).unwrap_or_default();
        tickets.iter().map(|ticket| self.cost_of_removing(ticket)).sum()
    }

    /// Steps of a log entry's budget for removing a znode. If the znode is a ticket of a
    /// multi-lock, all tickets of the multi-lock are removed with it.
    pub(crate) fn cost_of_removing(&self, path: &ZPath) -> u64 {
        let multi = self.node(path).and_then(|node| self.multi_of(path, node));
        multi.map_or_else(|| steps_to(path), |multi| multi.tickets.iter().map(steps_to).sum())
    }
}

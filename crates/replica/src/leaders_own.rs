//! What only a leader proposes, of itself and past the doors of all nodes.
//!
//! A member passes on what clients ask. No client asks for one of these, so no member passes one on: a request that does came
//! from a stranger at the peer port. Taken, it would expire sessions that live, or lift every limit.

use znode::{Op, ProvenOp, TurnOp};

/// Whether only the leader itself may propose this. Without a wildcard: a new operation is to be put on one side or the other.
pub(crate) fn is_leaders_own(op: &Op) -> bool {
    match op {
        Op::ExpireSessions { .. } | Op::Reap { .. } | Op::SetLimits(_) | Op::SetLockLimits(_) => true,
        Op::InTurn(write) => match write.op {
            TurnOp::Znode(_) | TurnOp::Multi(_) | TurnOp::SetAcl { .. } | TurnOp::CloseSession => false,
        },
        Op::Proven(proven) => match proven.op {
            ProvenOp::Znode(_)
            | ProvenOp::Multi(_)
            | ProvenOp::SetAcl { .. }
            | ProvenOp::Acquire { .. }
            | ProvenOp::AcquireAll(_)
            | ProvenOp::AcquireAllAs { .. }
            | ProvenOp::Upgrade(_)
            | ProvenOp::SetLock { .. }
            | ProvenOp::Revoke { .. }
            | ProvenOp::Release { .. }
            | ProvenOp::ReleaseHeld(_)
            | ProvenOp::HandOver { .. }
            | ProvenOp::CloseSession { .. } => false,
        },
        Op::OpenSession { .. }
        | Op::CloseSession { .. }
        | Op::AttachSession { .. }
        | Op::Znode(_)
        | Op::Multi(_)
        | Op::SetAcl { .. }
        | Op::Acquire(_)
        | Op::AcquireUrgent { .. }
        | Op::AcquireAll(_)
        | Op::AcquireAllAs { .. }
        | Op::Upgrade(_)
        | Op::Release { .. }
        | Op::Withdraw { .. }
        | Op::ReleaseHeld(_)
        | Op::HandOver { .. }
        | Op::Revoke { .. }
        | Op::SetLock { .. } => false,
    }
}

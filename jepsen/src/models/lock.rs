//! A mutex that knows its owner.

use crate::wgl::Model;

/// An operation on the lock, by a client with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOp {
    /// The client took it.
    Acquire(u64),
    /// The client gave it back.
    Release(u64),
    /// The client's session ended: the lock is free if the client held it.
    Close(u64),
}

/// A lock that one client holds, or nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockModel;

impl Model for LockModel {
    type State = Option<u64>;
    type Op = LockOp;

    fn initial(&self) -> Self::State {
        None
    }

    fn step(&self, state: &Self::State, op: &LockOp) -> Option<Self::State> {
        match *op {
            LockOp::Acquire(client) => state.is_none().then_some(Some(client)),
            LockOp::Release(client) => (*state == Some(client)).then_some(None),
            LockOp::Close(client) => Some(state.filter(|holder| *holder != client)),
        }
    }
}

//! Model of one register with read, write and compare-and-set.

use crate::wgl::Model;

/// An operation on the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOp {
    /// A read that was answered with this value; `None` is "never written".
    Read(Option<i64>),
    /// A write.
    Write(i64),
    /// A compare-and-set that succeeded, or may have.
    Cas(i64, i64),
}

/// A register that holds nothing at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterModel;

impl Model for RegisterModel {
    type State = Option<i64>;
    type Op = RegisterOp;

    fn initial(&self) -> Self::State {
        None
    }

    fn step(&self, state: &Self::State, op: &RegisterOp) -> Option<Self::State> {
        match op {
            RegisterOp::Read(value) => (value == state).then_some(*state),
            RegisterOp::Write(value) => Some(Some(*value)),
            RegisterOp::Cas(old, new) => (*state == Some(*old)).then_some(Some(*new)),
        }
    }
}

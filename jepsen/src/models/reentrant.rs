//! A mutex that its owner may take again.

use crate::wgl::Model;

/// An operation on the lock, by a client with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReentrantOp {
    /// The client took it and was told how often it holds it now; `None` when the answer is
    /// unknown.
    Acquire(u64, Option<u64>),
    /// The client gave one hold back and was told how many are left; `None` when the answer is
    /// unknown.
    Release(u64, Option<u64>),
    /// The client's session ended: all its holds are gone.
    Close(u64),
}

/// A lock that one client holds one or more times, or nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReentrantModel;

impl Model for ReentrantModel {
    /// The holder and its holds.
    type State = Option<(u64, u64)>;
    type Op = ReentrantOp;

    fn initial(&self) -> Self::State {
        None
    }

    fn step(&self, state: &Self::State, op: &ReentrantOp) -> Option<Self::State> {
        match (*op, *state) {
            (ReentrantOp::Acquire(client, holds), None) => {
                holds.is_none_or(|holds| holds == 1).then_some(Some((client, 1)))
            }
            (ReentrantOp::Acquire(client, answered), Some((holder, holds))) => {
                let fits = client == holder && answered.is_none_or(|answered| answered == holds + 1);
                fits.then_some(Some((client, holds + 1)))
            }
            (ReentrantOp::Release(client, left), Some((holder, holds))) => {
                let fits = client == holder && left.is_none_or(|left| left + 1 == holds);
                fits.then_some((holds > 1).then_some((client, holds - 1)))
            }
            (ReentrantOp::Release(..), None) => None,
            (ReentrantOp::Close(client), state) => Some(state.filter(|(holder, _)| *holder != client)),
        }
    }
}

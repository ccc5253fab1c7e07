//! Model of a lock. One client holds it exclusively, perhaps several times (reentrant), or several
//! readers hold it together.

use crate::wgl::Model;

/// An operation on the lock, by a client with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOp {
    /// The client took the lock together with other readers.
    Read(u64),
    /// The client took the lock alone, and was told how often it holds it now; `None` when the
    /// answer does not say.
    Acquire(u64, Option<u64>),
    /// The client gave one hold back, and was told how many are left; `None` when the answer does
    /// not say.
    Release(u64, Option<u64>),
    /// The client's session ended: all its holds are gone.
    Close(u64),
}

/// Holders of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holders {
    readers: Vec<u64>,
    /// The client that holds the lock exclusively, by its number, and how many of its acquires are
    /// not released yet (more than one only if the lock is re-entrant).
    alone: Option<(u64, u64)>,
}

/// A lock that is free at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockModel {
    /// Whether a client that holds the lock may acquire it again.
    pub reentrant: bool,
}

impl Model for LockModel {
    type State = Holders;
    type Op = LockOp;

    fn initial(&self) -> Holders {
        Holders::default()
    }

    fn step(&self, state: &Holders, op: &LockOp) -> Option<Holders> {
        let mut after = state.clone();
        match (*op, state.alone) {
            (LockOp::Read(client), None) => after.readers.insert(state.readers.binary_search(&client).err()?, client),
            (LockOp::Acquire(client, answered), alone) if state.readers.is_empty() => {
                let before = match alone {
                    None => 0,
                    Some((holder, holds)) => (self.reentrant && holder == client).then_some(holds)?,
                };
                after.alone = answered.is_none_or(|holds| holds == before + 1).then_some(Some((client, before + 1)))?;
            }
            (LockOp::Release(client, answered), Some((holder, holds))) if client == holder => {
                let left = answered.is_none_or(|left| left + 1 == holds).then_some(holds - 1)?;
                after.alone = (left > 0).then_some((client, left));
            }
            (LockOp::Release(client, _), None) => {
                after.readers.remove(state.readers.binary_search(&client).ok()?);
            }
            (LockOp::Close(client), alone) => {
                after.readers.retain(|reader| *reader != client);
                after.alone = alone.filter(|(holder, _)| *holder != client);
            }
            (LockOp::Read(_) | LockOp::Acquire(..) | LockOp::Release(..), _) => return None,
        }
        Some(after)
    }
}

//! A lock that several readers or one writer hold.

use crate::wgl::Model;

/// An operation on the lock, by a client with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RwLockOp {
    /// The client took it together with other readers.
    Read(u64),
    /// The client took it alone.
    Write(u64),
    /// The client gave it back.
    Release(u64),
    /// The client's session ended.
    Close(u64),
}

/// Who holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RwHolders {
    readers: Vec<u64>,
    writer: Option<u64>,
}

/// A read/write lock that nobody holds at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct RwLockModel;

impl Model for RwLockModel {
    type State = RwHolders;
    type Op = RwLockOp;

    fn initial(&self) -> RwHolders {
        RwHolders::default()
    }

    fn step(&self, state: &RwHolders, op: &RwLockOp) -> Option<RwHolders> {
        let mut after = state.clone();
        match *op {
            RwLockOp::Read(client) => {
                if state.writer.is_some() {
                    return None;
                }
                let at = after.readers.binary_search(&client).err()?;
                after.readers.insert(at, client);
            }
            RwLockOp::Write(client) => {
                if state.writer.is_some() || !state.readers.is_empty() {
                    return None;
                }
                after.writer = Some(client);
            }
            RwLockOp::Release(client) if state.writer == Some(client) => after.writer = None,
            RwLockOp::Release(client) => {
                after.readers.remove(state.readers.binary_search(&client).ok()?);
            }
            RwLockOp::Close(client) => {
                after.readers.retain(|reader| *reader != client);
                after.writer = state.writer.filter(|writer| *writer != client);
            }
        }
        Some(after)
    }
}

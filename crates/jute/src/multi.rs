//! Results of the operations of a multi. Each result follows a header, and a header with `done`
//! ends the list.

use crate::request::{END, op};
use crate::{DataStat, DecodeError, Input, MultiHeader, Names, Number, PathOnly, PathStat, Record, Stat};

/// The result of one operation of a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult {
    /// The result of create.
    Created(String),
    /// The result of create2, createContainer and createTTL, which all have the same form.
    CreatedStat(PathStat),
    /// The result of delete.
    Deleted,
    /// The result of setData.
    Set(Stat),
    /// The result of check.
    Checked,
    /// The result of getData.
    Data(DataStat),
    /// The result of getChildren.
    Children(Vec<String>),
    /// An error code. In a failed multi every operation has one: 0 before the failed operation, and
    /// [`crate::error::RUNTIME_INCONSISTENCY`] after it.
    Error(i32),
}

impl MultiResult {
    /// Appends the result and its header to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (op, error) = match self {
            MultiResult::Created(_) => (op::CREATE, 0),
            MultiResult::CreatedStat(_) => (op::CREATE2, 0),
            MultiResult::Deleted => (op::DELETE, 0),
            MultiResult::Set(_) => (op::SET_DATA, 0),
            MultiResult::Checked => (op::CHECK, 0),
            MultiResult::Data(_) => (op::GET_DATA, 0),
            MultiResult::Children(_) => (op::GET_CHILDREN, 0),
            MultiResult::Error(error) => (-1, *error),
        };
        MultiHeader { op, done: false, error }.write(out);
        match self {
            MultiResult::Created(path) => path.write(out),
            MultiResult::CreatedStat(created) => created.write(out),
            MultiResult::Set(stat) => stat.write(out),
            MultiResult::Data(data) => data.write(out),
            MultiResult::Children(names) => names.write(out),
            MultiResult::Error(error) => error.write(out),
            MultiResult::Deleted | MultiResult::Checked => {}
        }
    }
}

/// Appends the results and the header that ends them to `out`.
pub fn write_multi_results(results: &[MultiResult], out: &mut Vec<u8>) {
    results.iter().for_each(|result| result.write(out));
    END.write(out);
}

/// Reads results up to the header that ends them.
///
/// # Errors
/// When the bytes do not encode a list of results.
pub fn read_multi_results(input: &mut Input<'_>) -> Result<Vec<MultiResult>, DecodeError> {
    let mut results = Vec::new();
    loop {
        let header: MultiHeader = input.read()?;
        if header.done {
            return Ok(results);
        }
        results.push(match header.op {
            op::CREATE => MultiResult::Created(input.read::<PathOnly>()?.path),
            op::CREATE2 => MultiResult::CreatedStat(input.read()?),
            op::DELETE => MultiResult::Deleted,
            op::SET_DATA => MultiResult::Set(input.read()?),
            op::CHECK => MultiResult::Checked,
            op::GET_DATA => MultiResult::Data(input.read()?),
            op::GET_CHILDREN => MultiResult::Children(input.read::<Names>()?.names),
            -1 => MultiResult::Error(input.read::<Number>()?.number),
            other => return Err(DecodeError::Op(other)),
        });
    }
}

//! Transactions: operations, or results, each behind a header, until a header that says that it is
//! the last.

use crate::{
    CreateRequest, CreateTtlRequest, DataStat, DecodeError, Input, MultiHeader, Names, Number, PathOnly, PathStat,
    PathVersion, PathWatch, Record, SetDataRequest, Stat, op,
};

const END: MultiHeader = MultiHeader { op: -1, done: true, error: -1 };

/// An operation of a multi, or of a multiRead (the last two).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiOp {
    /// Creates; the op is create, create2 or createContainer.
    Create(i32, CreateRequest),
    /// Creates with a time to live.
    CreateTtl(CreateTtlRequest),
    /// Deletes.
    Delete(PathVersion),
    /// Sets data.
    SetData(SetDataRequest),
    /// Compares a version.
    Check(PathVersion),
    /// Reads data.
    GetData(PathWatch),
    /// Lists children.
    GetChildren(PathWatch),
}

impl MultiOp {
    /// Its number in the header.
    pub fn op(&self) -> i32 {
        match self {
            MultiOp::Create(op, _) => *op,
            MultiOp::CreateTtl(_) => op::CREATE_TTL,
            MultiOp::Delete(_) => op::DELETE,
            MultiOp::SetData(_) => op::SET_DATA,
            MultiOp::Check(_) => op::CHECK,
            MultiOp::GetData(_) => op::GET_DATA,
            MultiOp::GetChildren(_) => op::GET_CHILDREN,
        }
    }

    /// Whether it changes nothing and belongs into a multiRead.
    pub fn is_read(&self) -> bool {
        matches!(self, MultiOp::GetData(_) | MultiOp::GetChildren(_))
    }
}

/// Appends operations and the end.
pub fn write_multi(ops: &[MultiOp], out: &mut Vec<u8>) {
    for one in ops {
        MultiHeader { op: one.op(), done: false, error: -1 }.write(out);
        match one {
            MultiOp::Create(_, create) => create.write(out),
            MultiOp::CreateTtl(create) => create.write(out),
            MultiOp::Delete(which) | MultiOp::Check(which) => which.write(out),
            MultiOp::SetData(set) => set.write(out),
            MultiOp::GetData(which) | MultiOp::GetChildren(which) => which.write(out),
        }
    }
    END.write(out);
}

/// Reads operations up to the end.
///
/// # Errors
/// When they cannot be read, or one is no operation of a multi. Reads and writes may be mixed; the
/// caller looks.
pub fn read_multi(input: &mut Input<'_>) -> Result<Vec<MultiOp>, DecodeError> {
    let mut ops = Vec::new();
    loop {
        let header: MultiHeader = input.read()?;
        if header.done {
            return Ok(ops);
        }
        ops.push(match header.op {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => MultiOp::Create(header.op, input.read()?),
            op::CREATE_TTL => MultiOp::CreateTtl(input.read()?),
            op::DELETE => MultiOp::Delete(input.read()?),
            op::SET_DATA => MultiOp::SetData(input.read()?),
            op::CHECK => MultiOp::Check(input.read()?),
            op::GET_DATA => MultiOp::GetData(input.read()?),
            op::GET_CHILDREN => MultiOp::GetChildren(input.read()?),
            other => return Err(DecodeError::Op(other)),
        });
    }
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult {
    /// Of create.
    Created(String),
    /// Of create2, createContainer and createTTL: all of them are answered as create2.
    CreatedStat(PathStat),
    /// Of delete.
    Deleted,
    /// Of setData.
    Set(Stat),
    /// Of check.
    Checked,
    /// Of getData.
    Data(DataStat),
    /// Of getChildren.
    Children(Vec<String>),
    /// It failed, or another operation of the same multi did.
    Error(i32),
}

impl MultiResult {
    /// Appends the result with its header.
    pub fn write(&self, out: &mut Vec<u8>) {
        let header = |op, error| MultiHeader { op, done: false, error };
        match self {
            MultiResult::Created(path) => {
                header(op::CREATE, 0).write(out);
                path.write(out);
            }
            MultiResult::CreatedStat(created) => {
                header(op::CREATE2, 0).write(out);
                created.write(out);
            }
            MultiResult::Deleted => header(op::DELETE, 0).write(out),
            MultiResult::Set(stat) => {
                header(op::SET_DATA, 0).write(out);
                stat.write(out);
            }
            MultiResult::Checked => header(op::CHECK, 0).write(out),
            MultiResult::Data(data) => {
                header(op::GET_DATA, 0).write(out);
                data.write(out);
            }
            MultiResult::Children(names) => {
                header(op::GET_CHILDREN, 0).write(out);
                names.write(out);
            }
            MultiResult::Error(error) => {
                header(-1, *error).write(out);
                Number { number: *error }.write(out);
            }
        }
    }
}

/// Appends results and the end.
pub fn write_multi_results(results: &[MultiResult], out: &mut Vec<u8>) {
    results.iter().for_each(|result| result.write(out));
    END.write(out);
}

/// Reads results up to the end.
///
/// # Errors
/// When they cannot be read.
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

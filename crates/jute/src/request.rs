//! Requests: which record belongs to which operation.

use crate::{
    AddWatchRequest, AuthRequest, CreateRequest, CreateTtlRequest, DecodeError, Input, MultiOp, PathOnly, PathVersion,
    PathWatch, PathWatcher, ReconfigRequest, Record, SaslToken, SetAclRequest, SetDataRequest, SetWatches, SetWatches2,
    op, read_multi, write_multi,
};

/// A request behind its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// create, create2 or createContainer, as the op says.
    Create(i32, CreateRequest),
    /// createTTL.
    CreateTtl(CreateTtlRequest),
    /// delete.
    Delete(PathVersion),
    /// exists.
    Exists(PathWatch),
    /// getData.
    GetData(PathWatch),
    /// setData.
    SetData(SetDataRequest),
    /// getACL.
    GetAcl(PathOnly),
    /// setACL.
    SetAcl(SetAclRequest),
    /// getChildren.
    GetChildren(PathWatch),
    /// getChildren2.
    GetChildren2(PathWatch),
    /// sync.
    Sync(PathOnly),
    /// ping.
    Ping,
    /// check, outside of a multi.
    Check(PathVersion),
    /// multi: writes and checks only.
    Multi(Vec<MultiOp>),
    /// multiRead: reads only.
    MultiRead(Vec<MultiOp>),
    /// reconfig.
    Reconfig(ReconfigRequest),
    /// checkWatches.
    CheckWatches(PathWatcher),
    /// removeWatches.
    RemoveWatches(PathWatcher),
    /// auth.
    Auth(AuthRequest),
    /// setWatches, and setWatches2 without the persistent ones.
    SetWatches(SetWatches),
    /// setWatches2.
    SetWatches2(SetWatches2),
    /// sasl.
    Sasl(SaslToken),
    /// getEphemerals: of the session, below a prefix.
    GetEphemerals(PathOnly),
    /// getAllChildrenNumber.
    GetAllChildrenNumber(PathOnly),
    /// addWatch.
    AddWatch(AddWatchRequest),
    /// whoAmI.
    WhoAmI,
    /// closeSession.
    CloseSession,
    /// An operation that is not known, or that servers keep to themselves.
    Unknown(i32),
}

impl Request {
    /// Reads the body of a request. Bytes behind it are ignored.
    ///
    /// # Errors
    /// When it is too short or breaks a rule; ZooKeeper answers -5 then and goes on.
    pub fn read(op: i32, body: &[u8]) -> Result<Request, DecodeError> {
        let mut input = Input::new(body);
        Ok(match op {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => Request::Create(op, input.read()?),
            op::CREATE_TTL => Request::CreateTtl(input.read()?),
            op::DELETE => Request::Delete(input.read()?),
            op::EXISTS => Request::Exists(input.read()?),
            op::GET_DATA => Request::GetData(input.read()?),
            // ZooKeeper says of a null path here what it says of one that breaks the rules; in a
            // multi it is a broken packet.
            op::SET_DATA => {
                let (path, data, version) = (input.text()?, input.read()?, input.read()?);
                Request::SetData(SetDataRequest { path, data, version })
            }
            op::GET_ACL => Request::GetAcl(input.read()?),
            op::SET_ACL => {
                let (path, acl, version) = (input.text()?, input.read()?, input.read()?);
                Request::SetAcl(SetAclRequest { path, acl, version })
            }
            op::GET_CHILDREN => Request::GetChildren(input.read()?),
            op::GET_CHILDREN2 => Request::GetChildren2(input.read()?),
            op::SYNC => Request::Sync(PathOnly { path: input.text()? }),
            op::PING => Request::Ping,
            op::CHECK => Request::Check(input.read()?),
            op::MULTI => Request::Multi(all(read_multi(&mut input)?, |one| !one.is_read())?),
            op::MULTI_READ => Request::MultiRead(all(read_multi(&mut input)?, MultiOp::is_read)?),
            op::RECONFIG => Request::Reconfig(input.read()?),
            op::CHECK_WATCHES => Request::CheckWatches(input.read()?),
            op::REMOVE_WATCHES => Request::RemoveWatches(PathWatcher { path: input.text()?, kind: input.read()? }),
            op::AUTH => Request::Auth(input.read()?),
            op::SET_WATCHES => Request::SetWatches(input.read()?),
            op::SET_WATCHES2 => Request::SetWatches2(input.read()?),
            op::SASL => Request::Sasl(input.read()?),
            op::GET_EPHEMERALS => Request::GetEphemerals(PathOnly { path: input.text()? }),
            op::GET_ALL_CHILDREN_NUMBER => Request::GetAllChildrenNumber(input.read()?),
            op::ADD_WATCH => Request::AddWatch(AddWatchRequest { path: input.text()?, mode: input.read()? }),
            op::WHO_AM_I => Request::WhoAmI,
            op::CLOSE_SESSION => Request::CloseSession,
            other => Request::Unknown(other),
        })
    }

    /// The operation's number.
    pub fn op(&self) -> i32 {
        match self {
            Request::Create(op, _) | Request::Unknown(op) => *op,
            Request::CreateTtl(_) => op::CREATE_TTL,
            Request::Delete(_) => op::DELETE,
            Request::Exists(_) => op::EXISTS,
            Request::GetData(_) => op::GET_DATA,
            Request::SetData(_) => op::SET_DATA,
            Request::GetAcl(_) => op::GET_ACL,
            Request::SetAcl(_) => op::SET_ACL,
            Request::GetChildren(_) => op::GET_CHILDREN,
            Request::GetChildren2(_) => op::GET_CHILDREN2,
            Request::Sync(_) => op::SYNC,
            Request::Ping => op::PING,
            Request::Check(_) => op::CHECK,
            Request::Multi(_) => op::MULTI,
            Request::MultiRead(_) => op::MULTI_READ,
            Request::Reconfig(_) => op::RECONFIG,
            Request::CheckWatches(_) => op::CHECK_WATCHES,
            Request::RemoveWatches(_) => op::REMOVE_WATCHES,
            Request::Auth(_) => op::AUTH,
            Request::SetWatches(_) => op::SET_WATCHES,
            Request::SetWatches2(_) => op::SET_WATCHES2,
            Request::Sasl(_) => op::SASL,
            Request::GetEphemerals(_) => op::GET_EPHEMERALS,
            Request::GetAllChildrenNumber(_) => op::GET_ALL_CHILDREN_NUMBER,
            Request::AddWatch(_) => op::ADD_WATCH,
            Request::WhoAmI => op::WHO_AM_I,
            Request::CloseSession => op::CLOSE_SESSION,
        }
    }

    /// Appends the body, without a header: the client's side.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Request::Create(_, record) => record.write(out),
            Request::CreateTtl(record) => record.write(out),
            Request::Delete(record) | Request::Check(record) => record.write(out),
            Request::Exists(record)
            | Request::GetData(record)
            | Request::GetChildren(record)
            | Request::GetChildren2(record) => record.write(out),
            Request::SetData(record) => record.write(out),
            Request::GetAcl(record)
            | Request::Sync(record)
            | Request::GetEphemerals(record)
            | Request::GetAllChildrenNumber(record) => record.write(out),
            Request::SetAcl(record) => record.write(out),
            Request::Multi(ops) | Request::MultiRead(ops) => write_multi(ops, out),
            Request::Reconfig(record) => record.write(out),
            Request::CheckWatches(record) | Request::RemoveWatches(record) => record.write(out),
            Request::Auth(record) => record.write(out),
            Request::SetWatches(record) => record.write(out),
            Request::SetWatches2(record) => record.write(out),
            Request::Sasl(record) => record.write(out),
            Request::AddWatch(record) => record.write(out),
            Request::Ping | Request::WhoAmI | Request::CloseSession | Request::Unknown(_) => {}
        }
    }
}

fn all(ops: Vec<MultiOp>, allowed: impl Fn(&MultiOp) -> bool) -> Result<Vec<MultiOp>, DecodeError> {
    match ops.iter().find(|one| !allowed(one)) {
        Some(one) => Err(DecodeError::Op(one.op())),
        None => Ok(ops),
    }
}

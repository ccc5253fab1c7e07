//! Conversion of write requests to operations of the state machine, and of its replies to answers,
//! as pure functions.

use jute::{
    Acl, CreateRequest, CreateTtlRequest, MultiOp, MultiResult, PathOnly, PathStat, PathVersion, Record, SetAclRequest,
    SetDataRequest, create_flags, error, op, write_multi_results,
};
use znode::{Create, CreateMode, Identity, Limits, Op, Refusal, Reply, SessionId, State, TxnOutcome, ZPath, ZnodeOp};

use crate::client::auth::fixed_acl;
use crate::client::codes::reply_to;
use crate::request::reads::wire_stat;

/// Form of the body of the answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No body.
    Nothing,
    /// The path of the created znode.
    Path,
    /// The path and the stat of the created znode.
    PathStat,
    /// The stat of the changed znode.
    Stat,
    /// A result for each operation of a multi. The numbers are the codes of the multi's operations.
    Multi(Vec<i32>),
}

/// Answer to a write that is refused before it is proposed: the error code for its header, or as
/// its body the results of a multi with a refused operation.
pub(crate) type EarlyRefusal = Result<Vec<u8>, i32>;

/// Client that sends a write, and the limits of the state. The state machine enforces the limits.
/// They are also checked before the proposal, so that a short packet cannot become a large
/// operation.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) session: SessionId,
    pub(crate) identities: &'a [Identity],
    pub(crate) limits: &'a Limits,
}

impl Asker<'_> {
    fn acl(self, acl: Vec<Acl>) -> Option<Vec<znode::Acl>> {
        fixed_acl(acl, self.identities, self.limits.acl_entries_max as usize)
    }
}

/// Operation of the state machine, with the form of its answer; or the refusal of a write that is
/// not proposed.
pub(crate) type Preparation = Result<(Op, Shape), EarlyRefusal>;

/// Makes the [`Preparation`] of a write of one znode.
pub(crate) fn one(op: Result<ZnodeOp, i32>, shape: Shape) -> Preparation {
    op.map(|op| (Op::Znode(op), shape)).map_err(EarlyRefusal::Err)
}

/// Returns the number of bytes of a write's ACLs. It may be many times the packet's length, because
/// each ACL entry `auth` was replaced by all identities of the client.
pub(crate) fn acl_bytes(op: &Op) -> usize {
    let of = |acl: &[znode::Acl]| acl.iter().map(|one| size_of_val(one) + one.scheme.len() + one.id.len()).sum();
    let one = |op: &ZnodeOp| if let ZnodeOp::Create(create) = op { of(&create.acl) } else { 0 };
    match op {
        Op::Znode(op) => one(op),
        Op::Multi(ops) => ops.iter().map(one).sum(),
        Op::SetAcl { acl, .. } => of(acl),
        _ => 0,
    }
}

pub(crate) fn create(op: i32, create: &CreateRequest, asker: Asker<'_>) -> Result<ZnodeOp, i32> {
    let mode = match create.flags {
        create_flags::PERSISTENT if op == op::CREATE_CONTAINER => CreateMode::Container,
        create_flags::PERSISTENT => CreateMode::Persistent,
        create_flags::EPHEMERAL => CreateMode::Ephemeral,
        create_flags::PERSISTENT_SEQUENTIAL => CreateMode::PersistentSequential,
        create_flags::EPHEMERAL_SEQUENTIAL => CreateMode::EphemeralSequential,
        create_flags::CONTAINER => CreateMode::Container,
        _ => return Err(error::BAD_ARGUMENTS),
    };
    let CreateRequest { path, data, acl, .. } = create.clone();
    new_znode(&path, data.into_bytes(), mode, asker.acl(acl))
}

pub(crate) fn create_ttl(create: &CreateTtlRequest, asker: Asker<'_>) -> Result<ZnodeOp, i32> {
    let ttl_ms = u64::try_from(create.ttl_ms).map_err(|_| error::BAD_ARGUMENTS)?;
    let mode = match create.flags {
        create_flags::PERSISTENT_TTL => CreateMode::PersistentTtl { ttl_ms },
        create_flags::PERSISTENT_SEQUENTIAL_TTL => CreateMode::PersistentSequentialTtl { ttl_ms },
        _ => return Err(error::BAD_ARGUMENTS),
    };
    let CreateTtlRequest { path, data, acl, .. } = create.clone();
    new_znode(&path, data.into_bytes(), mode, asker.acl(acl))
}

fn new_znode(path: &str, data: Vec<u8>, mode: CreateMode, acl: Option<Vec<znode::Acl>>) -> Result<ZnodeOp, i32> {
    // These checks come in ZooKeeper's order, and the state machine's checks after them.
    let (parent, name) = path.rsplit_once('/').ok_or(error::BAD_ARGUMENTS)?;
    let acl = acl.ok_or(error::INVALID_ACL)?;
    let parent = match parent {
        "" => ZPath::root(),
        // The path begins with two slashes.
        "/" => return Err(error::BAD_ARGUMENTS),
        parent => self::path(parent)?,
    };
    // The root exists already. A sequential create at `/` makes a child of the root whose name is
    // only digits.
    if path == "/" && !mode.is_sequential() {
        return Err(error::NODE_EXISTS);
    }
    Ok(ZnodeOp::Create(Create { data, mode, acl, ..Create::new(parent, name) }))
}

pub(crate) fn delete(which: &PathVersion) -> Result<ZnodeOp, i32> {
    Ok(ZnodeOp::Delete { path: path(&which.path)?, version: which.version })
}

pub(crate) fn set_data(set: &SetDataRequest) -> Result<ZnodeOp, i32> {
    Ok(ZnodeOp::SetData { path: path(&set.path)?, data: set.data.clone().into_bytes(), version: set.version })
}

pub(crate) fn set_acl(set: &SetAclRequest, asker: Asker<'_>) -> Preparation {
    let path = path(&set.path).map_err(EarlyRefusal::Err)?;
    let acl = asker.acl(set.acl.clone()).ok_or(EarlyRefusal::Err(error::INVALID_ACL))?;
    Ok((Op::SetAcl { path, acl, version: set.version }, Shape::Stat))
}

pub(crate) fn multi(ops: &[MultiOp], asker: Asker<'_>) -> Preparation {
    if ops.len() > asker.limits.ops_max as usize {
        return Err(EarlyRefusal::Err(error::BAD_ARGUMENTS));
    }
    let mut prepared = Vec::with_capacity(ops.len());
    for (at, one) in ops.iter().enumerate() {
        let op = match one {
            MultiOp::Create(op, create) => self::create(*op, create, asker),
            MultiOp::CreateTtl(create) => create_ttl(create, asker),
            MultiOp::Delete(which) => delete(which),
            MultiOp::SetData(set) => set_data(set),
            MultiOp::Check(which) => path(&which.path).map(|path| ZnodeOp::Check { path, version: which.version }),
            MultiOp::GetData(_) | MultiOp::GetChildren(_) => Err(error::MARSHALLING),
        };
        prepared.push(op.map_err(|code| EarlyRefusal::Ok(failed_multi(ops.len(), at, code)))?);
    }
    Ok((Op::Multi(prepared), Shape::Multi(ops.iter().map(MultiOp::op).collect())))
}

fn path(text: &str) -> Result<ZPath, i32> {
    ZPath::parse(text).map_err(|_| error::BAD_ARGUMENTS)
}

/// Returns the body of the answer to a write, or the error code as [`reply_to`] does. `state` must
/// contain the effect of the write.
pub(crate) fn answer(shape: &Shape, applied: &TxnOutcome, state: &State) -> Result<Vec<u8>, Option<i32>> {
    let mut body = Vec::new();
    match (shape, &applied.reply) {
        (Shape::Multi(ops), Ok(Reply::Multi(replies))) => {
            let results: Vec<_> = ops.iter().zip(replies).map(|(op, reply)| result(*op, reply)).collect();
            write_multi_results(&results, &mut body);
        }
        // A failed multi has its error codes in the results, and no error in the header.
        (Shape::Multi(ops), Err(refusal @ Refusal { op_index: Some(at), .. })) => {
            let Some(code) = reply_to(refusal, state) else { return Err(None) };
            return Ok(failed_multi(ops.len(), *at as usize, code));
        }
        (_, Err(refusal)) => return Err(reply_to(refusal, state)),
        (Shape::Path, Ok(Reply::Created { path, .. })) => PathOnly { path: path.as_str().into() }.write(&mut body),
        (Shape::PathStat, Ok(Reply::Created { path, stat })) => {
            PathStat { path: path.as_str().into(), stat: wire_stat(stat) }.write(&mut body);
        }
        (Shape::Stat, Ok(Reply::Set { stat })) => wire_stat(stat).write(&mut body),
        (Shape::Nothing, Ok(_)) => {}
        // A reply that does not fit the request is a bug, and must not reach the client.
        (Shape::Path | Shape::PathStat | Shape::Stat | Shape::Multi(_), Ok(_)) => return Err(None),
    }
    Ok(body)
}

fn result(op: i32, reply: &Reply) -> MultiResult {
    match reply {
        Reply::Created { path, .. } if op == op::CREATE => MultiResult::Created(path.as_str().into()),
        // ZooKeeper before 3.8.2 answers a create2 in a multi as a create (ZOOKEEPER-4026); zlock
        // does not.
        Reply::Created { path, stat } => {
            MultiResult::CreatedStat(PathStat { path: path.as_str().into(), stat: wire_stat(stat) })
        }
        Reply::Set { stat } => MultiResult::Set(wire_stat(stat)),
        _ if op == op::CHECK => MultiResult::Checked,
        _ => MultiResult::Deleted,
    }
}

/// Makes the results of a multi in which one operation failed: OK for the operations before it, and
/// the code for "not executed" for those after it.
fn failed_multi(count: usize, failed: usize, code: i32) -> Vec<u8> {
    let result = |at: usize| match at.cmp(&failed) {
        std::cmp::Ordering::Less => MultiResult::Error(error::OK),
        std::cmp::Ordering::Equal => MultiResult::Error(code),
        std::cmp::Ordering::Greater => MultiResult::Error(error::RUNTIME_INCONSISTENCY),
    };
    let mut body = Vec::new();
    write_multi_results(&(0..count).map(result).collect::<Vec<_>>(), &mut body);
    body
}

//! Requests: a table with the number and the record of each operation, and the records of request
//! bodies.

use crate::records::records;
use crate::{Acl, Buffer, DecodeError, Input, MultiHeader, PathOnly, Record, SaslToken};

/// The header that ends the list of a multi's operations, and the list of its results.
pub(crate) const END: MultiHeader = MultiHeader { op: -1, done: true, error: -1 };

/// Largest number of operations in a multi or multiRead. Without a bound, a packet of many tiny
/// operations would take milliseconds to decode.
pub const MULTI_OPS_MAX: usize = 4_096;

/// Defines the module [`op`] and the enum [`Request`] from a table. The row of an operation may
/// name its own functions for reading and writing the record. Otherwise the record's implementation
/// of [`Record`] is used.
macro_rules! operations {
    (@read $input:ident) => { $input.read()? };
    (@read $input:ident $read:path) => { $read(&mut $input)? };
    (@write $record:ident $out:ident) => { $record.write($out) };
    (@write $record:ident $out:ident $write:path) => { $write($record, $out) };
    (
        records {$(
            $(#[$doc:meta])*
            $name:ident = $number:literal, $variant:ident($record:ty $(, read $read:path)? $(, write $write:path)?);
        )*}
        shared {$(
            $(#[$shared_doc:meta])*
            $shared:ident($shared_record:ty) {$($(#[$one_doc:meta])* $one:ident = $one_number:literal;)*}
        )*}
        bare {$($(#[$bare_doc:meta])* $bare:ident = $bare_number:literal, $bare_variant:ident;)*}
        refused {$($(#[$refused_doc:meta])* $refused:ident = $refused_number:literal;)*}
    ) => {
        /// Operations: the second field of a request's header.
        pub mod op {
            $($(#[$doc])* pub const $name: i32 = $number;)*
            $($($(#[$one_doc])* pub const $one: i32 = $one_number;)*)*
            $($(#[$bare_doc])* pub const $bare: i32 = $bare_number;)*
            $($(#[$refused_doc])* pub const $refused: i32 = $refused_number;)*

            /// Numbers of all operations.
            pub const ALL: &[i32] = &[$($name,)* $($($one,)*)* $($bare,)* $($refused,)*];
        }

        /// A request without its header.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $variant($record),)*
            $($(#[$shared_doc])* $shared(i32, $shared_record),)*
            $($(#[$bare_doc])* $bare_variant,)*
            /// An operation that is unknown, or that clients may not send.
            Unknown(i32),
        }

        impl Request {
            /// Reads the body of a request. Bytes after the body are ignored.
            ///
            /// # Errors
            /// When the body is too short or malformed. ZooKeeper's server answers -5 then, and
            /// keeps the connection.
            pub fn read(op: i32, body: &[u8]) -> Result<Request, DecodeError> {
                let mut input = Input::new(body);
                Ok(match op {
                    $(op::$name => Request::$variant(operations!(@read input $($read)?)),)*
                    $($(op::$one)|* => Request::$shared(op, input.read()?),)*
                    $(op::$bare => Request::$bare_variant,)*
                    other => Request::Unknown(other),
                })
            }

            /// The operation's number.
            pub fn op(&self) -> i32 {
                match self {
                    $(Request::$variant(_) => op::$name,)*
                    $(Request::$shared(op, _) => *op,)*
                    $(Request::$bare_variant => op::$bare,)*
                    Request::Unknown(op) => *op,
                }
            }

            /// Appends the body of the request, without its header. Used by clients.
            pub fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Request::$variant(record) => operations!(@write record out $($write)?),)*
                    $(Request::$shared(_, record) => record.write(out),)*
                    $(Request::$bare_variant => {})*
                    Request::Unknown(_) => {}
                }
            }
        }
    };
}

operations! {
    records {
        /// Creates a znode with a time to live.
        CREATE_TTL = 21, CreateTtl(CreateTtlRequest);
        /// Deletes a znode.
        DELETE = 2, Delete(PathVersion);
        /// Reads the stat of a znode.
        EXISTS = 3, Exists(PathWatch);
        /// Reads the data of a znode.
        GET_DATA = 4, GetData(PathWatch);
        /// Replaces the data of a znode.
        SET_DATA = 5, SetData(SetDataRequest, read set_data);
        /// Reads the ACL of a znode.
        GET_ACL = 6, GetAcl(PathOnly);
        /// Replaces the ACL of a znode.
        SET_ACL = 7, SetAcl(SetAclRequest, read set_acl);
        /// Lists the names of a znode's children.
        GET_CHILDREN = 8, GetChildren(PathWatch);
        /// Lists the names of a znode's children, and reads the znode's stat.
        GET_CHILDREN2 = 12, GetChildren2(PathWatch);
        /// Counts the znodes below a znode, at any depth.
        GET_ALL_CHILDREN_NUMBER = 104, GetAllChildrenNumber(PathOnly);
        /// Lists the session's ephemeral znodes whose paths begin with a prefix.
        GET_EPHEMERALS = 103, GetEphemerals(PathOnly, read path);
        /// Waits until the server has applied all log entries that the leader committed before the
        /// request.
        SYNC = 9, Sync(PathOnly, read path);
        /// Fails unless a znode has the expected version. Of use only inside a multi.
        CHECK = 13, Check(PathVersion);
        /// Executes writes and checks as one transaction.
        MULTI = 14, Multi(Vec<MultiOp>, read writes, write write_multi);
        /// Executes several reads on one state.
        MULTI_READ = 22, MultiRead(Vec<MultiOp>, read reads, write write_multi);
        /// Changes the ensemble.
        RECONFIG = 16, Reconfig(ReconfigRequest);
        /// Asks whether the connection has a watch at a path.
        CHECK_WATCHES = 17, CheckWatches(PathWatcher);
        /// Removes watches.
        REMOVE_WATCHES = 18, RemoveWatches(PathWatcher, read watcher);
        /// Adds a persistent watch.
        ADD_WATCH = 106, AddWatch(AddWatchRequest, read add_watch);
        /// Sets the watches of a former connection again.
        SET_WATCHES = 101, SetWatches(SetWatches);
        /// Sets the watches of a former connection again, persistent watches included.
        SET_WATCHES2 = 105, SetWatches2(SetWatches2);
        /// Proves an identity.
        AUTH = 100, Auth(AuthRequest);
        /// Sends one message of a SASL authentication.
        SASL = 102, Sasl(SaslToken);
    }
    shared {
        /// Creates a znode. The number of the operation decides whether the answer has the stat.
        Create(CreateRequest) {
            /// Creates a znode; answers its path.
            CREATE = 1;
            /// Creates a znode; answers its path and stat.
            CREATE2 = 15;
            /// Creates a container.
            CREATE_CONTAINER = 19;
        }
    }
    bare {
        /// Keeps the session alive.
        PING = 11, Ping;
        /// Asks for the connection's identities.
        WHO_AM_I = 107, WhoAmI;
        /// Ends the session.
        CLOSE_SESSION = -11, CloseSession;
    }
    refused {
        /// Deletes a container. Only servers use this operation, among themselves.
        DELETE_CONTAINER = 20;
        /// Opens a session. Only servers use this operation, among themselves.
        CREATE_SESSION = -10;
    }
}

records! {
    /// The body of create, create2 and createContainer.
    CreateRequest {
        /// The path; ten digits are appended for the sequential flags.
        path: String,
        /// The data of the new znode.
        data: Buffer,
        /// The ACL of the new znode.
        acl: Vec<Acl>,
        /// The create mode: a number of [`crate::create_flags`].
        flags: i32,
    }
    /// The body of createTTL.
    CreateTtlRequest {
        /// The path, as in [`CreateRequest`].
        path: String,
        /// The data of the new znode.
        data: Buffer,
        /// The ACL of the new znode.
        acl: Vec<Acl>,
        /// The create mode: a number of [`crate::create_flags`].
        flags: i32,
        /// The time to live, in milliseconds.
        ttl_ms: i64,
    }
    /// The body of delete and check.
    PathVersion {
        /// The path of the znode.
        path: String,
        /// The expected version; -1 accepts any.
        version: i32,
    }
    /// The body of exists, getData, getChildren and getChildren2.
    PathWatch {
        /// The path of the znode.
        path: String,
        /// Whether to set a one-time watch, too.
        watch: bool,
    }
    /// The body of setData.
    SetDataRequest {
        /// The path of the znode.
        path: String,
        /// The new data.
        data: Buffer,
        /// The expected version; -1 accepts any.
        version: i32,
    }
    /// The body of setACL.
    SetAclRequest {
        /// The path of the znode.
        path: String,
        /// The new ACL.
        acl: Vec<Acl>,
        /// The expected aversion; -1 accepts any.
        version: i32,
    }
    /// The body of reconfig.
    ReconfigRequest {
        /// Comma-separated servers to add; `None` for no servers.
        joining: Option<String>,
        /// Comma-separated ids of servers to remove; `None` for no servers.
        leaving: Option<String>,
        /// All servers of the new ensemble, in place of `joining` and `leaving`.
        new_members: Option<String>,
        /// The expected version of the configuration; -1 accepts any.
        config_id: i64,
    }
    /// The body of checkWatches and removeWatches.
    PathWatcher {
        /// The path of the watch.
        path: String,
        /// The kind of watch: a number of [`crate::watcher`].
        kind: i32,
    }
    /// The body of addWatch.
    AddWatchRequest {
        /// The path to watch.
        path: String,
        /// The mode of the watch: 0 is persistent, 1 is persistent and recursive.
        mode: i32,
    }
    /// The body of auth.
    AuthRequest {
        /// A field without a meaning: always 0.
        kind: i32,
        /// The scheme of the identity: `digest`, ...
        scheme: String,
        /// The credentials in the form of the scheme, for `digest` `name:password`.
        auth: Buffer,
    }
    /// The body of setWatches.
    SetWatches {
        /// The last zxid that the client has seen. For a later change of a watched znode, the
        /// server sends the event at once.
        relative_zxid: i64,
        /// Paths with data watches.
        data: Vec<String>,
        /// Paths with exists watches whose znodes did not exist.
        exist: Vec<String>,
        /// Paths with child watches.
        child: Vec<String>,
    }
    /// The body of setWatches2.
    SetWatches2 {
        /// The last zxid that the client has seen, as in [`SetWatches`].
        relative_zxid: i64,
        /// Paths with data watches.
        data: Vec<String>,
        /// Paths with exists watches whose znodes did not exist.
        exist: Vec<String>,
        /// Paths with child watches.
        child: Vec<String>,
        /// Paths with persistent watches.
        persistent: Vec<String>,
        /// Paths with persistent recursive watches.
        persistent_recursive: Vec<String>,
    }
}

// The functions below read requests in which ZooKeeper's server treats a null path as a malformed
// path. In a multi, and in other requests, a null path makes the packet invalid.

fn path(input: &mut Input<'_>) -> Result<PathOnly, DecodeError> {
    Ok(PathOnly { path: input.text()? })
}

fn set_data(input: &mut Input<'_>) -> Result<SetDataRequest, DecodeError> {
    Ok(SetDataRequest { path: input.text()?, data: input.read()?, version: input.read()? })
}

fn set_acl(input: &mut Input<'_>) -> Result<SetAclRequest, DecodeError> {
    Ok(SetAclRequest { path: input.text()?, acl: input.read()?, version: input.read()? })
}

fn watcher(input: &mut Input<'_>) -> Result<PathWatcher, DecodeError> {
    Ok(PathWatcher { path: input.text()?, kind: input.read()? })
}

fn add_watch(input: &mut Input<'_>) -> Result<AddWatchRequest, DecodeError> {
    Ok(AddWatchRequest { path: input.text()?, mode: input.read()? })
}

/// An operation of a multi or multiRead. The last two variants are only for multiRead, all other
/// variants only for multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiOp {
    /// A create, with the number of its operation: create, create2 or createContainer.
    Create(i32, CreateRequest),
    /// A create with a time to live.
    CreateTtl(CreateTtlRequest),
    /// A delete.
    Delete(PathVersion),
    /// A replacement of data.
    SetData(SetDataRequest),
    /// A check of a version.
    Check(PathVersion),
    /// A read of data.
    GetData(PathWatch),
    /// A read of the names of children.
    GetChildren(PathWatch),
}

impl MultiOp {
    /// Number of the operation, as in its [`MultiHeader`].
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

    /// Tells whether the operation is a read, which only a multiRead may have.
    pub fn is_read(&self) -> bool {
        matches!(self, MultiOp::GetData(_) | MultiOp::GetChildren(_))
    }
}

/// Appends the operations and the header that ends them to `out`.
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

/// Reads operations up to the header that ends them.
///
/// # Errors
/// When the bytes are malformed, when there are too many operations, or when an operation may be
/// neither in a multi nor in a multiRead. The caller must refuse a mixture of reads and writes.
pub fn read_multi(input: &mut Input<'_>) -> Result<Vec<MultiOp>, DecodeError> {
    let mut ops = Vec::new();
    loop {
        let header: MultiHeader = input.read()?;
        if header.done {
            return Ok(ops);
        }
        if ops.len() == MULTI_OPS_MAX {
            return Err(DecodeError::TooManyOps);
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

fn writes(input: &mut Input<'_>) -> Result<Vec<MultiOp>, DecodeError> {
    all(read_multi(input)?, |one| !one.is_read())
}

fn reads(input: &mut Input<'_>) -> Result<Vec<MultiOp>, DecodeError> {
    all(read_multi(input)?, MultiOp::is_read)
}

fn all(ops: Vec<MultiOp>, allowed: impl Fn(&MultiOp) -> bool) -> Result<Vec<MultiOp>, DecodeError> {
    match ops.iter().find(|one| !allowed(one)) {
        Some(one) => Err(DecodeError::Op(one.op())),
        None => Ok(ops),
    }
}

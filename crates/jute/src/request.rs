//! Requests: one row for each operation, with its number and its record; and the records that only
//! requests have.

use crate::records::records;
use crate::{Acl, Buffer, DecodeError, Input, MultiHeader, PathOnly, Record, SaslToken};

/// The end of the operations of a multi, and of its results.
pub(crate) const END: MultiHeader = MultiHeader { op: -1, done: true, error: -1 };

/// The numbers of the operations, and [`Request`]. A record is read and written as it is, where its
/// row has no function for that.
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

            /// All of them.
            pub const ALL: &[i32] = &[$($name,)* $($($one,)*)* $($bare,)* $($refused,)*];
        }

        /// A request behind its header.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $variant($record),)*
            $($(#[$shared_doc])* $shared(i32, $shared_record),)*
            $($(#[$bare_doc])* $bare_variant,)*
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

            /// Appends the body, without a header: the client's side.
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
        /// Reads the facts about a znode.
        EXISTS = 3, Exists(PathWatch);
        /// Reads its data.
        GET_DATA = 4, GetData(PathWatch);
        /// Replaces its data.
        SET_DATA = 5, SetData(SetDataRequest, read set_data);
        /// Reads its ACL.
        GET_ACL = 6, GetAcl(PathOnly);
        /// Replaces its ACL.
        SET_ACL = 7, SetAcl(SetAclRequest, read set_acl);
        /// Lists the names of its children.
        GET_CHILDREN = 8, GetChildren(PathWatch);
        /// Lists the names of its children, and reads its facts.
        GET_CHILDREN2 = 12, GetChildren2(PathWatch);
        /// Counts the znodes below it.
        GET_ALL_CHILDREN_NUMBER = 104, GetAllChildrenNumber(PathOnly);
        /// Lists the session's ephemeral znodes, below a prefix.
        GET_EPHEMERALS = 103, GetEphemerals(PathOnly, read path);
        /// Catches up with the leader.
        SYNC = 9, Sync(PathOnly, read path);
        /// Compares a version; of use inside a multi only.
        CHECK = 13, Check(PathVersion);
        /// A transaction: writes and checks only.
        MULTI = 14, Multi(Vec<MultiOp>, read writes, write write_multi);
        /// Asks for several reads of one moment.
        MULTI_READ = 22, MultiRead(Vec<MultiOp>, read reads, write write_multi);
        /// Changes the ensemble.
        RECONFIG = 16, Reconfig(ReconfigRequest);
        /// Asks whether the connection has a watch.
        CHECK_WATCHES = 17, CheckWatches(PathWatcher);
        /// Takes watches out.
        REMOVE_WATCHES = 18, RemoveWatches(PathWatcher, read watcher);
        /// Sets a watch that stays.
        ADD_WATCH = 106, AddWatch(AddWatchRequest, read add_watch);
        /// Sets a former connection's watches again.
        SET_WATCHES = 101, SetWatches(SetWatches);
        /// Sets a former connection's watches again, with persistent ones.
        SET_WATCHES2 = 105, SetWatches2(SetWatches2);
        /// Proves an identity.
        AUTH = 100, Auth(AuthRequest);
        /// A step of SASL.
        SASL = 102, Sasl(SaslToken);
    }
    shared {
        /// Creates a znode, as the operation's number says.
        Create(CreateRequest) {
            /// Creates a znode; answers its path.
            CREATE = 1;
            /// Creates a znode; answers its path and facts.
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
        /// A server's own.
        DELETE_CONTAINER = 20;
        /// A server's own.
        CREATE_SESSION = -10;
    }
}

records! {
    /// create, create2, createContainer.
    CreateRequest {
        /// The path; ten digits are appended for the sequential flags.
        path: String,
        /// The data.
        data: Buffer,
        /// The ACL.
        acl: Vec<Acl>,
        /// One of [`crate::create_flags`].
        flags: i32,
    }
    /// createTTL.
    CreateTtlRequest {
        /// The path, as in [`CreateRequest`].
        path: String,
        /// The data.
        data: Buffer,
        /// The ACL.
        acl: Vec<Acl>,
        /// One of [`crate::create_flags`].
        flags: i32,
        /// The time to live, in milliseconds.
        ttl_ms: i64,
    }
    /// delete, and check.
    PathVersion {
        /// The znode.
        path: String,
        /// The expected version; -1 is any.
        version: i32,
    }
    /// exists, getData, getChildren, getChildren2.
    PathWatch {
        /// The znode.
        path: String,
        /// True to set a watch.
        watch: bool,
    }
    /// setData.
    SetDataRequest {
        /// The znode.
        path: String,
        /// The new data.
        data: Buffer,
        /// The expected version; -1 is any.
        version: i32,
    }
    /// setACL.
    SetAclRequest {
        /// The znode.
        path: String,
        /// The new ACL.
        acl: Vec<Acl>,
        /// The expected aversion; -1 is any.
        version: i32,
    }
    /// reconfig.
    ReconfigRequest {
        /// Servers to add.
        joining: Option<String>,
        /// Servers to remove.
        leaving: Option<String>,
        /// All servers, instead of the two.
        new_members: Option<String>,
        /// The expected configuration; -1 is any.
        config_id: i64,
    }
    /// checkWatches, removeWatches.
    PathWatcher {
        /// The path of the watch.
        path: String,
        /// One of [`crate::watcher`].
        kind: i32,
    }
    /// addWatch.
    AddWatchRequest {
        /// The path.
        path: String,
        /// The mode: 0 persistent, 1 persistent and recursive.
        mode: i32,
    }
    /// auth.
    AuthRequest {
        /// Always 0.
        kind: i32,
        /// The scheme.
        scheme: String,
        /// The proof, in the words of the scheme.
        auth: Buffer,
    }
    /// setWatches.
    SetWatches {
        /// The last zxid that the client has seen: what changed after it is told at once.
        relative_zxid: i64,
        /// Paths with data watches.
        data: Vec<String>,
        /// Paths with exists watches, of znodes that were not there.
        exist: Vec<String>,
        /// Paths with child watches.
        child: Vec<String>,
    }
    /// setWatches2.
    SetWatches2 {
        /// The last zxid that the client has seen, as in [`SetWatches`].
        relative_zxid: i64,
        /// Paths with data watches.
        data: Vec<String>,
        /// Paths with exists watches, of znodes that were not there.
        exist: Vec<String>,
        /// Paths with child watches.
        child: Vec<String>,
        /// Paths with persistent watches.
        persistent: Vec<String>,
        /// Paths with persistent recursive watches.
        persistent_recursive: Vec<String>,
    }
}

// ZooKeeper says of a null path in these what it says of one that breaks the rules. In a multi, and
// in other requests, it is a broken packet.

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
    /// The operation's number in the header.
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

    /// Tells whether it changes nothing and belongs into a multiRead.
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

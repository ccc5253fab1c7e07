//! Numbers of the protocol, as in ZooKeeper's `ZooDefs`, `KeeperException.Code` and
//! `Watcher.Event`. The numbers of operations are in `request.rs`.

macro_rules! numbers {
    ($(#[$doc:meta])* $module:ident { $($name:ident = $value:literal, $help:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            $(#[doc = $help] pub const $name: i32 = $value;)*
        }
    };
}

numbers! {
    /// Errors: the third field of a reply's header.
    error {
        OK = 0, "No error.";
        SYSTEM_ERROR = -1, "A bound of the server that ZooKeeper does not have is reached.";
        RUNTIME_INCONSISTENCY = -2, "Result of an operation that follows the failed operation of a multi.";
        MARSHALLING = -5, "The server cannot decode the request.";
        UNIMPLEMENTED = -6, "The server does not know the operation.";
        BAD_ARGUMENTS = -8, "A path, flag or other argument breaks a rule.";
        NO_NODE = -101, "There is no znode at the path.";
        NO_AUTH = -102, "The ACL does not permit the request.";
        BAD_VERSION = -103, "The znode's version differs from the version in the request.";
        NO_CHILDREN_FOR_EPHEMERALS = -108, "The parent is ephemeral and cannot have children.";
        NODE_EXISTS = -110, "There is already a znode at the path.";
        NOT_EMPTY = -111, "The znode has children.";
        SESSION_EXPIRED = -112, "The session is closed or expired.";
        INVALID_ACL = -114, "The ACL is empty or malformed.";
        AUTH_FAILED = -115, "The client's authentication failed.";
        SESSION_MOVED = -118, "The session has moved to another server.";
        NO_WATCHER = -121, "The connection has no watch of this kind at the path.";
        RECONFIG_DISABLED = -123, "The server does not support `reconfig`.";
        QUOTA_EXCEEDED = -125, "A quota is exceeded.";
    }
}

numbers! {
    /// Kinds of events, in a [`crate::WatcherEvent`].
    event {
        NODE_CREATED = 1, "The znode was created.";
        NODE_DELETED = 2, "The znode was deleted.";
        NODE_DATA_CHANGED = 3, "The znode's data was set.";
        NODE_CHILDREN_CHANGED = 4, "A child of the znode was created or deleted.";
        SYNC_CONNECTED = 3, "`state` of every event that a server sends: the connection is up.";
    }
}

numbers! {
    /// Kinds of watches in checkWatches and removeWatches, and modes of watches in addWatch.
    watcher {
        CHILDREN = 1, "Child watches.";
        DATA = 2, "Data and exists watches.";
        ANY = 3, "All watches of the client at the path.";
        PERSISTENT = 4, "Persistent watches.";
        PERSISTENT_RECURSIVE = 5, "Persistent recursive watches.";
        MODE_PERSISTENT = 0, "`addWatch`: a persistent watch at the path.";
        MODE_PERSISTENT_RECURSIVE = 1, "`addWatch`: a persistent watch at the path and all paths below it.";
    }
}

numbers! {
    /// The `flags` of a create.
    create_flags {
        PERSISTENT = 0, "A persistent znode: it stays until it is deleted.";
        EPHEMERAL = 1, "An ephemeral znode: it is deleted when its session ends.";
        PERSISTENT_SEQUENTIAL = 2, "A persistent znode; the server appends ten digits to its name.";
        EPHEMERAL_SEQUENTIAL = 3, "An ephemeral znode; the server appends ten digits to its name.";
        CONTAINER = 4, "A container: the server deletes it some time after its last child was deleted.";
        PERSISTENT_TTL = 5, "A persistent znode that is deleted if it has no child and no change for its time to live.";
        PERSISTENT_SEQUENTIAL_TTL = 6, "A znode as with [`PERSISTENT_TTL`]; the server appends ten digits to its name.";
    }
}

numbers! {
    /// The `xid`s with a special meaning. All other `xid`s are counted by the client.
    xid {
        EVENT = -1, "A watch event that the server sends.";
        PING = -2, "A ping request, or its answer.";
        AUTH = -4, "A request to authenticate, or its answer.";
        SET_WATCHES = -8, "A request that sets the watches of a former connection again, or its answer.";
    }
}

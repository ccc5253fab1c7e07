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
        SYSTEM_ERROR = -1, "A bound of the server is reached, which ZooKeeper does not have.";
        RUNTIME_INCONSISTENCY = -2, "In a failed multi: an operation behind the failed one.";
        MARSHALLING = -5, "The request cannot be read.";
        UNIMPLEMENTED = -6, "The server does not know the operation.";
        BAD_ARGUMENTS = -8, "A path, flag or other argument breaks a rule.";
        NO_NODE = -101, "No such znode.";
        NO_AUTH = -102, "The ACL does not permit it.";
        BAD_VERSION = -103, "Another version than the given one.";
        NO_CHILDREN_FOR_EPHEMERALS = -108, "Ephemeral znodes have no children.";
        NODE_EXISTS = -110, "The znode is there already.";
        NOT_EMPTY = -111, "The znode has children.";
        SESSION_EXPIRED = -112, "The session is gone.";
        INVALID_ACL = -114, "The ACL is empty or malformed.";
        AUTH_FAILED = -115, "The identity was not proven.";
        SESSION_MOVED = -118, "The session is attached to another server by now.";
        NO_WATCHER = -121, "The connection has no such watch.";
        RECONFIG_DISABLED = -123, "The ensemble is not changed this way.";
        QUOTA_EXCEEDED = -125, "A quota is reached.";
    }
}

numbers! {
    /// Kinds of events, in a [`crate::WatcherEvent`].
    event {
        NODE_CREATED = 1, "The znode was created.";
        NODE_DELETED = 2, "It was deleted.";
        NODE_DATA_CHANGED = 3, "Its data was set.";
        NODE_CHILDREN_CHANGED = 4, "A child came or went.";
        SYNC_CONNECTED = 3, "The `state` of every event that a server sends.";
    }
}

numbers! {
    /// Kinds of watches to check or remove, and modes to add.
    watcher {
        CHILDREN = 1, "Child watches.";
        DATA = 2, "Data and exists watches.";
        ANY = 3, "Every watch at the path.";
        PERSISTENT = 4, "Persistent watches.";
        PERSISTENT_RECURSIVE = 5, "Persistent recursive watches.";
        MODE_PERSISTENT = 0, "`addWatch`: stays, at the path.";
        MODE_PERSISTENT_RECURSIVE = 1, "`addWatch`: stays, at the path and below.";
    }
}

numbers! {
    /// The `flags` of a create.
    create_flags {
        PERSISTENT = 0, "Stays.";
        EPHEMERAL = 1, "Goes with its session.";
        PERSISTENT_SEQUENTIAL = 2, "Stays; ten digits behind its name.";
        EPHEMERAL_SEQUENTIAL = 3, "Goes with its session; ten digits behind its name.";
        CONTAINER = 4, "Goes some time after its last child.";
        PERSISTENT_TTL = 5, "Goes when it was not set for its time to live.";
        PERSISTENT_SEQUENTIAL_TTL = 6, "The same, with ten digits behind its name.";
    }
}

numbers! {
    /// The `xid`s with a special meaning. All other `xid`s are counted by the client.
    xid {
        EVENT = -1, "A watch event, from the server.";
        PING = -2, "A ping.";
        AUTH = -4, "An auth packet.";
        SET_WATCHES = -8, "Watches of a former connection.";
    }
}

//! Records of headers, answers and events, named as in ZooKeeper's `zookeeper.jute`. Records of
//! request bodies are in `request.rs`.

use crate::{Buffer, DecodeError, Input, Record};

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl Record for $name {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }

            fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                Ok($name { $($field: input.read()?,)* })
            }
        }
    )*};
}
pub(crate) use records;

/// An entry of an ACL: ZooKeeper's records `ACL` and `Id` in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// A set of bits: READ 1, WRITE 2, CREATE 4, DELETE 8, ADMIN 16.
    pub perms: i32,
    /// The scheme, which decides the meaning of `id`: `world`, `digest`, ...
    pub scheme: String,
    /// The identity that gets the permissions, in the form of the scheme.
    pub id: String,
}

impl Record for Acl {
    fn write(&self, out: &mut Vec<u8>) {
        self.perms.write(out);
        self.scheme.write(out);
        self.id.write(out);
    }

    /// Reads null in `scheme` and `id` as the empty text, because kazoo writes every empty text as
    /// null, and the scheme `auth` has an empty id. A null id in a scheme that needs an id makes
    /// the whole packet invalid, as in ZooKeeper's server.
    fn read(input: &mut Input<'_>) -> Result<Acl, DecodeError> {
        let (perms, scheme, id) = (input.read()?, input.text()?, input.read::<Option<String>>()?);
        if id.is_none() && matches!(&*scheme, "world" | "digest" | "ip") {
            return Err(DecodeError::Length(-1));
        }
        Ok(Acl { perms, scheme, id: id.unwrap_or_default() })
    }
}

records! {
    /// The beginning of every packet of a client, except its first packet
    /// ([`crate::ConnectRequest`]).
    RequestHeader {
        /// The client's number for this request.
        xid: i32,
        /// The operation: a number of [`crate::op`].
        op: i32,
    }
    /// The beginning of every packet of a server, except its first packet
    /// ([`crate::ConnectResponse`]).
    ReplyHeader {
        /// The `xid` of the request.
        xid: i32,
        /// The last zxid that the server had applied when it answered.
        zxid: i64,
        /// An error code of [`crate::error`]. A body follows only if it is 0.
        error: i32,
    }
    /// Stat of a znode: its versions, times and sizes.
    Stat {
        /// The zxid that created the znode.
        czxid: i64,
        /// The zxid that last set the data.
        mzxid: i64,
        /// Time of the creation, in milliseconds since 1970.
        ctime_ms: i64,
        /// Time at which the data was last set, in milliseconds since 1970.
        mtime_ms: i64,
        /// Number of times that the data was set.
        version: i32,
        /// Number of times that the list of children changed.
        cversion: i32,
        /// Number of times that the ACL was set.
        aversion: i32,
        /// The session that owns an ephemeral znode; 0 for a persistent one.
        ephemeral_owner: i64,
        /// The length of the data, in bytes.
        data_length: i32,
        /// The number of children.
        num_children: i32,
        /// The zxid that last changed the list of children.
        pzxid: i64,
    }
    /// The body of getACL, sync, getAllChildrenNumber and getEphemerals; also the answer to create
    /// and sync.
    PathOnly {
        /// The path of the znode; in getEphemerals, a prefix of paths.
        path: String,
    }
    /// The body of a sasl request, and of its answer.
    SaslToken {
        /// The message of the SASL mechanism, from the client or to it.
        token: Buffer,
    }
    /// The answer to create2, createContainer and createTTL.
    PathStat {
        /// The path at which the znode was created.
        path: String,
        /// The znode's stat.
        stat: Stat,
    }
    /// The answer to getData.
    DataStat {
        /// The data.
        data: Buffer,
        /// The znode's stat.
        stat: Stat,
    }
    /// The answer to getACL.
    AclStat {
        /// The ACL.
        acl: Vec<Acl>,
        /// The znode's stat.
        stat: Stat,
    }
    /// The answer to getChildren, with names, and to getEphemerals, with whole paths.
    Names {
        /// The names of the children, or the paths.
        names: Vec<String>,
    }
    /// The answer to getChildren2.
    NamesStat {
        /// The names of the children.
        names: Vec<String>,
        /// The znode's stat.
        stat: Stat,
    }
    /// The answer to getAllChildrenNumber (a count) and to addWatch (an error code); also an error
    /// in the results of a multi.
    Number {
        /// The count or the error code.
        number: i32,
    }
    /// One identity of a connection, in the answer to whoAmI.
    ClientInfo {
        /// The scheme of the identity: `ip`, `digest`, ...
        scheme: String,
        /// The identity, without its secret part.
        user: String,
    }
    /// The answer to whoAmI.
    WhoAmIResponse {
        /// The identities of the connection.
        clients: Vec<ClientInfo>,
    }
    /// A watch event. It follows a reply header whose xid is -1.
    WatcherEvent {
        /// The kind of event: a number of [`crate::event`].
        kind: i32,
        /// Always [`crate::event::SYNC_CONNECTED`].
        state: i32,
        /// The path of the znode.
        path: String,
    }
    /// The header before each operation of a multi and before each of its results. Both lists end
    /// with such a header.
    MultiHeader {
        /// The number of the operation; -1 at the end of a list, and before an error.
        op: i32,
        /// True if this header ends the list.
        done: bool,
        /// The error code of a result; -1 before an operation and at the end of a list.
        error: i32,
    }
}

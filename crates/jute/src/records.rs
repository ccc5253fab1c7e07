//! The records, in the words of ZooKeeper's `zookeeper.jute`. Those that only requests have stand
//! in `request.rs`.

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

/// An entry of an ACL: ZooKeeper's `ACL` and the `Id` in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// READ 1, WRITE 2, CREATE 4, DELETE 8, ADMIN 16.
    pub perms: i32,
    /// The way in which `id` is to be read.
    pub scheme: String,
    /// The identity that the entry is about.
    pub id: String,
}

impl Record for Acl {
    fn write(&self, out: &mut Vec<u8>) {
        self.perms.write(out);
        self.scheme.write(out);
        self.id.write(out);
    }

    /// kazoo writes every empty text as null, and `auth` has an empty id. A null scheme is one that
    /// is not known. The schemes that look into their ids fail on null, in ZooKeeper's server as
    /// here: the packet is broken then, and no entry is refused.
    fn read(input: &mut Input<'_>) -> Result<Acl, DecodeError> {
        let (perms, scheme, id) = (input.read()?, input.text()?, input.read::<Option<String>>()?);
        if id.is_none() && matches!(&*scheme, "world" | "digest" | "ip") {
            return Err(DecodeError::Length(-1));
        }
        Ok(Acl { perms, scheme, id: id.unwrap_or_default() })
    }
}

records! {
    /// The beginning of every request but the first.
    RequestHeader {
        /// The client's number for the request.
        xid: i32,
        /// One of [`crate::op`].
        op: i32,
    }
    /// The beginning of every reply but the first.
    ReplyHeader {
        /// The request's number.
        xid: i32,
        /// The last zxid that the server had applied.
        zxid: i64,
        /// One of [`crate::error`]; a body follows only when it is 0.
        error: i32,
    }
    /// The facts about a znode.
    Stat {
        /// The zxid that created it.
        czxid: i64,
        /// The zxid that last set its data.
        mzxid: i64,
        /// Time at which it was created, in milliseconds since 1970.
        ctime_ms: i64,
        /// Time at which its data was last set.
        mtime_ms: i64,
        /// Number of times that its data was set.
        version: i32,
        /// Number of times that its list of children changed.
        cversion: i32,
        /// Number of times that its ACL was set.
        aversion: i32,
        /// The session that it goes with; 0 for none.
        ephemeral_owner: i64,
        /// The length of its data.
        data_length: i32,
        /// The number of its children.
        num_children: i32,
        /// The zxid that last changed its list of children.
        pzxid: i64,
    }
    /// getACL, sync, getAllChildrenNumber, and getEphemerals, whose path is a prefix; also the
    /// answer to create and sync.
    PathOnly {
        /// The path.
        path: String,
    }
    /// sasl, in both directions.
    SaslToken {
        /// The mechanism's bytes.
        token: Buffer,
    }
    /// The answer to create2, createContainer and createTTL.
    PathStat {
        /// The path at which the znode was created.
        path: String,
        /// The znode's facts.
        stat: Stat,
    }
    /// The answer to getData.
    DataStat {
        /// The data.
        data: Buffer,
        /// The znode's facts.
        stat: Stat,
    }
    /// The answer to getACL.
    AclStat {
        /// The ACL.
        acl: Vec<Acl>,
        /// The znode's facts.
        stat: Stat,
    }
    /// The answer to getChildren, and, with whole paths, to getEphemerals.
    Names {
        /// The names.
        names: Vec<String>,
    }
    /// The answer to getChildren2.
    NamesStat {
        /// The names.
        names: Vec<String>,
        /// The znode's facts.
        stat: Stat,
    }
    /// The answer to getAllChildrenNumber and addWatch, and an error in a multi's results.
    Number {
        /// The number.
        number: i32,
    }
    /// One identity of a connection.
    ClientInfo {
        /// The scheme.
        scheme: String,
        /// The identity, without what is secret.
        user: String,
    }
    /// The answer to whoAmI.
    WhoAmIResponse {
        /// The identities.
        clients: Vec<ClientInfo>,
    }
    /// A watch event, behind a reply header whose xid is -1.
    WatcherEvent {
        /// One of [`crate::event`].
        kind: i32,
        /// Always [`crate::event::SYNC_CONNECTED`].
        state: i32,
        /// The znode.
        path: String,
    }
    /// The record before each operation of a multi, before each of its results, and behind the
    /// last.
    MultiHeader {
        /// The operation; -1 at the end and before an error.
        op: i32,
        /// True if this is the end.
        done: bool,
        /// The error of a result, or -1.
        error: i32,
    }
}

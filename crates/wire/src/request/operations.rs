//! The table of the protocol's operations. A row has the protocol's codes of an operation, its
//! name, and how it is answered.
//!
//! `jute/src/request.rs` has a row for the bytes of each request. The functions that the rows here
//! name are in `writes.rs`, `reads.rs` or `watches.rs`.

use jute::{Buffer, PathWatch, Record, Request, SaslToken, error, op};
use znode::{Op, SessionId};

use crate::client::outbox::Room;
use crate::request::reads::Reader;
use crate::request::slices::Walk;
use crate::request::watches::{ReadWatch, WatchRequest};
use crate::request::writes::{self, Asker, Preparation, Shape, one};

/// Resources that a request needs before it can be answered. Writes are handled elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    /// Kind of answer for which the outbox must have room.
    pub(crate) room: Room,
    /// Part of the request that may take long, such as a walk over many children; `None` if no part
    /// may.
    pub(crate) walk: Option<Walk<'a>>,
    /// Effect of the request on watches; `None` if it has none. A request with such an effect is
    /// executed when all requests before it are answered.
    pub(crate) watches: Option<WatchRequest<'a>>,
}

impl<'a> Needs<'a> {
    /// Needs of a request that has no long part, no effect on watches, and an answer of at most a
    /// few hundred bytes.
    const SHORT: Needs<'a> = Needs { room: Room::Short, walk: None, watches: None };
    /// Needs of a request that has no long part and no effect on watches, but maybe a long answer.
    const LONG: Needs<'a> = Needs { room: Room::Read, ..Needs::SHORT };

    fn walks(self, walk: Walk<'a>) -> Needs<'a> {
        Needs { walk: Some(walk), ..self }
    }

    fn has(self, watches: WatchRequest<'a>) -> Needs<'a> {
        Needs { watches: Some(watches), ..self }
    }

    /// Adds the watch of a read to its needs, if the request asks for a watch.
    fn may_watch(self, watching: ReadWatch, which: &'a PathWatch) -> Needs<'a> {
        if which.watch { self.has(WatchRequest::Read(watching, which)) } else { self }
    }
}

/// Generates the functions that have a match arm for each operation.
macro_rules! operations {
    (
        writes($asker:ident) {
            $($($write:ident)|+, $write_word:literal, $write_request:pat => $prepared:expr;)*
        }
        others($reader:ident, $session:ident, $bytes_max:ident) {
            $($($other:ident)|+, $other_word:literal, $other_request:pat => $needs:expr $(, $answer:expr)?;)*
        }
    ) => {
        /// Returns ZooKeeper's short name of an operation, as in its FinalRequestProcessor.
        pub(crate) fn word(op: i32) -> &'static str {
            match op {
                $($(op::$write)|+ => $write_word,)*
                $($(op::$other)|+ => $other_word,)*
                _ => "NA",
            }
        }

        /// Tells whether an operation is a write.
        pub(crate) fn is_write(op: i32) -> bool {
            matches!(op, $($(op::$write)|+)|*)
        }

        /// Makes the state machine's operation for a write; `None` for a request that is no write.
        pub(crate) fn prepare(request: &Request, $asker: Asker<'_>) -> Option<Preparation> {
            match request {
                $($write_request => Some($prepared),)*
                _ => None,
            }
        }

        /// Returns the needs of a request that is no write.
        #[allow(unused_variables, reason = "a row names what either of its columns needs")]
        pub(crate) fn needs(request: &Request) -> Needs<'_> {
            match request {
                $($write_request => Needs::SHORT,)*
                $($other_request => $needs,)*
                Request::Unknown(_) => Needs::LONG,
            }
        }

        /// Answers a read without setting a watch. An operation that this server does not support
        /// gets an error code. `bytes_max` bounds the answer to a multiRead, which has no other
        /// bound.
        pub(crate) fn answer(
            request: &Request,
            $reader: Reader<'_>,
            $session: SessionId,
            $bytes_max: usize,
        ) -> Result<Vec<u8>, i32> {
            match request {
                $($($other_request => $answer,)?)*
                _ => Err(error::UNIMPLEMENTED),
            }
        }
    };
}

operations! {
    writes(asker) {
        // Columns: numbers, name, request, and the operation with the shape of its answer.
        CREATE | CREATE2 | CREATE_CONTAINER, "CREA", Request::Create(op, create) =>
            one(writes::create(*op, create, asker), if *op == op::CREATE { Shape::Path } else { Shape::PathStat });
        CREATE_TTL, "CREA", Request::CreateTtl(create) => one(writes::create_ttl(create, asker), Shape::PathStat);
        DELETE, "DELE", Request::Delete(which) => one(writes::delete(which), Shape::Nothing);
        SET_DATA, "SETD", Request::SetData(set) => one(writes::set_data(set), Shape::Stat);
        SET_ACL, "SETA", Request::SetAcl(set) => writes::set_acl(set, asker);
        MULTI, "MULT", Request::Multi(ops) => writes::multi(ops, asker);
        CLOSE_SESSION, "CLOS", Request::CloseSession =>
            Ok((Op::CloseSession { session: asker.session }, Shape::Nothing));
    }
    others(reader, session, bytes_max) {
        // Columns: numbers, name, request, needs, and the answer if it is read from the state.
        EXISTS, "EXIS", Request::Exists(which) =>
            Needs::SHORT.may_watch(ReadWatch::Exists, which), reader.exists(&which.path);
        GET_DATA, "GETD", Request::GetData(which) =>
            Needs::LONG.may_watch(ReadWatch::Data, which), reader.data(&which.path);
        GET_CHILDREN, "GETC", Request::GetChildren(which) =>
            children(which, false), reader.children(&which.path, false);
        GET_CHILDREN2, "GETC", Request::GetChildren2(which) =>
            children(which, true), reader.children(&which.path, true);
        GET_ALL_CHILDREN_NUMBER, "GETACN", Request::GetAllChildrenNumber(which) =>
            Needs::SHORT, reader.descendants(&which.path);
        GET_EPHEMERALS, "GETE", Request::GetEphemerals(prefix) =>
            Needs::LONG.walks(Walk::Ephemerals { prefix: &prefix.path }), Ok(reader.ephemerals(session, &prefix.path));
        GET_ACL, "GETA", Request::GetAcl(which) => Needs::LONG, reader.acl(&which.path);
        WHO_AM_I, "HOMI", Request::WhoAmI => Needs::LONG, Ok(reader.who());
        MULTI_READ, "MLTR", Request::MultiRead(ops) =>
            Needs::LONG.walks(Walk::Reads(ops)), reader.multi(ops, bytes_max);
        // A check outside of a multi is not supported.
        CHECK, "CHEC", Request::Check(_) => Needs::LONG;
        RECONFIG, "RECO", Request::Reconfig(_) => Needs::SHORT, Err(error::RECONFIG_DISABLED);
        // The answer of a ZooKeeper server without SASL: an empty token.
        SASL, "NA", Request::Sasl(_) => Needs::SHORT, Ok(SaslToken { token: Buffer(None) }.to_bytes());
        ADD_WATCH, "ADDW", Request::AddWatch(add) => Needs::SHORT.has(WatchRequest::Add(add));
        CHECK_WATCHES, "CHKW", Request::CheckWatches(which) => Needs::SHORT.has(WatchRequest::Check(which));
        REMOVE_WATCHES, "REMW", Request::RemoveWatches(which) => Needs::SHORT.has(WatchRequest::Remove(which));
        // The lists of setWatches are decoded in steps, pings and auth packets are answered ahead
        // of other requests, and syncs by asking the leader, so none has an answer here.
        SET_WATCHES, "SETW", Request::SetWatches(_) => Needs::SHORT;
        SET_WATCHES2, "STW2", Request::SetWatches2(_) => Needs::SHORT;
        PING, "PING", Request::Ping => Needs::SHORT;
        AUTH, "NA", Request::Auth(_) => Needs::SHORT;
        SYNC, "SYNC", Request::Sync(_) => Needs::SHORT;
    }
}

fn children(which: &PathWatch, with_stat: bool) -> Needs<'_> {
    Needs::LONG.walks(Walk::Children { path: &which.path, with_stat }).may_watch(ReadWatch::Children, which)
}

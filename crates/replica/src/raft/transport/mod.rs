//! Messages between nodes: one TCP connection for each lane, with frames of `storage::codec`
//! records.
//!
//! ```text
//! connect.rs   handshake                      channel.rs   questions and answers, many under way
//! frame.rs     frames and buffers             append.rs    entries to one peer, in order
//! append_frame.rs  entries, in few bytes      snapshot.rs  a snapshot in chunks
//! messages.rs  all other messages             callers.rs   connections of peers, and their bounds
//! rules.rs     checks of messages             stream.rs    TCP, TLS, or a simulation
//! refusal.rs   refusals of callers            fuzzing.rs   any bytes as a message, for fuzzing
//! tenure.rs    end of a connection's time        addresses.rs  addresses and lookups of a name
//! ```

mod addresses;
mod append;
mod append_frame;
mod callers;
mod channel;
mod connect;
mod frame;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(fuzzing), allow(unreachable_pub))]
mod fuzzing;
mod messages;
mod refusal;
mod rules;
mod snapshot;
mod stream;
mod tenure;

pub(crate) use addresses::Addresses;
pub(crate) use append::{AppendLine, AppendStream};
pub(crate) use append_frame::AppendFrame;
pub(crate) use callers::{CallerPlace, Callers};
pub(crate) use channel::{Channel, ChannelError, DropGuard};
pub(crate) use connect::{Identity, Introduction, PeerRejection, Target, TlsFailure, welcome};
pub(crate) use frame::{Exchange, FramedStream, malformed};
#[cfg(fuzzing)]
pub use fuzzing::peer_message;
pub(crate) use messages::{
    Account, Answer, AppendAnswer, AppendResult, Ask, FRAME_BYTES_MAX, KnownMembers, Lane, NumberedMessage,
    ProposeAnswer, SnapshotAnswer, SnapshotFrame, Standing, TouchAnswer, TransferFrame, TransferRefusal, UpgradeAsk,
    UpgradeRecord, VoteAnswer, VoteFrame,
};
pub(crate) use refusal::Refusal;
pub use rules::MEMBERS_MAX;
pub(crate) use rules::TOUCHES_MAX;
pub(crate) use snapshot::{receive_snapshot, send_snapshot, while_working};
pub(crate) use stream::{Listener, Stream};
pub(crate) use tenure::Tenure;

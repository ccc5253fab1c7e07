//! Refusals of callers at the peer port, and the versions of the messages that nodes speak.

use std::fmt;

use bincode::{Decode, Encode};

/// Lowest and highest version of the peers' messages that this program speaks. A hello and a
/// welcome are the same in all versions. Only builds before the first release used versions 1 to 3.
pub(crate) const VERSIONS: (u16, u16) = (4, 4);

/// Reason why a caller is refused. A stranger to the cluster always gets [`Refusal::NoMember`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Refusal {
    /// The hello names another cluster or other node ids, so its caller is no member.
    NoMember,
    /// The caller and the called node have no version of the messages in common.
    NoCommonVersion {
        /// Lowest and highest version of the messages that the called node speaks.
        versions: (u16, u16),
    },
    /// The caller and the called node have no format level (version of the format of log and
    /// snapshots) in common.
    NoCommonLevel {
        /// Lowest and highest format level that the called node supports.
        levels: (u16, u16),
    },
    /// The caller belongs to another cluster of the same name.
    OtherCluster,
    /// The caller was a member, and was removed.
    Removed {
        /// Zxid of the entry that removed the caller.
        zxid: u64,
    },
    /// The caller has connected without TLS, which the called node requires.
    NeedsTls,
    /// Another process with the caller's id and another data directory is connected.
    IdInUse,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoMember => {
                f.write_str("this is not a hello of a member; the log of the node that was called says why")
            }
            Refusal::NoCommonVersion { versions: (low, high) } => {
                let (own_low, own_high) = VERSIONS;
                write!(
                    f,
                    "the peer speaks versions {low} to {high} of the peer protocol, and this node {own_low} to {own_high}"
                )
            }
            Refusal::NoCommonLevel { levels: (low, high) } => {
                write!(f, "the peer takes only levels {low} to {high} of the format")
            }
            Refusal::NeedsTls => f.write_str(
                "the peer takes connections with TLS only: peers.tls of this node must be permit or require",
            ),
            Refusal::IdInUse => f.write_str(
                "two nodes have the id of this node: another process with this id and another data directory is \
                 connected to the peer",
            ),
            Refusal::OtherCluster => {
                f.write_str("the peer belongs to another cluster of the same name: their uuids differ")
            }
            Refusal::Removed { zxid } => write!(f, "this node was removed from the cluster at zxid {zxid}"),
        }
    }
}

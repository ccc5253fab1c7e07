//! Makes the data directory of a member of a restored cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use storage::codec::MembershipRecord;
use storage::{LogId, Membership, Seed, SnapshotMeta, Storage, StorageConfig, StoredMembership};
use znode::{Cluster, RESTORED_INDEX, State};

use crate::Member;
use crate::offline::error::Error;

/// Member of a restored cluster for which a data directory is to be made.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Directory for the data, which is empty or missing.
    pub data_dir: PathBuf,
    /// The cluster's name.
    pub cluster_id: String,
    /// Node id of this member.
    pub node_id: u64,
    /// All members of the cluster.
    pub members: Vec<Member>,
}

/// Writes the directory of one member: `state` as a snapshot whose last entry is entry 1 of the
/// state's term, and a log that is purged up to that entry. The members elect a leader in a later
/// term. Blocking, except while the storage closes.
///
/// # Errors
/// See [`Error`]. An incomplete directory is of no use.
pub async fn begin(beginning: Beginning, state: &State) -> Result<(), Error> {
    let Beginning { data_dir, cluster_id, node_id, members } = beginning;
    let founding = *state.cluster().map(Cluster::founding).ok_or(Error::NotFounded)?;
    if members.iter().all(|member| member.id != node_id) {
        return Err(Error::NoMember(node_id, members.iter().map(|member| member.id).collect()));
    }
    let last = LogId::new_term_index(state.last_term().0, RESTORED_INDEX);
    let last_membership = StoredMembership::new(Some(last), membership(&members)?);
    let seed = Seed {
        founding: (founding.uuid.0, founding.zxid_base, founding.group),
        meta: SnapshotMeta { last_log_id: Some(last), last_membership },
    };
    let config = StorageConfig {
        data_dir,
        cluster_id,
        node_id,
        free_disk_min_bytes: 0,
        ballast_bytes: 0,
        has_peers: members.len() > 1,
    };
    let storage = Storage::begin_with(config, &seed, state.records())?;
    let closing = storage.closing();
    drop(storage);
    closing.closed().await;
    Ok(())
}

/// Makes a membership in which every member votes.
fn membership(members: &[Member]) -> Result<Membership, Error> {
    let voters: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let nodes: BTreeMap<u64, storage::Member> = members.iter().map(|member| (member.id, member.into())).collect();
    let record = MembershipRecord { configs: vec![voters], nodes };
    record.try_into().map_err(|error: storage::codec::CodecError| Error::Members(error.to_string()))
}

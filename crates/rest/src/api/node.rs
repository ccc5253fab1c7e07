//! The node itself: its status (`/v1/cluster`), liveness (`/livez`) and version (`/version`).

use std::sync::Arc;

use axum::http::StatusCode;
use replica::{NodeStatus, Replica};
use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, sleep, timeout};
use zlock_client::api::{
    CertificateInfo, Cluster, LargestSubtree, Liveness, MemberInfo, PeerConnections, SnapshotInfo, StateDigest, Version,
};
use znode::{Error, SUPER, State};

use crate::api::health::readiness;
use crate::http::peer::Peer;
use crate::openapi::examples::ZXID;
use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};
use crate::request::turns::Digests;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(cluster), route!(live), route!(version)];

/// Shows the answering node's view of the ensemble.
#[utoipa::path(get, path = "/v1/cluster", operation_id = "nodeCluster", tag = "node",
    params(("digest" = Option<bool>, Query,
        description = "true: also `state`, a digest of the whole state that this node has applied; a large state \
            takes long. The node makes one digest at a time, and then none for nine times as long as that digest \
            took; a request for another digest may get 503. Only for the super user and programs on this machine")),
    responses((status = 200, description = "The cluster, as this node sees it", body = Cluster,
        example = json!({"cluster_id": "dev", "node_id": 1, "role": "leader", "leader": 1, "term": 2,
        "last_log_zxid": ZXID + 26, "committed_zxid": ZXID + 26, "applied_zxid": ZXID + 26,
        "snapshot": {"zxid": ZXID, "bytes": 0}, "members": [{"id": 1, "peer_addr": "127.0.0.1:7101",
        "http_addr": "127.0.0.1:7001", "role": "leader"}], "peer_connections": {"tls": 0, "plain": 0}, "sessions": 2, "znodes": 7, "mixed_clients_locks": 0, "watches": 0,
        "proposals": 0, "status": "ready"}))))]
pub(crate) async fn cluster(mut call: Call) -> Answer {
    let with_digest = call.query.flag("digest")?;
    std::mem::take(&mut call.query).finish()?;
    let state = if with_digest { Some(state_digest(&call).await?) } else { None };
    let known = call.door.replica.status();
    let zxid = known.applied;
    let status = readiness(&call.door).into();
    let bytes_max = call.door.replica.state().limits().subtree_bytes_max;
    let largest_subtree = known.largest_subtree.as_ref().map(|(path, bytes)| LargestSubtree {
        path: path.as_str().into(),
        bytes: *bytes,
        bytes_max,
    });
    let certificates = call.door.config.certificates.iter().map(|certificate| CertificateInfo {
        port: certificate.port.into(),
        not_after_ms: certificate.not_after_s().saturating_mul(1_000),
    });
    let certificates = certificates.collect();
    Ok(json(StatusCode::OK, zxid, &Cluster { certificates, state, status, largest_subtree, ..cluster_info(known) }))
}

/// Pause after a computation of the state's digest, as a multiple of the computation's time, so
/// that digests use at most a tenth of a core.
const REST: u32 = 9;
/// Longest time that a request waits for the end of another request's digest, and of the pause
/// after that digest.
const PATIENCE: Duration = Duration::from_millis(100);

/// Computes a digest of the whole state, for the super user and programs on this machine. This
/// takes long, so it runs on a blocking thread.
async fn state_digest(call: &Call) -> Result<StateDigest, Problem> {
    let is_super = call.identities.iter().any(|identity| identity.scheme == SUPER);
    if !is_super && !call.peer().is_some_and(Peer::is_local) {
        let why = Problem::from(Error::NoAuth);
        return Err(why.because("a digest is for the super user, and for programs on the node's machine"));
    }
    let Digests { turn, last } = &call.door.digests;
    let known = |state: &State| {
        let last = last.lock();
        last.clone().filter(|known| known.zxid == state.last_zxid().0)
    };
    if let Some(known) = known(&call.door.replica.state()) {
        return Ok(known);
    }
    let Ok(Ok(permit)) = timeout(PATIENCE, Arc::clone(turn).acquire_owned()).await else {
        return Err(Problem::unavailable("another digest of the state is being made, or was a moment ago", 1_000));
    };
    let state = call.door.replica.state();
    if let Some(known) = known(&state) {
        return Ok(known);
    }
    let last = Arc::clone(last);
    let runtime = Handle::current();
    let walk = tokio::task::spawn_blocking(move || {
        let begins = Instant::now();
        let digest = Replica::digest(&state);
        let rest = begins.elapsed() * REST;
        // The permit is kept during the pause, even if the client has hung up.
        runtime.spawn(async move {
            sleep(rest).await;
            drop(permit);
        });
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = StateDigest { zxid: state.last_zxid().0, digest };
        *last.lock() = Some(digest.clone());
        digest
    });
    walk.await.map_err(|_| Problem::stopping())
}

fn cluster_info(status: NodeStatus) -> Cluster {
    let role = |id| match status.leader {
        Some(leader) if leader == id => "leader",
        Some(_) => "follower",
        None => "unknown",
    };
    let member = |member: &replica::Member| MemberInfo {
        id: member.id,
        peer_addr: member.peer_addr.clone(),
        http_addr: member.http_addr.clone(),
        role: role(member.id).into(),
    };
    Cluster {
        cluster_id: status.cluster_id.clone(),
        cluster_uuid: status.cluster.as_ref().map(|cluster| cluster.founding().uuid.to_string()),
        level: status.cluster.as_ref().map_or(1, znode::Cluster::level),
        node_id: status.node_id,
        role: status.role.as_str().into(),
        leader: status.leader,
        term: status.term.0,
        last_log_zxid: status.last_log.0,
        committed_zxid: status.committed.0,
        applied_zxid: status.applied.0,
        snapshot: SnapshotInfo { zxid: status.snapshot.zxid.0, bytes: status.snapshot.bytes },
        members: status.members.iter().map(member).collect(),
        certificates: Vec::new(),
        peer_connections: PeerConnections {
            tls: status.counts.peer_connections(true),
            plain: status.counts.peer_connections(false),
        },
        sessions: status.sessions,
        znodes: status.znodes,
        largest_subtree: None,
        mixed_clients_locks: status.mixed_locks,
        watches: status.watches,
        proposals: status.proposals,
        status: status.ready.as_str().into(),
        state: None,
    }
}

/// Tells that the process runs and answers requests.
#[utoipa::path(get, path = "/livez", operation_id = "nodeLive", tag = "node",
    responses((status = 200,
        description = "The process runs and answers requests", body = Liveness, example = json!({"live": true}))))]
pub(crate) async fn live(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    Ok(json(StatusCode::OK, call.door.replica.state().last_zxid(), &Liveness { live: true }))
}

/// Shows the version of the program.
#[utoipa::path(get, path = "/version", operation_id = "nodeVersion", tag = "node",
    responses((status = 200, description = "The version", body = Version, example = json!({"name": "zlock",
        "version": "0.1.0"}))))]
pub(crate) async fn version(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let version = Version { name: "zlock".into(), version: env!("CARGO_PKG_VERSION").into() };
    Ok(json(StatusCode::OK, call.door.replica.state().last_zxid(), &version))
}

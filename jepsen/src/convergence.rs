//! Check that all nodes hold the same state after all faults are healed.

use std::time::Duration;

use tokio::time::Instant;
use zlock_client::api::{Cluster as View, StateDigest};

use crate::answer::Effect;
use crate::cluster::Cluster;
use crate::http::{Call, Http};
use crate::verdict::Verdict;

/// Time within which all nodes must report equal digests at one zxid.
const AGREE_MAX: Duration = Duration::from_secs(30);
/// Time limit of a request for a digest, for which a node reads its whole state.
const DIGEST_MAX: Duration = Duration::from_secs(20);

/// HTTP basic authentication as `super:test`, the super user in the nodes' configuration.
const SUPER: &str = "Basic c3VwZXI6dGVzdA==";

/// Checks by digests that all nodes come to one state at one zxid.
///
/// Ends at once when two digests at one zxid differ. Restarts a node that ended because of a broken
/// disk or a lack of memory.
pub async fn check(cluster: &mut Cluster) -> Verdict {
    let mut verdict = Verdict::default();
    let deadline = Instant::now() + AGREE_MAX;
    let mut http = Http::new(&cluster.endpoints);
    loop {
        if let Err(error) = cluster.restart_excused() {
            verdict.doubt(error.to_string());
        }
        let problem = match states(&mut http).await {
            Ok(states) if states.iter().all(|state| *state == states[0]) => {
                verdict.figure("zxid", states[0].zxid);
                verdict.figure("state-digest", states[0].digest.clone());
                return verdict;
            }
            Ok(states) => match diverged(&states) {
                Some((one, other)) => {
                    let detail = format!("nodes {one} and {other} differ at zxid {}", states[one - 1].zxid);
                    verdict.found_outside("nodes-differ", detail, vec![format!("{states:?}")]);
                    return verdict;
                }
                None => format!("the nodes are at different zxids: {states:?}"),
            },
            Err(problem) => problem,
        };
        if Instant::now() > deadline {
            // A cluster that the harness did not start may have other clients. While they write,
            // its nodes need not meet at one zxid.
            match cluster.network {
                Some(_) => verdict.found("not-converged", problem, &[]),
                None => verdict.doubt(problem),
            }
            return verdict;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Returns the digest of each node's applied state, in the order of the nodes.
async fn states(http: &mut Http) -> Result<Vec<StateDigest>, String> {
    let mut states = Vec::new();
    for node in 1..=http.node_count() {
        let call = Call::get("/v1/cluster?digest=true").header("authorization", SUPER).waiting(DIGEST_MAX);
        let mut answer = http.send(node, call).await;
        let view: Option<View> = answer.read(Effect::Read);
        let why = || format!("node {node} gives no digest: {}", answer.error.clone().unwrap_or_default());
        states.push(view.and_then(|view| view.state).ok_or_else(why)?);
    }
    Ok(states)
}

/// Returns the numbers, from 1, of two nodes with different digests at one zxid.
fn diverged(states: &[StateDigest]) -> Option<(usize, usize)> {
    let pairs = (0..states.len()).flat_map(|one| (one + 1..states.len()).map(move |other| (one, other)));
    let differ = |(one, other): &(usize, usize)| {
        states[*one].zxid == states[*other].zxid && states[*one].digest != states[*other].digest
    };
    pairs.into_iter().find(differ).map(|(one, other)| (one + 1, other + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_at_one_zxid_only() {
        let states = |list: &[(u64, &str)]| -> Vec<StateDigest> {
            list.iter().map(|(zxid, digest)| StateDigest { zxid: *zxid, digest: (*digest).to_owned() }).collect()
        };
        assert_eq!(diverged(&states(&[(7, "a"), (8, "b"), (7, "a")])), None);
        assert_eq!(diverged(&states(&[(7, "a"), (8, "b"), (8, "c")])), Some((2, 3)));
    }
}

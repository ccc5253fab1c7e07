//! Check that all nodes hold the same state after all faults are healed.

use std::time::Duration;

use tokio::time::Instant;
use zlock_client::api::{Cluster as View, StateDigest};

use crate::answer::Effect;
use crate::cluster::{Cluster, Network, SUPER};
use crate::http::{Call, Http};
use crate::verdict::Verdict;

/// Time within which all nodes must report equal digests at one zxid.
const AGREE_MAX: Duration = Duration::from_secs(30);
/// Time limit of a request for a digest, for which a node reads its whole state.
const DIGEST_MAX: Duration = Duration::from_secs(20);

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
            Ok(states) if states.iter().all(|(_, state)| *state == states[0].1) => {
                verdict.figure("zxid", states[0].1.zxid);
                verdict.figure("state-digest", states[0].1.digest.clone());
                return verdict;
            }
            Ok(states) => match diverged(&states) {
                Some((one, other, zxid)) => {
                    let detail = format!("nodes {one} and {other} differ at zxid {zxid}");
                    verdict.found_outside("nodes-differ", detail, vec![format!("{states:?}")]);
                    return verdict;
                }
                None => format!("the nodes are at different zxids: {states:?}"),
            },
            Err(problem) => problem,
        };
        if Instant::now() > deadline {
            match cluster.network {
                // Other clients may write to a cluster that runs already, so its nodes need not
                // meet at one zxid.
                Network::Foreign => verdict.doubt(problem),
                _ => verdict.found("not-converged", problem, &[]),
            }
            return verdict;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Returns the id of each member, and the digest of its applied state.
async fn states(http: &mut Http) -> Result<Vec<(u64, StateDigest)>, String> {
    let mut states = Vec::new();
    for node in http.members() {
        let call = Call::get("/v1/cluster?digest=true").header("authorization", SUPER).waiting(DIGEST_MAX);
        let mut answer = http.send(node, call).await;
        let view: Option<View> = answer.read(Effect::Read);
        let why = || format!("node {node} gives no digest: {}", answer.error.clone().unwrap_or_default());
        states.push((node, view.and_then(|view| view.state).ok_or_else(why)?));
    }
    if states.is_empty() { Err("there is no member".into()) } else { Ok(states) }
}

/// Returns the ids of two nodes with different digests at one zxid, and this zxid.
fn diverged(states: &[(u64, StateDigest)]) -> Option<(u64, u64, u64)> {
    states.iter().enumerate().find_map(|(i, (one, state))| {
        let differs = |other: &StateDigest| other.zxid == state.zxid && other.digest != state.digest;
        let (other, _) = states[i + 1..].iter().find(|(_, other)| differs(other))?;
        Some((*one, *other, state.zxid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_at_one_zxid_only() {
        let states = |list: &[(u64, u64, &str)]| -> Vec<(u64, StateDigest)> {
            let state = |(node, zxid, digest): &(u64, u64, &str)| {
                (*node, StateDigest { zxid: *zxid, digest: (*digest).to_owned() })
            };
            list.iter().map(state).collect()
        };
        assert_eq!(diverged(&states(&[(1, 7, "a"), (2, 8, "b"), (3, 7, "a")])), None);
        assert_eq!(diverged(&states(&[(1, 7, "a"), (4, 8, "b"), (6, 8, "c")])), Some((4, 6, 8)));
    }
}

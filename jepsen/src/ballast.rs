//! Ballast: znodes that no client uses. They make snapshots take longer, so that faults happen
//! during a snapshot more often.

use std::time::{Duration, Instant};

use crate::endpoints::Endpoints;
use crate::http::{Call, Http};
use crate::workload::ROOT;

/// Size of one znode's data in bytes. The data is random, because nodes compress their snapshots.
const BYTES_EACH: usize = 24 << 10;
/// Longest time to write one znode. No fault is made before all are written.
const WRITTEN_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// Creates this number of ballast znodes, one after the other.
///
/// # Errors
/// When the cluster does not accept a znode in time.
pub(crate) async fn load(endpoints: &Endpoints, znodes: u64, seed: u64) -> Result<(), String> {
    let (mut http, mut rng) = (Http::new(endpoints), fastrand::Rng::with_seed(seed));
    let mut node = 1;
    for i in 0..znodes {
        let mut bytes = vec![0; BYTES_EACH];
        rng.fill(&mut bytes);
        let deadline = Instant::now() + WRITTEN_MAX;
        loop {
            let answer = http.send(node, Call::post(format!("/v1/znodes{ROOT}/ballast-{i}")).body(bytes.clone())).await;
            // The znode exists when an earlier request was applied and its answer was lost.
            if answer.is_ok() || answer.is_problem("node-exists") {
                break;
            }
            if Instant::now() > deadline {
                return Err(format!("the ballast is not taken: {}", answer.error.unwrap_or_default()));
            }
            node = http.after(node);
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

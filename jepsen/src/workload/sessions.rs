//! Clients of the workload `session`: writes, and local reads at any node that name the last zxid
//! the client saw.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use zlock_client::api::{ZnodeInfo, headers};

use super::Work;
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

const KEYS: u64 = 5;

/// The workload `session`.
#[derive(Default)]
pub struct Sessions {
    /// True for the negative control, whose reads do not name the last zxid.
    forgetful: bool,
    next_element: AtomicU64,
}

impl Sessions {
    /// Returns the workload. With `negative`, reads name no zxid, so the checker must find clients
    /// that go back in time.
    pub fn new(negative: bool) -> Sessions {
        Sessions { forgetful: negative, ..Sessions::default() }
    }
}

fn path(key: u64) -> String {
    format!("{}/session/k{key}", super::ROOT)
}

impl Work for Sessions {
    /// The last zxid that the client saw.
    type Worker = u64;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        for key in 0..KEYS {
            client.ensure(&path(key), "0").await?;
        }
        Ok(())
    }

    async fn step(&self, last: &mut u64, client: &mut Client) -> Result<(), String> {
        let key = client.rng.u64(..KEYS);
        let url = format!("/v1/znodes{}", path(key));
        let name = format!("k{key}");
        let answer = if client.rng.u8(..4) == 0 {
            let element = self.next_element.fetch_add(1, Ordering::Relaxed) + 1;
            let call = Call::put(url).body(element.to_string());
            client.operate("write", json!({"key": name, "element": element}), call, |_| None).await
        } else {
            let shown = if self.forgetful { 0 } else { *last };
            let call = Call::get(format!("{url}?consistency=local")).header(headers::MIN_ZXID, shown);
            let result = |answer: &mut Answer| -> Option<Value> {
                let node: ZnodeInfo = answer.read(Effect::Read)?;
                let element: Option<u64> = node.data.and_then(|data| data.parse().ok());
                Some(json!({"key": name, "element": element, "mzxid": node.stat.mzxid}))
            };
            client.operate("local-read", json!({"key": name, "min_zxid": last}), call, result).await
        };
        if let Some(zxid) = answer.zxid.filter(|_| answer.is_ok()) {
            *last = (*last).max(zxid);
        }
        Ok(())
    }
}

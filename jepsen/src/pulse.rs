//! Regular writes beside the clients' operations. They show that there is a quorum, even while all
//! clients wait for locks or events.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::http::Call;
use crate::recorder::PULSE;
use crate::workload::ROOT;

/// Pause between two pulses. It is so short that two pulses fall into each interval for which
/// [`crate::check`] needs an acknowledged write.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends pulses (writes to one znode) to random nodes. Never returns; the caller aborts its task.
pub(crate) async fn beat(mut client: Client) {
    let path = format!("{ROOT}/{PULSE}");
    while client.ensure(&path, "").await.is_err() {}
    loop {
        client.operate(PULSE, json!({}), Call::put(format!("/v1/znodes{path}")).body("x"), |_| None).await;
        client.take_crashed();
        tokio::time::sleep(PAUSE).await;
    }
}

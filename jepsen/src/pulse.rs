//! A write every now and then beside the clients' own: it shows that a quorum is there, whatever
//! clients wait for.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::http::Call;
use crate::workload::ROOT;

/// Name of a pulse in the history. A pulse is no operation of the workload, and is not counted as
/// one.
pub(crate) const PULSE: &str = "pulse";
/// Pause between two pulses: two of them fall into each stretch in which the checker wants to see
/// one.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes, over any node, until it is dropped.
pub(crate) async fn beat(mut client: Client) {
    let path = format!("{ROOT}/{PULSE}");
    while client.ensure(&path, "").await.is_err() {}
    loop {
        client.operate(PULSE, json!({}), Call::put(format!("/v1/znodes{path}")).body("x"), |_| None).await;
        client.take_crashed();
        tokio::time::sleep(PAUSE).await;
    }
}

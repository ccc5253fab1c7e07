//! Sessions that a worker itself keeps alive, closes or abandons, with recorded operations.

use serde_json::{Value, json};
use tokio::time::Instant;
use zlock_client::api::{KeepAlive, Millis, NewSession, OpenSession};

use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// One session, without a background task: the worker itself sends the heartbeats.
pub(super) struct OwnSession {
    pub(super) id: u64,
    pub(super) key: String,
    /// Time at which the last successful request was sent that opened the session or kept it alive.
    pub(super) heard: Instant,
}

impl OwnSession {
    /// Opens a session by one request; `None` if the request failed or was not answered.
    pub(super) async fn open(timeout_ms: u64, client: &mut Client) -> Option<OwnSession> {
        let wish = OpenSession { timeout: Some(Millis(timeout_ms)), label: "jepsen".into(), client: None };
        let (mut opened, heard) = (None, Instant::now());
        let result = |answer: &mut Answer| -> Option<Value> {
            let session: NewSession = answer.read(Effect::Write)?;
            let value = json!({"owner": session.session, "safe_for_ms": session.safe_for_ms});
            opened = Some(OwnSession { id: session.session, key: session.session_key, heard });
            Some(value)
        };
        client.operate("open", json!({}), Call::post("/v1/sessions").json(&wish), result).await;
        opened
    }

    /// Sends one heartbeat.
    pub(super) async fn keep_alive(&mut self, client: &mut Client) -> Answer {
        let (id, now) = (self.id, Instant::now());
        let call = Call::post(format!("/v1/sessions/{id}/keepalive")).session(&self.key).harmless();
        let result = |answer: &mut Answer| -> Option<Value> {
            let kept: KeepAlive = answer.read(Effect::Read)?;
            Some(json!({"owner": id, "safe_for_ms": kept.safe_for_ms}))
        };
        let answer = client.operate("keepalive", json!({"owner": id}), call, result).await;
        if answer.is_ok() {
            self.heard = now;
        }
        answer
    }

    /// Records that the worker abandons the session, which is then left to expire.
    pub(super) fn abandon(self, client: &mut Client) {
        client.invoke("abandon", json!({"owner": self.id}));
        client.end(Kind::Ok, "abandon", json!({"owner": self.id}), None, None);
    }
}

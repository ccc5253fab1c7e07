//! A client's session that other programs can use, too.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::client::session::Session;
use crate::{Error, Loss, SessionState};

impl Client {
    /// Returns the present session, for requests that this client does not offer. Opens a session
    /// if there is none.
    ///
    /// # Errors
    /// When no node opens a session in time.
    pub async fn open_session(&self) -> Result<OpenedSession, Error> {
        Ok(OpenedSession { session: self.session().await?, client: self.clone() })
    }
}

/// A client's session that other programs may use, too, for example a program that this program
/// starts. It is kept alive as long as the client, a guard or a clone of this value exists. Made by
/// [`crate::Client::open_session`].
#[derive(Clone, Debug)]
pub struct OpenedSession {
    session: Arc<Session>,
    /// The client, kept because it closes the session when its last clone is dropped.
    client: Client,
}

impl OpenedSession {
    /// The id of the session.
    pub fn id(&self) -> u64 {
        self.session.id
    }

    /// The value of the header `Zlock-Session-Key`. A program that has the key can act as the
    /// session. After this call a lost session is not closed but left to expire, as other programs
    /// may have used the key to ask for locks with a delay.
    pub fn key(&self) -> &str {
        self.session.note_any_delay();
        self.session.key.to_str().unwrap_or_default()
    }

    /// The time for which the cluster keeps the session without a heartbeat.
    pub fn timeout(&self) -> Duration {
        self.session.timeout
    }

    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.session.state()
    }

    /// The time for which the session cannot be lost by expiry, as [`crate::Guard::safe_for`].
    pub fn safe_for(&self) -> Duration {
        self.session.safe_for()
    }

    /// Waits until the session is lost or closed, and returns the reason. The future may be dropped
    /// and the call repeated.
    pub async fn lost(&self) -> Loss {
        self.session.ended().await
    }

    /// Closes the session, as [`crate::Client::close`], after a heartbeat has shown that it still
    /// lives. For a program that must know whether the session lived until this call.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired` when the session had ended before: then it is lost.
    /// Otherwise as [`crate::Client::close`].
    pub async fn close(&self) -> Result<(), Error> {
        self.confirm().await?;
        self.client.close().await
    }

    async fn confirm(&self) -> Result<(), Error> {
        if self.session.state().is_final() {
            return Err(Error::session_lost("the session had ended before it was closed"));
        }
        let deadline = self.client.deadline().min(self.session.safe_until());
        self.session.heartbeat(&self.client.inner.transport, deadline).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::watch;

    use crate::api::ProblemType;
    use crate::client::fake_node::fake_node;

    use super::*;

    const SESSION: &str = r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":58800}"#;

    #[tokio::test]
    async fn a_session_that_the_cluster_has_ended_is_not_called_closed() {
        let gone = ProblemType::SessionExpired.uri();
        let (end, ended) = watch::channel(false);
        let (addr, mut requests) = fake_node(move |request: String| {
            let is_ended = *ended.borrow();
            let problem =
                format!(r#"{{"type":"{gone}","title":"T","status":410,"detail":"d","outcome":"refused","zxid":9}}"#);
            async move {
                match request.as_str() {
                    "POST /v1/sessions" => SESSION.to_owned(),
                    _ if is_ended => problem,
                    _ => r#"{"session":5,"timeout_ms":60000,"safe_for_ms":58800}"#.to_owned(),
                }
            }
        })
        .await;
        let client = crate::Client::connect([addr]).await.unwrap();
        let session = client.open_session().await.unwrap();
        session.close().await.unwrap();
        assert_eq!(session.state(), SessionState::Closed);
        assert_eq!(session.close().await.unwrap_err().code(), Some(ProblemType::SessionExpired));

        let session = client.open_session().await.unwrap();
        end.send_replace(true);
        assert_eq!(session.state(), SessionState::Connected, "nothing has told of its end yet");
        assert_eq!(session.close().await.unwrap_err().code(), Some(ProblemType::SessionExpired));
        assert_eq!((session.state(), session.lost().await), (SessionState::Lost, Loss::Expired));
        let kept = "POST /v1/sessions/5/keepalive";
        for expected in ["POST /v1/sessions", kept, "DELETE /v1/sessions/5", "POST /v1/sessions", kept] {
            assert_eq!(requests.recv().await.unwrap(), expected);
        }
    }

    /// Starts an imitated node. The outcome of the first request that begins with `prefix` is
    /// unknown, and later ones are told that the session has ended.
    async fn ended_behind_a_lost_answer(prefix: &'static str) -> String {
        let lost = Arc::new(AtomicBool::new(true));
        let (addr, _) = fake_node(move |request: String| {
            let problem = |kind: ProblemType, status: u16, outcome| {
                let uri = kind.uri();
                format!(
                    r#"{{"type":"{uri}","title":"T","status":{status},"detail":"d","outcome":"{outcome}","zxid":9}}"#
                )
            };
            let answer = match request.as_str() {
                "POST /v1/sessions" => SESSION.to_owned(),
                _ if !request.starts_with(prefix) => {
                    r#"{"session":5,"timeout_ms":60000,"safe_for_ms":58800}"#.to_owned()
                }
                _ if lost.swap(false, Ordering::Relaxed) => problem(ProblemType::Unknown, 504, "unknown"),
                _ => problem(ProblemType::SessionExpired, 410, "refused"),
            };
            async move { answer }
        })
        .await;
        addr
    }

    #[tokio::test]
    async fn a_lost_answer_hides_no_end_of_the_session() {
        let client = crate::Client::connect([ended_behind_a_lost_answer("DELETE").await]).await.unwrap();
        client.open_session().await.unwrap().close().await.unwrap();

        let client = crate::Client::connect([ended_behind_a_lost_answer("POST /v1/sessions/5/keepalive").await]).await;
        let session = client.unwrap().open_session().await.unwrap();
        assert_eq!(session.close().await.unwrap_err().code(), Some(ProblemType::SessionExpired));
        assert_eq!(session.state(), SessionState::Lost);
    }
}

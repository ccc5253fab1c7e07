//! Clients of the workload `ephemeral`: they keep sessions alive, close or abandon them, create
//! ephemeral znodes, and look whether znodes exist.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::Work;
use super::own_session::OwnSession;
use crate::answer::Answer;
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

const SESSION_TIMEOUT_MS: u64 = 3_000;
/// Time after the last fault within which every session must end: an abandoned session may live for
/// two timeouts and an election. A session counts as abandoned, too, if its close was refused or
/// not answered.
const GONE_WITHIN: Duration = Duration::from_millis(2 * SESSION_TIMEOUT_MS + 4_000);
/// Number of the newest znodes among which a worker chooses one to look at.
const RECENT: usize = 40;

/// The workload `ephemeral`, with the znodes of all sessions.
#[derive(Default)]
pub struct Ephemerals {
    /// Path and owner of every create that was not refused.
    nodes: Mutex<Vec<(String, u64)>>,
}

/// A worker with its session, for which the worker itself sends the heartbeats.
#[derive(Default)]
pub struct Owner {
    session: Option<OwnSession>,
    made: u64,
}

impl Ephemerals {
    fn nodes(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create(&self, owner: &mut Owner, session: &OwnSession, client: &mut Client) -> Answer {
        let id = session.id;
        owner.made += 1;
        let path = format!("{}/ephemeral/s{id}-{}", super::ROOT, owner.made);
        let call = Call::post(format!("/v1/znodes{path}?mode=ephemeral")).session(&session.key);
        let value = json!({"owner": id, "path": path});
        let answer = client.operate("create", value, call, |_| None).await;
        if answer.outcome != Kind::Fail {
            self.nodes().push((path, id));
        }
        answer
    }

    /// Asks a random node whether a znode exists; `None` without an answer.
    async fn look(&self, f: &str, path: &str, owner: u64, client: &mut Client) -> Option<bool> {
        let mut value = json!({"owner": owner, "path": path});
        client.invoke(f, value.clone());
        let answer = client.send(Call::get(format!("/v1/znodes{path}"))).await;
        let exists = answer.is_ok();
        if !exists && !answer.is_problem("no-node") {
            client.end_as(&answer, f, value);
            return None;
        }
        value["exists"] = exists.into();
        client.end(Kind::Ok, f, value, None, Some(&answer));
        Some(exists)
    }
}

impl Work for Ephemerals {
    type Worker = Owner;

    async fn step(&self, owner: &mut Owner, client: &mut Client) -> Result<(), String> {
        let Some(mut session) = owner.session.take() else {
            owner.session = OwnSession::open(SESSION_TIMEOUT_MS, client).await;
            return Ok(());
        };
        let answer = match client.rng.u8(..100) {
            0..45 => session.keep_alive(client).await,
            45..60 => self.create(owner, &session, client).await,
            60..92 => {
                let recent = self.nodes().iter().rev().take(RECENT).cloned().collect::<Vec<_>>();
                if let Some((path, of)) = client.rng.choice(recent) {
                    self.look("look", &path, of, client).await;
                }
                owner.session = Some(session);
                return Ok(());
            }
            92..96 => {
                let call = Call::delete(format!("/v1/sessions/{}", session.id)).session(&session.key);
                client.operate("close", json!({"owner": session.id}), call, |_| None).await;
                return Ok(());
            }
            _ => {
                session.abandon(client);
                return Ok(());
            }
        };
        if !answer.is_problem("session-expired") {
            owner.session = Some(session);
        }
        Ok(())
    }

    async fn settle(&self, owner: Owner, client: &mut Client) -> Result<(), String> {
        if let Some(session) = owner.session {
            session.abandon(client);
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        // All workers have settled and keep no session alive. So a znode that exists after this
        // time has outlived its session.
        tokio::time::sleep(GONE_WITHIN).await;
        let nodes = self.nodes().clone();
        for (path, owner) in nodes {
            while self.look("final-look", &path, owner, client).await.is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

//! `ephemeral`: sessions that live, are closed or are left alone, and znodes that must follow them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{KeptAlive, OpenSession, SessionOpened};

use super::{Work, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

const SESSION_TIMEOUT_MS: u64 = 3_000;
/// After the last fault a session that is left alone may live for two timeouts and an election. So
/// may one whose request to be closed was refused or got no answer: its worker has left it as well.
const GONE_WITHIN: Duration = Duration::from_millis(2 * SESSION_TIMEOUT_MS + 4_000);
/// How many znodes are looked at again and again.
const RECENT: usize = 40;

/// Sessions and their znodes.
#[derive(Default)]
pub struct Ephemerals {
    /// Path and owner of every create that was not refused.
    nodes: Mutex<Vec<(String, u64)>>,
}

/// A worker and its session, which it keeps alive itself.
#[derive(Default)]
pub struct Owner {
    session: Option<(u64, String)>,
    made: u64,
}

impl Ephemerals {
    fn nodes(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, owner: &mut Owner, client: &mut Client) {
        let wish = OpenSession { timeout_ms: Some(SESSION_TIMEOUT_MS), label: "jepsen".into(), client: None };
        let mut opened = None;
        let result = |answer: &mut Answer| -> Option<Value> {
            let session: SessionOpened = answer.read(Effect::Write)?;
            let value =
                json!({"owner": session.id, "timeout_ms": session.timeout_ms, "safe_for_ms": session.safe_for_ms});
            opened = Some((session.id, session.session));
            Some(value)
        };
        client.operate("open", json!({}), Call::post("/v1/sessions").json(&wish), result).await;
        owner.session = opened;
    }

    async fn create(&self, owner: &mut Owner, (id, key): &(u64, String), client: &mut Client) -> Answer {
        owner.made += 1;
        let path = format!("{}/ephemeral/s{id}-{}", super::ROOT, owner.made);
        let call = Call::post(format!("/v1/znodes{path}?mode=ephemeral")).session(key);
        let value = json!({"owner": id, "path": path});
        let (answer, _) = client.operate("create", value, call, |_| None).await;
        if answer.outcome != Kind::Fail {
            self.nodes().push((path, *id));
        }
        answer
    }

    /// Whether a znode is there, asked of any node.
    async fn look(&self, f: &str, path: &str, owner: u64, client: &mut Client) -> Option<bool> {
        let mut value = json!({"owner": owner, "path": path});
        client.invoke(f, value.clone());
        let node = client.any_node();
        let answer = client.http.send(node, Call::get(format!("/v1/znodes{path}"))).await;
        let exists = answer.is_ok();
        if !exists && !answer.is_problem("no-node") {
            client.end_as(&answer, f, value);
            return None;
        }
        value["exists"] = exists.into();
        client.end(Kind::Ok, f, value, None, Some(&answer));
        Some(exists)
    }

    async fn keep_alive(&self, (id, key): &(u64, String), client: &mut Client) -> Answer {
        let call = Call::post(format!("/v1/sessions/{id}/keepalive")).session(key).harmless();
        let result = |answer: &mut Answer| -> Option<Value> {
            let kept: KeptAlive = answer.read(Effect::Read)?;
            Some(json!({"owner": id, "safe_for_ms": kept.safe_for_ms}))
        };
        client.operate("keepalive", json!({"owner": id}), call, result).await.0
    }

    fn abandon(&self, id: u64, client: &mut Client) {
        client.invoke("abandon", json!({"owner": id}));
        client.end(Kind::Ok, "abandon", json!({"owner": id}), None, None);
    }
}

impl Work for Ephemerals {
    type Worker = Owner;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "ephemeral").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Owner {
        Owner::default()
    }

    async fn step(&self, owner: &mut Owner, client: &mut Client) -> Result<(), String> {
        let Some(session) = owner.session.take() else {
            self.open(owner, client).await;
            return Ok(());
        };
        let answer = match client.rng.u8(..100) {
            0..45 => self.keep_alive(&session, client).await,
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
                let call = Call::delete(format!("/v1/sessions/{}", session.0)).session(&session.1);
                client.operate("close", json!({"owner": session.0}), call, |_| None).await;
                return Ok(());
            }
            _ => {
                self.abandon(session.0, client);
                return Ok(());
            }
        };
        if !answer.is_problem("session-expired") {
            owner.session = Some(session);
        }
        Ok(())
    }

    async fn settle(&self, owner: Owner, client: &mut Client) -> Result<(), String> {
        if let Some((id, _)) = owner.session {
            self.abandon(id, client);
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        // No worker keeps a session alive any more, so what is there after this time has outlived
        // its session.
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

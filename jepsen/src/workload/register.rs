//! `register`: reads, writes and compare-and-sets of znode data on many keys.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use zlock_client::api::ZnodeInfo;

use super::patience::Patience;
use super::stretches::{Stretches, keys};
use super::{Work, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// Registers that are empty at first. Every value is written once.
pub struct Registers {
    /// Reads ask no leader: the negative control.
    local_reads: bool,
    next_value: AtomicU64,
    /// A value that a key may have now, for compare-and-sets that have a chance.
    last: Mutex<std::collections::BTreeMap<String, i64>>,
    stretches: Stretches,
    /// Held by the one worker that makes the next keys.
    making: tokio::sync::Mutex<()>,
}

impl Registers {
    /// Registers that nobody has written.
    ///
    /// With `negative`, reads are local, so stale ones must be found.
    pub fn new(negative: bool) -> Registers {
        Registers {
            local_reads: negative,
            next_value: AtomicU64::new(1),
            last: Mutex::default(),
            stretches: Stretches::new(),
            making: tokio::sync::Mutex::new(()),
        }
    }

    fn note(&self, key: &str, value: i64) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        last.insert(key.to_owned(), value);
    }

    fn guess(&self, key: &str) -> Option<i64> {
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(key).copied()
    }

    /// Makes the keys of a new stretch, in one try. When the cluster is broken just then, the old keys go on in use.
    async fn renew(&self, stretch: u64, client: &mut Client) {
        let Ok(_making) = self.making.try_lock() else { return };
        for key in keys(stretch) {
            let node = client.any_node();
            let call = Call::post(url(&key));
            let answer = client.http.send(node, call).await;
            if !answer.is_ok() && !answer.is_problem("node-exists") {
                return;
            }
        }
        self.stretches.add(stretch);
    }

    async fn read(&self, client: &mut Client, key: &str) -> Answer {
        let value = json!([key, null]);
        let result = |answer: &mut Answer| register(answer).map(|(value, _)| json!([key, value]));
        let call = Call::get(url(key));
        let call = if self.local_reads { call.query("consistency=local") } else { call };
        let (answer, value) = client.operate("read", value, call, result).await;
        if let Some(seen) = value.get(1).and_then(Value::as_i64) {
            self.note(key, seen);
        }
        answer
    }

    async fn write(&self, client: &mut Client, key: &str) {
        let new = self.fresh();
        let call = Call::put(url(key)).body(new.to_string());
        let (answer, _) = client.operate("write", json!([key, new]), call, |_| None).await;
        if answer.is_ok() {
            self.note(key, new);
        }
    }

    /// Looks, and sets under the condition that the version is still the one that was looked at.
    async fn cas(&self, client: &mut Client, key: &str, old: i64) {
        let new = self.fresh();
        let value = json!([key, [old, new]]);
        client.invoke("cas", value.clone());
        let node = client.any_node();
        let mut look = client.http.send(node, Call::get(url(key))).await;
        let Some((seen, version)) = register(&mut look) else {
            return client.end(Kind::Fail, "cas", value, look.error.clone(), None);
        };
        if seen != Some(old) {
            return client.end(Kind::Fail, "cas", value, Some("another-value".into()), None);
        }
        let node = client.any_node();
        let call = Call::put(url(key)).header("if-match", version).body(new.to_string());
        let answer = client.http.send(node, call).await;
        client.end_as(&answer, "cas", value);
        if answer.is_ok() {
            self.note(key, new);
        }
    }

    fn fresh(&self) -> i64 {
        i64::try_from(self.next_value.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

fn path(key: &str) -> String {
    format!("{}/register/{key}", super::ROOT)
}

fn url(key: &str) -> String {
    format!("/v1/znodes{}", path(key))
}

/// The value of a register and its version.
fn register(answer: &mut Answer) -> Option<(Option<i64>, i32)> {
    let node: ZnodeInfo = answer.read(Effect::Read)?;
    let data = node.data.unwrap_or_default();
    Some((data.parse().ok(), node.stat.version))
}

impl Work for Registers {
    type Worker = ();

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "register").await?;
        for key in keys(0) {
            client.ensure(&path(&key), "").await?;
        }
        Ok(())
    }

    fn worker(&self, _index: usize) {}

    async fn step(&self, (): &mut (), client: &mut Client) -> Result<(), String> {
        if let Some(stretch) = self.stretches.next(client) {
            self.renew(stretch, client).await;
        }
        let key = self.stretches.any_key(client);
        match (client.rng.u8(..10), self.guess(&key)) {
            (0..4, _) => _ = self.read(client, &key).await,
            (4..7, Some(old)) => self.cas(client, &key, old).await,
            _ => self.write(client, &key).await,
        }
        Ok(())
    }

    /// Reads every key once more: what was acknowledged last to a key may be lost long after its stretch.
    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        for key in self.stretches.all_keys() {
            let patience = Patience::new();
            loop {
                let answer = self.read(client, &key).await;
                // A key that is gone was answered as well: the checker knows what that means.
                if answer.is_ok() || answer.is_problem("no-node") {
                    break;
                }
                patience.after(&format!("key {key}"), &answer).await?;
            }
        }
        Ok(())
    }
}

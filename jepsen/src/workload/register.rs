//! `register`: reads, writes and compare-and-sets of znode data on many keys.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::ZnodeInfo;
use serde_json::{Value, json};

use super::{Work, epoch, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// Keys in use at the same time.
const KEYS: u64 = 5;
/// How long a key is in use.
const EPOCH: Duration = Duration::from_secs(5);

/// Registers that are empty at first. Every value is written once.
pub struct Registers {
    /// Reads ask no leader: the negative control.
    local_reads: bool,
    next_value: AtomicU64,
    /// A value that a key may have now, for compare-and-sets that have a chance.
    last: Mutex<std::collections::BTreeMap<String, i64>>,
    /// The newest stretch whose keys are all there.
    newest: AtomicU64,
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
            newest: AtomicU64::new(0),
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
    async fn renew(&self, epoch: u64, client: &mut Client) {
        let Ok(_making) = self.making.try_lock() else { return };
        for key in 0..KEYS {
            let node = client.any_node();
            let call = Call::post(format!("/v1/znodes{}/register/{epoch}-{key}", super::ROOT));
            let answer = client.http.send(node, call).await;
            if !answer.is_ok() && !answer.is_problem("node-exists") {
                return;
            }
        }
        self.newest.store(epoch, Ordering::SeqCst);
    }

    async fn read(&self, client: &mut Client, key: &str, url: &str) {
        let value = json!([key, null]);
        let result = |answer: &mut Answer| register(answer).map(|(value, _)| json!([key, value]));
        let target = if self.local_reads { format!("{url}?consistency=local") } else { url.to_owned() };
        let (_, value) = client.operate("read", value, Call::get(target), result).await;
        if let Some(seen) = value.get(1).and_then(Value::as_i64) {
            self.note(key, seen);
        }
    }

    async fn write(&self, client: &mut Client, key: &str, url: &str) {
        let new = self.fresh();
        let call = Call::put(url).body(new.to_string());
        let (answer, _) = client.operate("write", json!([key, new]), call, |_| None).await;
        if answer.is_ok() {
            self.note(key, new);
        }
    }

    /// Looks, and sets under the condition that the version is still the one that was looked at.
    async fn cas(&self, client: &mut Client, key: &str, url: &str, old: i64) {
        let new = self.fresh();
        let value = json!([key, [old, new]]);
        client.invoke("cas", value.clone());
        let node = client.any_node();
        let mut look = client.http.send(node, Call::get(url)).await;
        let Some((seen, version)) = register(&mut look) else {
            return client.end(Kind::Fail, "cas", value, look.error.clone(), None);
        };
        if seen != Some(old) {
            return client.end(Kind::Fail, "cas", value, Some("another-value".into()), None);
        }
        let node = client.any_node();
        let call = Call::put(url).header("if-match", version).body(new.to_string());
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

/// The value of a register and its version.
fn register(answer: &mut Answer) -> Option<(Option<i64>, i32)> {
    let node: ZnodeInfo = answer.read(Effect::Read)?;
    let data = node.data.unwrap_or_default();
    Some((data.parse().ok(), node.stat.version))
}

impl Work for Registers {
    type Worker = ();

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        let root = make_root(client, "register").await?;
        for key in 0..KEYS {
            client.ensure(&format!("{root}/0-{key}"), "").await?;
        }
        Ok(())
    }

    fn worker(&self, _index: usize) {}

    async fn step(&self, (): &mut (), client: &mut Client) -> Result<(), String> {
        let now = epoch(client, EPOCH);
        if now > self.newest.load(Ordering::SeqCst) {
            self.renew(now, client).await;
        }
        let key = format!("{}-{}", self.newest.load(Ordering::SeqCst), client.rng.u64(..KEYS));
        let url = format!("/v1/znodes{}/register/{key}", super::ROOT);
        match (client.rng.u8(..10), self.guess(&key)) {
            (0..4, _) => self.read(client, &key, &url).await,
            (4..7, Some(old)) => self.cas(client, &key, &url, old).await,
            _ => self.write(client, &key, &url).await,
        }
        Ok(())
    }
}

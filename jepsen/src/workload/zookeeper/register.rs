//! `register`: as over HTTP. A read is a sync and a getData behind it, sent together.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use jute::{DataStat, PathOnly, Request, Stat};
use serde_json::{Value, json};

use super::{Seat, at, end, ensure, set, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::workload::patience::Patience;
use crate::workload::stretches::{Stretches, keys};
use crate::workload::{ROOT, Work, make_root};
use testkit::zookeeper::{Failure, Reply, Zk};

/// Registers that are empty at first. Every value is written once.
pub struct Registers {
    doors: Vec<String>,
    /// Reads do not sync: the negative control.
    local_reads: bool,
    next_value: AtomicU64,
    /// A value that a key may have now, for compare-and-sets that have a chance.
    last: Mutex<BTreeMap<String, i64>>,
    stretches: Stretches,
}

impl Registers {
    /// Registers that nobody has written.
    ///
    /// With `negative`, reads are local, so stale ones must be found.
    pub fn new(doors: Vec<String>, negative: bool) -> Registers {
        Registers {
            doors,
            local_reads: negative,
            next_value: AtomicU64::new(1),
            last: Mutex::default(),
            stretches: Stretches::new(),
        }
    }

    fn note(&self, key: &str, value: i64) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        last.insert(key.to_owned(), value);
    }

    fn guess(&self, key: &str) -> Option<i64> {
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(key).copied()
    }

    fn fresh(&self) -> i64 {
        i64::try_from(self.next_value.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX)
    }

    /// Makes the keys of a new stretch. When the cluster is broken just then, the old keys go on in use.
    async fn renew(&self, stretch: u64, zk: &Zk) {
        for key in keys(stretch) {
            if ensure(zk, &path(&key)).await.is_err() {
                return;
            }
        }
        self.stretches.add(stretch);
    }

    async fn read(&self, client: &mut Client, zk: &Zk, key: &str) -> Answer {
        let value = json!([key, null]);
        client.invoke("read", value.clone());
        let result = self.look(zk, key).await.map(|(reply, seen, _)| {
            let zxid = reply.zxid;
            (reply, json!([key, seen]), Some(zxid))
        });
        if let Ok((_, seen, _)) = &result
            && let Some(seen) = seen.get(1).and_then(Value::as_i64)
        {
            self.note(key, seen);
        }
        end(client, "read", value, Effect::Read, result)
    }

    /// The register's value and version. Without the sync it may be an old one.
    async fn look(&self, zk: &Zk, key: &str) -> Result<(Reply, Option<i64>, i32), Failure> {
        let sync = (!self.local_reads).then(|| zk.begin(Request::Sync(PathOnly { path: path(key) })));
        let read = zk.begin(Request::GetData(at(&path(key))));
        if let Some(sync) = sync {
            sync.answer().await?;
        }
        let reply = read.answer().await?;
        let DataStat { data, stat } = reply.read()?;
        let value = String::from_utf8_lossy(&data.into_bytes()).parse().ok();
        Ok((reply, value, stat.version))
    }

    async fn write(&self, client: &mut Client, zk: &Zk, key: &str) -> Answer {
        let new = self.fresh();
        let value = json!([key, new]);
        client.invoke("write", value.clone());
        let result = self.put(zk, key, new, -1).await;
        end(client, "write", value.clone(), Effect::Write, result.map(|(reply, zxid)| (reply, value, zxid)))
    }

    /// Looks, and sets under the condition that the version is still the one that was looked at.
    async fn cas(&self, client: &mut Client, zk: &Zk, key: &str, old: i64) -> Answer {
        let new = self.fresh();
        let value = json!([key, [old, new]]);
        client.invoke("cas", value.clone());
        let version = match self.look(zk, key).await {
            Ok((_, seen, version)) if seen == Some(old) => version,
            Ok(_) => return end(client, "cas", value, Effect::Read, Err(Failure::NotSent("another value".into()))),
            Err(failure) => return end(client, "cas", value, Effect::Read, Err(failure)),
        };
        let result = self.put(zk, key, new, version).await;
        end(client, "cas", value.clone(), Effect::Write, result.map(|(reply, zxid)| (reply, value, zxid)))
    }

    async fn put(&self, zk: &Zk, key: &str, new: i64, version: i32) -> Result<(Reply, Option<u64>), Failure> {
        let reply = zk.ask(Request::SetData(set(&path(key), &new.to_string(), version))).await?;
        let stat: Stat = reply.read()?;
        self.note(key, new);
        Ok((reply, zxid(stat.mzxid)))
    }
}

fn path(key: &str) -> String {
    format!("{ROOT}/register/{key}")
}

impl Work for Registers {
    type Worker = Seat;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "register").await?;
        for key in keys(0) {
            client.ensure(&path(&key), "").await?;
        }
        Ok(())
    }

    fn worker(&self, _index: usize) -> Seat {
        Seat::default()
    }

    async fn step(&self, seat: &mut Seat, client: &mut Client) -> Result<(), String> {
        let zk = seat.zk(&self.doors, client).await?;
        if let Some(stretch) = self.stretches.next(client) {
            self.renew(stretch, zk).await;
        }
        let key = self.stretches.any_key(client);
        let answer = match (client.rng.u8(..10), self.guess(&key)) {
            (0..4, _) => self.read(client, zk, &key).await,
            (4..7, Some(old)) => self.cas(client, zk, &key, old).await,
            _ => self.write(client, zk, &key).await,
        };
        seat.after(&answer);
        Ok(())
    }

    /// Reads every key once more: what was acknowledged last to a key may be lost long after its stretch.
    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let mut seat = Seat::default();
        for key in self.stretches.all_keys() {
            let patience = Patience::new();
            loop {
                let zk = seat.zk(&self.doors, client).await?;
                let answer = self.read(client, zk, &key).await;
                seat.after(&answer);
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

//! Clients of the workload `register`: reads, writes and compare-and-sets of the data of znodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::door::{Door, Doors};
use super::stretches::{Stretches, keys};
use super::{ROOT, Work};
use crate::answer::Answer;
use crate::client::{Client, Patience};

/// The workload `register`. Registers are empty at first, and every value is written only once.
pub struct Registers {
    doors: Doors,
    /// True for the negative control, whose reads may be old.
    local_reads: bool,
    next_value: AtomicU64,
    /// Last known value of each key, which a compare-and-set uses as the old value.
    last: Mutex<BTreeMap<String, i64>>,
    stretches: Stretches,
    /// Lock that one worker at a time holds, to create the keys of the next period.
    making: tokio::sync::Mutex<()>,
}

impl Registers {
    /// Returns the workload, with registers that were never written.
    ///
    /// With `negative`, reads are local, so the checker must find stale reads.
    pub fn new(doors: Doors, negative: bool) -> Registers {
        Registers {
            doors,
            local_reads: negative,
            next_value: AtomicU64::new(1),
            last: Mutex::default(),
            stretches: Stretches::new(),
            making: tokio::sync::Mutex::new(()),
        }
    }

    fn note(&self, key: &str, value: i64) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value);
    }

    fn guess(&self, key: &str) -> Option<i64> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Creates the keys of a new period, with one request each. If a request fails, the old keys
    /// stay in use.
    async fn renew(&self, stretch: u64, door: &Door, client: &mut Client) {
        let Ok(_making) = self.making.try_lock() else { return };
        for key in keys(stretch) {
            if !door.make(client, &path(&key)).await {
                return;
            }
        }
        self.stretches.add(stretch);
    }

    async fn read(&self, door: &Door, client: &mut Client, key: &str) -> Answer {
        client.invoke("read", json!([key, null]));
        let (value, answer) = match door.read(client, &path(key), !self.local_reads).await {
            Ok((seen, answer)) => (seen.value, answer),
            Err(answer) => (None, answer),
        };
        if let Some(seen) = value {
            self.note(key, seen);
        }
        client.end_as(&answer, "read", json!([key, value]));
        answer
    }

    async fn write(&self, door: &Door, client: &mut Client, key: &str) -> Answer {
        let new = self.fresh();
        client.invoke("write", json!([key, new]));
        let answer = door.write(client, &path(key), new, None).await;
        self.wrote(client, "write", json!([key, new]), (key, new), answer)
    }

    /// Reads the register, and writes it if its version has not changed.
    async fn cas(&self, door: &Door, client: &mut Client, key: &str, old: i64) -> Answer {
        let new = self.fresh();
        let value = json!([key, [old, new]]);
        client.invoke("cas", value.clone());
        let answer = match door.read(client, &path(key), true).await {
            Ok((seen, _)) if seen.value == Some(old) => door.write(client, &path(key), new, Some(seen.version)).await,
            Ok(_) => Answer::refused("another-value".into()),
            Err(answer) => answer,
        };
        self.wrote(client, "cas", value, (key, new), answer)
    }

    fn wrote(
        &self,
        client: &mut Client,
        f: &str,
        value: serde_json::Value,
        (key, new): (&str, i64),
        answer: Answer,
    ) -> Answer {
        client.end_as(&answer, f, value);
        if answer.is_ok() {
            self.note(key, new);
        }
        answer
    }

    fn fresh(&self) -> i64 {
        i64::try_from(self.next_value.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

fn path(key: &str) -> String {
    format!("{ROOT}/register/{key}")
}

impl Work for Registers {
    type Worker = Door;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        for key in keys(0) {
            client.ensure(&path(&key), "").await?;
        }
        Ok(())
    }

    fn worker(&self, index: usize) -> Door {
        self.doors.of_worker(index)
    }

    async fn step(&self, door: &mut Door, client: &mut Client) -> Result<(), String> {
        door.enter(client).await?;
        if let Some(stretch) = self.stretches.next(client) {
            self.renew(stretch, door, client).await;
        }
        let key = self.stretches.any_key(client);
        let answer = match (client.rng.u8(..10), self.guess(&key)) {
            (0..4, _) => self.read(door, client, &key).await,
            (4..7, Some(old)) => self.cas(door, client, &key, old).await,
            _ => self.write(door, client, &key).await,
        };
        door.after(&answer);
        Ok(())
    }

    /// Reads every key once more, because an acknowledged write may be lost long after the period
    /// in which its key was used.
    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let mut door = self.doors.of_worker(0);
        for key in self.stretches.all_keys() {
            let patience = Patience::new();
            loop {
                door.enter(client).await?;
                let answer = self.read(&door, client, &key).await;
                door.after(&answer);
                // An answer that the key is missing is recorded as well; the checker judges it.
                if answer.is_ok() || answer.is_problem("no-node") {
                    break;
                }
                patience.after(&format!("the last read of key {key}"), &answer).await?;
            }
        }
        Ok(())
    }
}

//! Guarded znodes. Each is a znode beside a lock, with a list of numbers that the lock's holders
//! write.

use serde_json::{Value, json};
use zlock_client::api::{ChangedZnode, ZnodeInfo, headers};

use super::final_read;
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

/// Suffix that makes the znode's path from the path of its lock.
const SUFFIX: &str = "-data";

/// Returns the path of the guarded znode of a lock.
pub(super) fn path(lock: &str) -> String {
    format!("{lock}{SUFFIX}")
}

fn url(lock: &str) -> String {
    format!("/v1/znodes{}", path(lock))
}

/// Reads the list in the guarded znode of a lock: numbers separated by commas. The error is the
/// answer of the failed read.
pub(super) async fn read(lock: &str, client: &mut Client) -> Result<String, Answer> {
    let mut answer = client.send(Call::get(url(lock))).await;
    match answer.read::<ZnodeInfo>(Effect::Read) {
        Some(node) => Ok(node.data.unwrap_or_default()),
        None => Err(answer),
    }
}

/// Writes the list of a guarded znode back with one more element. With a `guard`, the write
/// succeeds only while the lock is held with that token. After success, `value` gets the znode's
/// `version`.
pub(super) async fn write(
    lock: &str,
    guard: Option<u64>,
    mut list: String,
    value: &mut Value,
    client: &mut Client,
) -> Answer {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(&value["element"].to_string());
    let mut call = Call::put(url(lock)).body(list);
    if let Some(token) = guard {
        call = call.header(headers::IF_LOCK, format!("{lock};{token}"));
    }
    let mut answer = client.send(call).await;
    if let Some(set) = answer.read::<ChangedZnode>(Effect::Write) {
        value["version"] = set.stat.version.into();
    }
    answer
}

/// Makes the operation `append`: reads the list of a guarded znode, may pause, and writes the list
/// back with one more element.
pub(super) async fn append(
    mut value: Value,
    guard: Option<u64>,
    session: &Session,
    pause_one_in: u32,
    client: &mut Client,
) -> Answer {
    let lock = value["lock"].as_str().unwrap_or_default().to_owned();
    client.invoke("append", value.clone());
    let list = match read(&lock, client).await {
        Ok(list) => list,
        Err(answer) => {
            client.end(crate::history::Kind::Fail, "append", value, answer.error.clone(), None);
            return answer;
        }
    };
    maybe_pause(session, pause_one_in, client).await;
    let answer = write(&lock, guard, list, &mut value, client).await;
    client.end_as(&answer, "append", value);
    answer
}

/// Pauses the client with a probability of 1 in `one_in`: for longer than its session's timeout it
/// sends neither heartbeats nor requests.
pub(super) async fn maybe_pause(session: &Session, one_in: u32, client: &mut Client) {
    if client.rng.u32(..one_in) == 0 {
        session.set_quiet(true);
        tokio::time::sleep(session.timeout.mul_f64(1.2 + client.rng.f64())).await;
        session.set_quiet(false);
    }
}

/// Records the operation `read-all`: a read of the list in a guarded znode at the end of a run.
pub(super) async fn read_at_the_end(path: &str, client: &mut Client) -> Result<(), String> {
    let lock = path.strip_suffix(SUFFIX).unwrap_or(path);
    final_read(client, "read-all", json!({"lock": lock}), Call::get(url(lock)), |answer| {
        let node = serde_json::from_slice::<ZnodeInfo>(&answer.body).ok();
        let data = node.and_then(|node| node.data).unwrap_or_default();
        let elements: Vec<u64> = data.split(',').filter_map(|text| text.parse().ok()).collect();
        json!({"lock": lock, "elements": elements})
    })
    .await
}

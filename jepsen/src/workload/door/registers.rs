//! Operations on registers. A register is the data of one znode.

use jute::{DataStat, PathOnly, Request};
use testkit::zookeeper::{Failure, Reply};
use zlock_client::api::ZnodeInfo;

use super::{Door, Told, ZooKeeper, answer, at, ensure, set_data, told};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

/// State of a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    /// Value of the register; `None` before the first write.
    pub value: Option<i64>,
    /// Version of the znode: the number of writes since its creation.
    pub version: i32,
}

fn url(path: &str) -> String {
    format!("/v1/znodes{path}")
}

impl Door {
    /// Sends one request to create an empty register. Returns true if the register exists then.
    pub(crate) async fn make(&self, client: &mut Client, path: &str) -> bool {
        let Door::ZooKeeper(door) = self else {
            let answer = client.send(Call::post(url(path))).await;
            return answer.is_ok() || answer.is_problem("node-exists");
        };
        match door.zk() {
            Ok(zk) => ensure(zk, path).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Reads a register. Without `current` the read is local and may return an old value. A current
    /// read over ZooKeeper's protocol is a sync and a getData, sent together.
    pub(crate) async fn read(&self, client: &mut Client, path: &str, current: bool) -> Told<Register> {
        if let Door::ZooKeeper(door) = self {
            let looked = door.look(path, current).await;
            return told(Effect::Read, looked.map(|(reply, seen)| (seen, reply.clone(), Some(reply.zxid))));
        }
        let call = Call::get(url(path));
        let mut answer = client.send(if current { call } else { call.query("consistency=local") }).await;
        let Some(znode) = answer.read::<ZnodeInfo>(Effect::Read) else { return Err(answer) };
        let value = znode.data.unwrap_or_default().parse().ok();
        Ok((Register { value, version: znode.stat.version }, answer))
    }

    /// Writes a register. With a `version`, the write fails unless the register has that version.
    pub(crate) async fn write(&self, client: &mut Client, path: &str, value: i64, version: Option<i32>) -> Answer {
        if let Door::ZooKeeper(door) = self {
            let done = async { set_data(door.zk()?, path, &value.to_string(), version.unwrap_or(-1)).await };
            return answer(told(Effect::Write, done.await));
        }
        let call = Call::put(url(path)).body(value.to_string());
        client.send(if let Some(version) = version { call.header("if-match", version) } else { call }).await
    }
}

impl ZooKeeper {
    async fn look(&self, path: &str, current: bool) -> Result<(Reply, Register), Failure> {
        let zk = self.zk()?;
        let sync = current.then(|| zk.begin(Request::Sync(PathOnly { path: path.into() })));
        let read = zk.begin(Request::GetData(at(path)));
        if let Some(sync) = sync {
            sync.answer().await?;
        }
        let reply = read.answer().await?;
        let DataStat { data, stat } = reply.read()?;
        let value = String::from_utf8_lossy(&data.into_bytes()).parse().ok();
        Ok((reply, Register { value, version: stat.version }))
    }
}

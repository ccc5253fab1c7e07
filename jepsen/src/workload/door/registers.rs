//! Registers: the data of one znode each.

use std::future::Future;

use jute::{DataStat, PathOnly, Request};
use testkit::zookeeper::{Failure, Reply};
use zlock_client::api::ZnodeInfo;

use super::{Door, Http, Told, ZooKeeper, answer, at, ensure, set_data, told};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

/// What a register holds.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// Its value; none at first.
    pub value: Option<i64>,
    /// Counts its writes.
    pub version: i32,
}

/// How registers are used.
pub trait RegisterDoor: Door {
    /// Makes an empty register in one try. True when it is there.
    fn make(&self, client: &mut Client, path: &str) -> impl Future<Output = bool> + Send;

    /// Reads it. A read that is not `current` may be old.
    fn read(&self, client: &mut Client, path: &str, current: bool) -> impl Future<Output = Told<Register>> + Send;

    /// Writes it, if it has this version.
    fn write(
        &self,
        client: &mut Client,
        path: &str,
        value: i64,
        version: Option<i32>,
    ) -> impl Future<Output = Answer> + Send;
}

fn url(path: &str) -> String {
    format!("/v1/znodes{path}")
}

impl RegisterDoor for Http {
    async fn make(&self, client: &mut Client, path: &str) -> bool {
        let node = client.any_node();
        let answer = client.http.send(node, Call::post(url(path))).await;
        answer.is_ok() || answer.is_problem("node-exists")
    }

    async fn read(&self, client: &mut Client, path: &str, current: bool) -> Told<Register> {
        let node = client.any_node();
        let call = Call::get(url(path));
        let call = if current { call } else { call.query("consistency=local") };
        let mut answer = client.http.send(node, call).await;
        let Some(znode) = answer.read::<ZnodeInfo>(Effect::Read) else { return Err(answer) };
        let value = znode.data.unwrap_or_default().parse().ok();
        Ok((Register { value, version: znode.stat.version }, answer))
    }

    async fn write(&self, client: &mut Client, path: &str, value: i64, version: Option<i32>) -> Answer {
        let node = client.any_node();
        let call = Call::put(url(path)).body(value.to_string());
        let call = if let Some(version) = version { call.header("if-match", version) } else { call };
        client.http.send(node, call).await
    }
}

/// A read is a sync and a getData behind it, sent together.
impl RegisterDoor for ZooKeeper {
    async fn make(&self, _client: &mut Client, path: &str) -> bool {
        match self.zk() {
            Ok(zk) => ensure(zk, path).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn read(&self, _client: &mut Client, path: &str, current: bool) -> Told<Register> {
        told(Effect::Read, self.look(path, current).await.map(|(reply, seen)| (seen, reply.clone(), Some(reply.zxid))))
    }

    async fn write(&self, _client: &mut Client, path: &str, value: i64, version: Option<i32>) -> Answer {
        let done = async { set_data(self.zk()?, path, &value.to_string(), version.unwrap_or(-1)).await };
        answer(told(Effect::Write, done.await))
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

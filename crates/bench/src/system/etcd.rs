//! etcd as Debian packs it, with its defaults; its quota for data is raised so that a million keys
//! fit.

use std::path::Path;

use testkit::Ports;

use super::{Plan, installed};
use crate::client::Etcd;
use crate::error::Error;

pub(super) fn plans(data: &Path, nodes: u16, ports: &Ports) -> Result<Vec<Plan>, Error> {
    let program = installed("etcd", "etcd-server")?;
    let member = |n: u16| format!("n{n}=http://{}", ports.addr(2 * n + 1));
    let members = (0..nodes).map(member).collect::<Vec<_>>().join(",");
    let plan = |n: u16| {
        let (client, peer) = (ports.addr(2 * n), ports.addr(2 * n + 1));
        let arguments = vec![
            format!("--name=n{n}"),
            format!("--data-dir={}", data.join(format!("node{n}")).display()),
            format!("--listen-client-urls=http://{client}"),
            format!("--advertise-client-urls=http://{client}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster={members}"),
            "--initial-cluster-state=new".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
        ];
        Plan { program: program.clone(), arguments, rest: None, client }
    };
    Ok((0..nodes).map(plan).collect())
}

/// Tells whether this member leads; `None` while no member does.
pub(super) async fn leads(addr: &str) -> Result<Option<bool>, Error> {
    let status = Etcd::open(addr).await?.status().await?;
    Ok((status.leader != 0).then_some(status.leader == status.member))
}

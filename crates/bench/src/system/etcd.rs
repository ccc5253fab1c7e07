//! etcd as Debian packs it, with its defaults; its quota for data is raised so that a million keys fit.

use std::path::Path;

use super::{Plan, free_ports, installed, loopback};
use crate::client::Etcd;
use crate::error::Error;

pub(super) fn plans(data: &Path, nodes: usize) -> Result<Vec<Plan>, Error> {
    let program = installed("etcd", "etcd-server")?;
    let ports = free_ports(2 * nodes)?;
    let member = |(number, two): (usize, &[u16])| format!("n{number}=http://{}", loopback(two[1]));
    let members = ports.chunks(2).enumerate().map(member).collect::<Vec<_>>().join(",");
    let plan = |(number, two): (usize, &[u16])| {
        let (client, peer) = (loopback(two[0]), loopback(two[1]));
        let arguments = vec![
            format!("--name=n{number}"),
            format!("--data-dir={}", data.join(format!("node{number}")).display()),
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
    Ok(ports.chunks(2).enumerate().map(plan).collect())
}

/// Whether this member leads; `None` while nobody does.
pub(super) async fn leads(addr: &str) -> Result<Option<bool>, Error> {
    let status = Etcd::open(addr).await?.status().await?;
    Ok((status.leader != 0).then_some(status.leader == status.member))
}

//! zlock: the program beside this one, with its defaults.

use std::path::Path;

use super::{Plan, free_ports, loopback};
use crate::client::Rest;
use crate::error::Error;

pub(super) fn plans(data: &Path, nodes: usize) -> Result<Vec<Plan>, Error> {
    let program = std::env::current_exe()?.with_file_name("zlock");
    if !program.exists() {
        let message = format!("{} is missing: run `cargo build --release -p zlock -p bench`", program.display());
        return Err(Error::Absent(message));
    }
    let ports = free_ports(3 * nodes)?;
    let member =
        |(number, three): (usize, &[u16])| format!("{}={}/{}", number + 1, loopback(three[0]), loopback(three[1]));
    let members = ports.chunks(3).enumerate().map(member).collect::<Vec<_>>().join(",");
    let plan = |(number, three): (usize, &[u16])| Plan {
        program: program.clone(),
        arguments: vec![
            "serve".into(),
            format!("--node-id={}", number + 1),
            format!("--members={members}"),
            format!("--data-dir={}", data.join(format!("node{number}")).display()),
            format!("--zookeeper-listen={}", loopback(three[2])),
            // All clients of a scenario come from this one address; hostile clients and those beside them come from others.
            "--exempt-addresses=127.0.0.1".into(),
        ],
        rest: Some(loopback(three[1])),
        client: loopback(three[2]),
    };
    Ok(ports.chunks(3).enumerate().map(plan).collect())
}

pub(super) async fn serves(rest: &str) -> bool {
    match Rest::open(rest).await {
        Ok(mut client) => client.done("GET", "/readyz", b"").await.is_ok(),
        Err(_) => false,
    }
}

/// The term that a node knows.
pub(super) async fn term(rest: &str) -> Result<u64, Error> {
    let mut client = Rest::open(rest).await?;
    client.done("GET", "/v1/cluster", b"").await?;
    let status: serde_json::Value =
        serde_json::from_slice(client.body()).map_err(|_| Error::answer("status", client.body()))?;
    status["term"].as_u64().ok_or_else(|| Error::answer("no term", client.body()))
}

pub(super) async fn leads(rest: &str) -> Result<bool, Error> {
    let mut client = Rest::open(rest).await?;
    client.done("GET", "/v1/cluster", b"").await?;
    let status: serde_json::Value =
        serde_json::from_slice(client.body()).map_err(|_| Error::answer("status", client.body()))?;
    Ok(status["role"] == "leader")
}

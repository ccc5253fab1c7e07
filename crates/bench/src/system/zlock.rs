//! Command lines of zlock's nodes: the program `zlock` in the directory of this program, with its
//! defaults.

use std::path::Path;
use std::time::Duration;

use testkit::Ports;
use testkit::http::Client;
use zlock_client::api::Cluster;

use super::Plan;
use crate::error::Error;

pub(super) fn plans(data: &Path, nodes: u16, ports: &Ports) -> Result<Vec<Plan>, Error> {
    let program = std::env::current_exe()?.with_file_name("zlock");
    if !program.exists() {
        let message = format!("{} is missing: run `cargo build --profile dist -p zlock -p bench`", program.display());
        return Err(Error::Absent(message));
    }
    let member = |n: u16| format!("{}={}/{}", n + 1, ports.addr(3 * n), ports.addr(3 * n + 1));
    let members = (0..nodes).map(member).collect::<Vec<_>>().join(",");
    let plan = |n: u16| Plan {
        program: program.clone(),
        arguments: vec![
            "serve".into(),
            format!("--node-id={}", n + 1),
            format!("--node-members={members}"),
            format!("--node-data-dir={}", data.join(format!("node{n}")).display()),
            format!("--zookeeper-listen={}", ports.addr(3 * n + 2)),
            // All clients of a scenario come from this address, so its limits are lifted. Clients
            // of the hostile measurements come from other addresses.
            "--node-exempt-addresses=127.0.0.1".into(),
        ],
        rest: Some(ports.addr(3 * n + 1)),
        client: ports.addr(3 * n + 2),
    };
    Ok((0..nodes).map(plan).collect())
}

/// Asks a node for its view of itself and the ensemble.
pub(super) async fn status(rest: &str, within: Duration) -> Result<Cluster, Error> {
    Client::new(rest).cluster(within).await.ok_or_else(|| Error::Answer(format!("{rest} does not say how it is")))
}

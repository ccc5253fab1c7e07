//! Command lines of zlock's nodes: the program `zlock` in the directory of this program, with its
//! defaults.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::Ports;
use testkit::http::Client;
use zlock_client::api::Cluster;

use super::Plan;
use crate::error::Error;

pub(super) fn plans(data: &Path, nodes: u16, ports: &Ports) -> Result<Vec<Plan>, Error> {
    (0..nodes).map(|n| plan(data, n, nodes, ports)).collect()
}

/// Adds required TLS between members to the command lines of all nodes. `zlock tls init` makes the
/// certificates.
pub(super) fn require_peer_tls(plans: &mut [Plan], data: &Path, ports: &Ports) -> Result<(), Error> {
    let members = (0..).zip(plans.iter()).map(|(n, _)| member(n, ports)).collect::<Vec<_>>().join(",");
    let certificates = data.join("certificates");
    let mut command = Command::new(&plans[0].program);
    command.args(["tls", "init", "--members", &members, "--out"]).arg(&certificates);
    let made = command.output()?;
    if !made.status.success() {
        return Err(Error::Absent(format!("zlock tls init: {}", String::from_utf8_lossy(&made.stderr))));
    }
    for (number, plan) in (1..).zip(plans) {
        let file = |name: String| certificates.join(name).display().to_string();
        plan.arguments.extend([
            "--peers-tls=require".into(),
            format!("--peers-tls-certificate={}", file(format!("node-{number}.pem"))),
            format!("--peers-tls-key={}", file(format!("node-{number}-key.pem"))),
            format!("--peers-tls-ca={}", file("ca.pem".into())),
        ]);
    }
    Ok(())
}

/// Plan of one more node, which joins the cluster of `nodes` nodes, and the node as an argument of
/// `zlock member add`.
pub(super) fn joining(data: &Path, nodes: u16, ports: &Ports) -> Result<(Plan, String), Error> {
    let mut plan = plan(data, nodes, nodes + 1, ports)?;
    plan.arguments.push("--node-joining=true".into());
    Ok((plan, member(nodes, ports)))
}

fn member(n: u16, ports: &Ports) -> String {
    format!("{}={}/{}", n + 1, peer_addr(n, ports), ports.addr(3 * n + 1))
}

/// Address at which a node listens for peers. Nodes are numbered from 0.
pub(super) fn peer_addr(n: u16, ports: &Ports) -> String {
    ports.addr(3 * n)
}

fn plan(data: &Path, n: u16, nodes: u16, ports: &Ports) -> Result<Plan, Error> {
    let program = std::env::current_exe()?.with_file_name("zlock");
    if !program.exists() {
        let message = format!("{} is missing: run `cargo build --profile dist -p zlock -p bench`", program.display());
        return Err(Error::Absent(message));
    }
    let members = (0..nodes).map(|n| member(n, ports)).collect::<Vec<_>>().join(",");
    Ok(Plan {
        program,
        arguments: vec![
            "serve".into(),
            format!("--node-id={}", n + 1),
            format!("--node-members={members}"),
            format!("--node-data-dir={}", data.join(format!("node{n}")).display()),
            format!("--admin-socket={}", admin_socket(data, n.into()).display()),
            format!("--zookeeper-listen={}", ports.addr(3 * n + 2)),
            // All clients of a scenario come from this address, so its limits are lifted. Clients
            // of the hostile measurements come from other addresses.
            "--node-exempt-addresses=127.0.0.1".into(),
            // All znodes of a scenario are below one child of the root.
            "--limits-subtree-bytes-max=1GiB".into(),
        ],
        rest: Some(ports.addr(3 * n + 1)),
        client: ports.addr(3 * n + 2),
    })
}

/// Path of the socket at which a node takes requests of operators.
pub(super) fn admin_socket(data: &Path, number: usize) -> PathBuf {
    data.join(format!("admin{number}"))
}

/// Asks a node for its view of itself and the ensemble.
pub(super) async fn status(rest: &str, within: Duration) -> Result<Cluster, Error> {
    Client::new(rest).cluster(within).await.ok_or_else(|| Error::Answer(format!("{rest} does not say how it is")))
}

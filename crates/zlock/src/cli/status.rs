//! `zlock status`: shows the state of all nodes.

use clap::Command;
use serde::Serialize;
use zlock_client::api::LargestSubtree;
use zlock_client::{Cluster, Error};

use super::context::Context;
use super::failure::Failure;
use super::output::{Output, Tone, now_ms};
use super::seen::plain;

pub(crate) fn command() -> Command {
    Command::new("status").about("Shows every node and whether the cluster can serve; ends with 3 if it cannot")
}

/// Number of days before a certificate's expiry during which `zlock status` has a line about it.
const WARNING_DAYS: u64 = 30;
const DAY_MS: u64 = 86_400_000;

/// State of one endpoint's node, or the error of the request for it.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Cluster>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Serialize)]
struct Status {
    /// Whether at least one node serves clients, which means that a quorum runs.
    serves: bool,
    nodes: Vec<Line>,
}

/// Asks every endpoint for the state of its node.
pub(crate) async fn ask(context: &Context) -> Vec<Line> {
    context.client.status().await.into_iter().map(line).collect()
}

pub(crate) async fn run(context: &Context) -> Result<u8, Failure> {
    let nodes = ask(context).await;
    // A draining node still serves clients.
    let serving = ["ready", "draining"];
    let serves = nodes.iter().any(|line| line.node.as_ref().is_some_and(|node| serving.contains(&&*node.status)));
    let status = Status { serves, nodes };
    let done = context.out.answer(&status, || print(context.out, &status))?;
    if serves {
        return Ok(done);
    }
    Err(Failure::refused(why_not(&context.connection.endpoints.join(","), &status.nodes)).with_code(3))
}

/// Returns the message that no node serves clients. If at least one node has answered, the message
/// says that a majority is missing. Otherwise it has the connection errors, as the fault may be the
/// client's.
fn why_not(asked: &str, nodes: &[Line]) -> String {
    if nodes.iter().any(|line| line.node.is_some()) {
        return format!("no node of {asked} can serve; a majority must run and reach each other");
    }
    let errors: Vec<&str> = nodes.iter().filter_map(|line| line.error.as_deref()).collect();
    format!("no node of {asked} can serve: {}; --endpoints says which they are", plain(&errors.join("; ")))
}

fn line((endpoint, answer): (String, Result<Cluster, Error>)) -> Line {
    match answer {
        Ok(node) => Line { endpoint, node: Some(node), error: None },
        Err(Error::Unavailable { reason } | Error::Unknown { reason }) => {
            Line { endpoint, node: None, error: Some(reason) }
        }
        Err(error) => Line { endpoint, node: None, error: Some(error.to_string()) },
    }
}

fn print(out: Output, status: &Status) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = status.nodes.iter().map(|line| row(out, line)).collect();
    out.table(&["ENDPOINT", "NODE", "ROLE", "TERM", "APPLIED", "SESSIONS", "ZNODES", "WAITS", "STATE"], &rows)?;
    for line in expiring(&status.nodes) {
        out.line(&line)?;
    }
    let nodes = status.nodes.iter().filter_map(|line| line.node.as_ref());
    let peers = nodes.clone().map(|node| node.peer_connections);
    let (with, without) = peers.fold((0, 0), |(with, without), peers| (with + peers.tls, without + peers.plain));
    if with > 0 {
        out.line(&format!("connections between members: {with} with TLS, {without} without"))?;
    }
    match nodes.max_by_key(|node| node.applied_zxid).and_then(|node| node.largest_subtree.as_ref()) {
        Some(LargestSubtree { path, bytes, bytes_max }) => {
            out.line(&format!("largest subtree: {}, {bytes} bytes of {bytes_max}", plain(path)))
        }
        None => Ok(()),
    }
}

/// Returns a line for each certificate that expires within [`WARNING_DAYS`] or has expired.
fn expiring(nodes: &[Line]) -> Vec<String> {
    let now_ms = now_ms();
    let certificates = nodes.iter().filter_map(|line| Some((&line.endpoint, line.node.as_ref()?)));
    let certificates = certificates.flat_map(|(endpoint, node)| {
        node.certificates.iter().map(move |certificate| (endpoint, &*certificate.port, certificate.not_after_ms))
    });
    let lines = certificates.filter_map(|(endpoint, port, end_ms)| match end_ms.checked_sub(now_ms) {
        None => Some(format!("{endpoint}: the certificate of the port {} has expired", plain(port))),
        Some(left_ms) if left_ms / DAY_MS < WARNING_DAYS => {
            let days = left_ms / DAY_MS;
            Some(format!("{endpoint}: the certificate of the port {} expires in {days} days", plain(port)))
        }
        Some(_) => None,
    });
    lines.collect()
}

fn row(out: Output, line: &Line) -> Vec<String> {
    let mut row = vec![line.endpoint.clone()];
    match (&line.node, &line.error) {
        (Some(node), _) => {
            let tone = if node.status == "ready" { Tone::Good } else { Tone::Bad };
            row.extend([node.node_id.to_string(), node.role.clone(), node.term.to_string()]);
            row.extend([node.applied_zxid, node.sessions, node.znodes, node.watches].map(|number| number.to_string()));
            row.push(out.paint(tone, &node.status));
        }
        (None, error) => {
            row.extend(std::iter::repeat_n("-".to_owned(), 7));
            row.push(out.paint(Tone::Bad, &plain(error.as_deref().unwrap_or("no answer"))));
        }
    }
    row
}

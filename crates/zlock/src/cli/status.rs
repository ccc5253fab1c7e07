//! `zlock status`.

use clap::Command;
use serde::Serialize;
use zlock_client::{Cluster, Error};

use super::context::Context;
use super::failure::Failure;
use super::output::{Output, Tone};

pub(crate) fn command() -> Command {
    Command::new("status").about("Shows every node and whether the cluster can serve. Ends with 3 when it cannot")
}

/// What one endpoint said.
#[derive(Serialize)]
struct Line {
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Cluster>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Status {
    /// Whether a node that was asked is ready: it reaches a quorum then.
    serves: bool,
    nodes: Vec<Line>,
}

pub(crate) async fn run(context: &Context) -> Result<u8, Failure> {
    let nodes: Vec<Line> = context.client.status().await.into_iter().map(line).collect();
    let serves = nodes.iter().any(|line| line.node.as_ref().is_some_and(|node| node.ready == "ready"));
    let status = Status { serves, nodes };
    if context.out.json {
        context.out.document(&status)?
    } else {
        print(context.out, &status)?
    }
    if serves {
        return Ok(0);
    }
    let asked = context.endpoints.join(",");
    Err(Failure::refused(format!("no node of {asked} can serve; a majority must run and reach each other"))
        .with_code(3))
}

fn line((endpoint, answer): (String, Result<Cluster, Error>)) -> Line {
    match answer {
        Ok(node) => Line { endpoint, node: Some(node), error: None },
        Err(error) => Line { endpoint, node: None, error: Some(error.to_string()) },
    }
}

fn print(out: Output, status: &Status) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = status.nodes.iter().map(|line| row(out, line)).collect();
    out.table(&["ENDPOINT", "NODE", "ROLE", "TERM", "APPLIED", "SESSIONS", "ZNODES", "WAITS", "STATE"], &rows)
}

fn row(out: Output, line: &Line) -> Vec<String> {
    let mut row = vec![line.endpoint.clone()];
    match (&line.node, &line.error) {
        (Some(node), _) => {
            let tone = if node.ready == "ready" { Tone::Good } else { Tone::Bad };
            row.extend([node.node_id.to_string(), node.role.clone(), node.term.to_string()]);
            row.extend([node.applied_zxid, node.sessions, node.znodes, node.watches].map(|number| number.to_string()));
            row.push(out.paint(tone, &node.ready));
        }
        (None, error) => {
            row.extend(std::iter::repeat_n("-".to_owned(), 7));
            row.push(out.paint(Tone::Bad, error.as_deref().unwrap_or("no answer")));
        }
    }
    row
}

//! `zlock ready`: tells whether nodes are ready for clients, as health checks of containers ask.

use clap::Command;
use serde::Serialize;

use super::context::Context;
use super::failure::Failure;
use super::status::{self, Line};

/// Status of a node that is ready for clients.
const READY: &str = "ready";

pub(crate) fn command() -> Command {
    let about = "Tells whether every node of --endpoints is ready for clients. Ends with 3 when one is not";
    Command::new("ready").about(about).long_about(format!(
        "{about}.\n\nFor health checks of containers, with the one node in --endpoints. A node that is not ready may be \
         starting, draining or without a quorum: do not restart it for that alone."
    ))
}

/// Readiness of one endpoint's node.
#[derive(Serialize)]
struct Readiness {
    endpoint: String,
    ready: bool,
    /// The node's status, or the error of the request.
    reason: String,
}

impl Readiness {
    fn of(line: Line) -> Readiness {
        let reason = match (line.node, line.error) {
            (Some(node), _) => node.status,
            (None, error) => error.unwrap_or_else(|| "no answer".into()),
        };
        Readiness { endpoint: line.endpoint, ready: reason == READY, reason }
    }

    fn words(&self) -> String {
        let Readiness { endpoint, ready, reason } = self;
        if *ready { format!("{endpoint} is ready") } else { format!("{endpoint} is not ready: {reason}") }
    }
}

pub(crate) async fn run(context: &Context) -> Result<u8, Failure> {
    let nodes: Vec<Readiness> = status::ask(context).await.into_iter().map(Readiness::of).collect();
    if let Some(node) = nodes.iter().find(|node| !node.ready) {
        return Err(Failure::refused(node.words()).with_code(3));
    }
    context.out.answer(&nodes, || nodes.iter().try_for_each(|node| context.out.line(&node.words())))
}

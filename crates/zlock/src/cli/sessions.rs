//! `zlock sessions`: lists the sessions of the cluster.

use clap::Command;
use zlock_client::SessionInfo;

use super::context::Context;
use super::failure::Failure;
use super::output::{client, since, span};
use super::seen::plain;

pub(crate) fn command() -> Command {
    Command::new("sessions").about("Lists the open sessions")
}

pub(crate) async fn run(context: &Context) -> Result<u8, Failure> {
    let sessions = context.client.sessions().await?;
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    let headings = ["SESSION", "TIMEOUT", "OPEN FOR", "EPHEMERALS", "LABEL", "CLIENT"];
    context.out.answer(&sessions, || context.out.table(&headings, &rows))
}

fn row(session: &SessionInfo) -> Vec<String> {
    vec![
        session.session.to_string(),
        span(session.timeout_ms.into()),
        since(session.opened_at_ms),
        session.ephemeral_count.to_string(),
        plain(&session.label),
        client(session.client.as_ref()),
    ]
}

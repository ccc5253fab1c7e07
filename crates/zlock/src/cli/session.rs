//! `zlock session exec`: a command in a session.

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::context::Context;
use super::failure::Failure;
use super::lock::{run_in, say, with_run};

pub(crate) fn command() -> Command {
    let exec = Command::new("exec").about("Runs a command in a session that lives as long as the command").long_about(
        "Runs a command in a session that lives as long as the command. The command finds the session in \
         ZLOCK_SESSION, as the header Zlock-Session wants it, a node's URL in ZLOCK_ENDPOINT and all nodes in \
         ZLOCK_ENDPOINTS. What it makes with that header goes with the session. Before the session may be lost the \
         command is ended, as `zlock lock` does. Signals are passed on. Ends as the command ends; with 121 when the \
         session was lost, 125 when zlock failed, 126 and 127 when the command could not be started.",
    );
    Command::new("session")
        .about("Runs a command in a session of its own, for scripts that use the HTTP API")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with_run(exec))
}

/// With `--json`, on stderr: stdout is the command's.
#[derive(Serialize)]
struct Opened<'a> {
    session: u64,
    timeout_ms: u128,
    endpoint: &'a str,
}

pub(crate) async fn exec(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let session = context.client.open_session().await?;
    let endpoint = url(context);
    if context.out.json {
        let opened = Opened { session: session.id(), timeout_ms: session.timeout().as_millis(), endpoint: &endpoint };
        say(&serde_json::to_string(&opened).unwrap_or_default());
    }
    let environment = vec![
        ("ZLOCK_SESSION", session.header_value().to_owned()),
        ("ZLOCK_ENDPOINT", endpoint),
        ("ZLOCK_ENDPOINTS", context.endpoints.join(",")),
    ];
    let (code, lost) = run_in(&session, environment, matches).await?;
    if lost {
        // A lock with a delay may have been asked for in it. Closed, the session would let others in at once.
        context.leaves_session.set(true);
        return Ok(code);
    }
    if let Err(error) = context.client.close().await {
        say(&format!(
            "zlock: the command has ended, but not session {}: {error}; it ends by its timeout",
            session.id()
        ));
    }
    Ok(code)
}

/// A node that has answered, as a URL to put a path behind.
fn url(context: &Context) -> String {
    let live = context.client.live_endpoint();
    let bare = |text: &str| text.trim().trim_end_matches('/').to_owned();
    let texts: Vec<String> = context.endpoints.iter().map(|text| bare(text)).collect();
    let is_live = |text: &&String| live.as_ref().is_some_and(|live| text.ends_with(live.as_str()));
    let chosen = texts.iter().find(is_live).or(texts.first()).cloned().unwrap_or_default();
    if chosen.contains("://") { chosen } else { format!("http://{chosen}") }
}

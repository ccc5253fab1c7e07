//! `zlock session exec`: runs a command while a session is kept alive for it.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::connection::Connection;
use super::context::Context;
use super::failure::Failure;
use super::lock::{Environment, check_grace, run_in, say, with_run};
use super::options::group;
use super::release::SESSION_KEY;

pub(crate) fn command() -> Command {
    let exec = Command::new("exec").about("Runs a command in a session that lives as long as the command").long_about(
        "Runs a command in a session that lives as long as the command. The command finds the value of \
         the header Zlock-Session-Key in ZLOCK_SESSION_KEY, the URL of a node in ZLOCK_ENDPOINT, all nodes in \
         ZLOCK_ENDPOINTS, and the files for TLS in ZLOCK_CA, ZLOCK_CERTIFICATE and ZLOCK_KEY. Locks and ephemeral \
         znodes that the command makes with the header end with the session. Like `zlock lock`, zlock ends the \
         command before the session may be lost, and passes signals on to the command. It ends with the command's exit code; with 121 \
         if the session was lost, 125 if zlock failed, 126 or 127 if the command could not be started.",
    );
    group("session", "Runs a command in its own session, for scripts that use the HTTP API")
        .subcommand(with_run(exec).mut_arg("label", |arg| arg.help("Note for people [default: zlock session exec]")))
}

/// JSON document that `--json` prints about the opened session. It goes to stderr, because stdout
/// belongs to the command.
#[derive(Serialize)]
struct Opened<'a> {
    session: u64,
    timeout_ms: u128,
    endpoint: &'a str,
}

pub(crate) async fn exec(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    check_grace(matches)?;
    let session = context.client.open_session().await?;
    let connection = &context.connection;
    let endpoint = url(&connection.endpoints, context.client.live_endpoint().as_deref());
    if context.out.json {
        let opened = Opened { session: session.id(), timeout_ms: session.timeout().as_millis(), endpoint: &endpoint };
        say(&serde_json::to_string(&opened).unwrap_or_default());
    }
    let mut environment = environment(connection);
    environment.extend([(SESSION_KEY, Some(session.key().into())), ("ZLOCK_ENDPOINT", Some(endpoint.into()))]);
    let (code, lost) = run_in(&session, environment, matches).await?;
    if lost {
        // Not closed: the command may have acquired a lock with a lock-delay in the session, and a
        // close would free the lock at once.
        context.leaves_session.set(true);
    }
    Ok(code)
}

/// Returns the variables with which a `zlock` in the command connects to the same nodes as this one
/// does; the user is not among them. Variables that would take precedence, and that the connection
/// does not use, are removed.
fn environment(connection: &Connection) -> Environment {
    // The path is made absolute, as the command may change its working directory.
    let whole = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone()).into();
    let files = [
        ("ZLOCK_CLIENT_CONFIG", &connection.config),
        ("ZLOCK_CA", &connection.ca),
        ("ZLOCK_CERTIFICATE", &connection.certificate),
        ("ZLOCK_KEY", &connection.key),
    ];
    let mut environment: Environment = files.map(|(variable, file)| (variable, file.as_ref().map(whole))).to_vec();
    // The endpoints name the admin socket, if the connection uses it.
    environment.push(("ZLOCK_ADMIN_SOCKET", None));
    environment.push(("ZLOCK_ENDPOINTS", Some(connection.endpoints.join(",").into())));
    environment
}

/// Returns the base URL of a node, without a final slash: the endpoint with the `host:port` of
/// `live`, the node that has answered, or else the first endpoint.
fn url(endpoints: &[String], live: Option<&str>) -> String {
    let texts: Vec<&str> = endpoints.iter().map(|text| text.trim().trim_end_matches('/')).collect();
    let addr = |text: &str| text.split_once("://").map_or(text, |(_, addr)| addr).to_owned();
    let chosen = texts.iter().find(|text| live.is_some_and(|live| addr(text) == live)).or(texts.first());
    let chosen = chosen.copied().unwrap_or_default();
    // A Unix socket has no URL; users pass its path to curl as an option.
    if chosen.contains("://") || chosen.starts_with("unix:") { chosen.to_owned() } else { format!("http://{chosen}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(endpoints: &[&str], live: Option<&str>, expected: &str) {
        let endpoints: Vec<String> = endpoints.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(url(&endpoints, live), expected, "{endpoints:?}, {live:?}");
    }

    #[test]
    fn the_url_is_that_of_the_node_that_answered_and_of_no_other_whose_name_ends_alike() {
        check(&["anode:7001", "node:7001"], Some("node:7001"), "http://node:7001");
        check(&["https://anode:7001", " https://node:7001/ "], Some("node:7001"), "https://node:7001");
        check(&["127.0.0.1:1", "27.0.0.1:1"], Some("27.0.0.1:1"), "http://27.0.0.1:1");
        check(&["http://a:1/", "b:2"], None, "http://a:1");
        check(&["a:1"], Some("c:3"), "http://a:1");
        check(&["unix:/run/zlock/admin.sock"], Some("unix:/run/zlock/admin.sock"), "unix:/run/zlock/admin.sock");
    }
}

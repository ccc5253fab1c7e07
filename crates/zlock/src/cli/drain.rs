//! `zlock drain`: takes a node out of service without stopping it, or puts it back.

use clap::{ArgMatches, Command};
use zlock_client::Drain;

use super::context::Context;
use super::failure::Failure;
use super::options::flag;

pub(crate) fn command() -> Command {
    Command::new("drain")
        .about("Takes a node out of service without a stop, or puts it back into service; for operators")
        .long_about(
            "Takes a node out of service without a stop, or puts it back into service; for operators.\n\n\
             While the node is drained, another node leads, and /readyz of the node answers 503, so that balancers \
             send it no new clients. It answers all requests as before. Choose the node by --admin-socket on its \
             machine, or as the only one in --endpoints. A restart of the node ends the drain.",
        )
        .arg(flag("undo", "Puts the node back into service"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    if context.connection.endpoints.len() != 1 {
        return Err(Failure::usage(
            "a drain is of one node: name it with --admin-socket, or as the only one of --endpoints",
        ));
    }
    let done = if matches.get_flag("undo") { context.client.undrain().await? } else { context.client.drain().await? };
    context.out.answer(&done, || context.out.line(&words(&done)))
}

fn words(drain: &Drain) -> String {
    let id = drain.node_id;
    match (drain.draining, drain.leads, drain.leader) {
        (false, ..) => format!("node {id} is drained no more"),
        (true, true, _) => format!("node {id} is drained, and leads until another member can"),
        (true, false, Some(leader)) => format!("node {id} is drained; node {leader} leads"),
        (true, false, None) => format!("node {id} is drained; no leader is known yet"),
    }
}

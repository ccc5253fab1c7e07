//! `zlock get`: prints the data of a znode.

use std::io::IsTerminal as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{ArgMatches, Command};
use serde::Serialize;
use zlock_client::api::ZnodeInfo;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::path_arg;

pub(crate) fn command() -> Command {
    Command::new("get").about("Prints a znode's data, unchanged").arg(path_arg("The znode"))
}

/// JSON document that `--json` prints: the znode as in the HTTP API.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    znode: ZnodeInfo,
    zxid: u64,
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let node = context.client.get(&path_of(matches)).await?;
    if context.out.json {
        let text = std::str::from_utf8(&node.data).ok().map(str::to_owned);
        let data_base64 = text.is_none().then(|| STANDARD.encode(&node.data));
        let znode = ZnodeInfo { path: node.path, data: text, data_base64, stat: node.stat };
        context.out.document(&Document { znode, zxid: node.zxid })?;
        return Ok(0);
    }
    context.out.bytes(&node.data)?;
    // Ends the line on a terminal, so that the shell's prompt begins on a new one.
    if std::io::stdout().is_terminal() && !node.data.ends_with(b"\n") {
        context.out.bytes(b"\n")?;
    }
    Ok(0)
}

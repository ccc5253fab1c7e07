//! Redis: one server that syncs its append-only file before it answers a write, and takes no
//! snapshots.

use std::path::Path;

use testkit::Ports;

use super::{Plan, installed, owned};
use crate::error::Error;

pub(super) fn plans(data: &Path, ports: &Ports) -> Result<Vec<Plan>, Error> {
    let program = installed("redis-server", "redis-server")?;
    let mut arguments = owned(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    arguments.extend(["--port".to_owned(), ports.port(0).to_string(), "--dir".to_owned(), data.display().to_string()]);
    Ok(vec![Plan { program, arguments, rest: None, client: ports.addr(0) }])
}

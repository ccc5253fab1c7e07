//! `zlock create`: creates a znode.

use std::time::Duration;

use clap::{ArgMatches, Command};
use zlock_client::{Client, Error, Mode, ProblemType};

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{flag, path_arg, time};
use super::seen::plain;
use super::set::{data_arg, data_of};

pub(crate) fn command() -> Command {
    Command::new("create")
        .about("Creates a znode and prints its path. It is persistent: a command has no session that lasts")
        .arg(path_arg("Where"))
        .arg(data_arg())
        .arg(flag("sequential", "Puts ten digits behind the name, counted by the parent"))
        .arg(flag("container", "Collected some time after its last child went").conflicts_with("sequential"))
        .arg(time("ttl", "Collected when it has no children and was not set for so long").conflicts_with("container"))
        .arg(flag("parents", "Creates the parents that are missing").short('p'))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let data = data_of(matches)?;
    if matches.get_flag("parents") {
        make_parents(&context.client, &path).await?;
    }
    let mode = match (matches.get_flag("sequential"), matches.get_flag("container")) {
        (true, _) => Mode::PersistentSequential,
        (_, true) => Mode::Container,
        _ => Mode::Persistent,
    };
    let mut create = context.client.create(path, data).mode(mode);
    if let Some(ttl) = matches.get_one::<Duration>("ttl") {
        create = create.ttl(*ttl);
    }
    let created = create.await?;
    context.out.answer(&created, || context.out.line(&plain(&created.path)))
}

/// Creates the missing ancestors of a znode.
pub(crate) async fn make_parents(client: &Client, path: &str) -> Result<(), Error> {
    for (at, _) in path.match_indices('/').skip(1) {
        make(client, &path[..at]).await?;
    }
    Ok(())
}

/// Creates an empty znode, unless it exists.
pub(crate) async fn make(client: &Client, path: &str) -> Result<(), Error> {
    match client.create(path, "").await {
        Err(error) if error.code() == Some(ProblemType::NodeExists) => Ok(()),
        created => created.map(drop),
    }
}

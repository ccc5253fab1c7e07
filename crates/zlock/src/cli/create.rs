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
    let container = "Makes a container, which is deleted some time after its last child was deleted";
    let ttl = "Time to live: the znode is deleted if it has no children and no change for this time";
    Command::new("create")
        .about("Creates a persistent znode and prints its path")
        .arg(path_arg("The path of the new znode"))
        .arg(data_arg())
        .arg(flag("sequential", "Appends a sequence number of ten digits to the name"))
        .arg(flag("container", container).conflicts_with("sequential"))
        .arg(time("ttl", ttl).conflicts_with("container"))
        .arg(flag("parents", "Creates missing parents, too").short('p'))
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

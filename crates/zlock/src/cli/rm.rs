//! `zlock rm`: deletes a znode, or a subtree.

use clap::{ArgMatches, Command};
use zlock_client::Client;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{flag, path_arg};
use super::set::version_arg;

pub(crate) fn command() -> Command {
    let recursive = flag("recursive", "Deletes all znodes below it, too, one by one and not in one transaction");
    Command::new("rm")
        .about("Deletes a znode")
        .arg(path_arg("The znode"))
        .arg(version_arg())
        .arg(recursive.short('r').conflicts_with("if-version"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    if path == "/" {
        // Refused before any znode below the root is deleted. An empty path means the root, too.
        return Err(Failure::refused("the root cannot be deleted: name a znode below it"));
    }
    let removed = if matches.get_flag("recursive") {
        remove_all(&context.client, &path).await?
    } else {
        let mut delete = context.client.delete(path);
        if let Some(version) = matches.get_one("if-version") {
            delete = delete.version(*version);
        }
        delete.await?;
        1
    };
    context.out.answer(&serde_json::json!({ "removed": removed }), || Ok(()))
}

/// Deletes a subtree, children before their parents. Returns the number of deleted znodes. A znode
/// that another client deletes meanwhile is no error.
async fn remove_all(client: &Client, top: &str) -> Result<u64, Failure> {
    let mut removed = 0;
    // Stack of paths. Each path is taken twice: first to push its children, then to delete the
    // znode.
    let mut open = vec![(top.to_owned(), false)];
    while let Some((path, is_empty)) = open.pop() {
        if is_empty {
            match client.delete(path).await {
                Err(error) if error.is_no_node() => {}
                deleted => {
                    deleted?;
                    removed += 1;
                }
            }
            continue;
        }
        match client.children(&path).await {
            Err(error) if error.is_no_node() && path != top => {}
            children => {
                let children = children?;
                open.push((path.clone(), true));
                open.extend(children.iter().map(|name| (format!("{path}/{name}"), false)));
            }
        }
    }
    Ok(removed)
}

//! `zlock tree`: shows a subtree.

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use zlock_client::Client;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{number, option};
use super::seen::plain;

/// Largest number of znodes that are read and printed. A longer list would be useless to a user.
const ZNODES_MAX: usize = 10_000;

pub(crate) fn command() -> Command {
    let depth = option("depth", "LEVELS", "Number of levels to show");
    Command::new("tree")
        .about("Shows all znodes below a znode")
        .arg(Arg::new("path").value_name("PATH").default_value("/").help("The znode"))
        .arg(depth.value_parser(number::<u32>(1)).default_value("64"))
}

/// One znode in the printed tree.
#[derive(Serialize)]
struct Line {
    path: String,
    #[serde(skip)]
    depth: u32,
    children: u32,
    bytes: u32,
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let (path, out) = (path_of(matches), context.out);
    let depth = *matches.get_one::<u32>("depth").expect("it has a default");
    let lines = walk(&context.client, &path, depth).await?;
    out.answer(&lines, || {
        out.line(&plain(&path))?;
        lines.iter().try_for_each(|line| {
            let name = line.path.rsplit('/').next().unwrap_or_default();
            let bytes = if line.bytes > 0 { format!("  ({} bytes)", line.bytes) } else { String::new() };
            out.line(&format!("{}{}{bytes}", "  ".repeat(line.depth as usize), plain(name)))
        })
    })
}

/// Reads a subtree down to `depth_max` levels. Returns its znodes depth first, with children sorted
/// by name. A znode that is deleted meanwhile is left out.
async fn walk(client: &Client, top: &str, depth_max: u32) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    let mut open = vec![(top.to_owned(), 0)];
    while let Some((path, depth)) = open.pop() {
        let children = match client.children_with_stats(&path).await {
            Err(error) if depth > 0 && error.is_no_node() => continue,
            children => children?,
        };
        // Inserts the lines of the children behind the line of their parent.
        let at = lines.iter().position(|line: &Line| line.path == path).map_or(lines.len(), |at| at + 1);
        let join = |name: &str| format!("{}/{name}", path.trim_end_matches('/'));
        let found: Vec<Line> = children
            .iter()
            .map(|child| Line {
                path: join(&child.name),
                depth: depth + 1,
                children: child.stat.num_children,
                bytes: child.stat.data_length,
            })
            .collect();
        let deeper = found.iter().filter(|line| line.children > 0 && depth + 1 < depth_max);
        open.extend(deeper.map(|line| (line.path.clone(), depth + 1)));
        lines.splice(at..at, found);
        if lines.len() > ZNODES_MAX {
            return Err(Failure::refused(format!(
                "more than {ZNODES_MAX} znodes: name a smaller part, or fewer levels with --depth"
            )));
        }
    }
    Ok(lines)
}

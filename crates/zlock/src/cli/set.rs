//! `zlock set`: replaces the data of a znode.

use std::io::{self, Read};

use clap::{Arg, ArgMatches, Command};

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{number, option, path_arg};
use crate::DATA_BYTES_MAX;

/// Largest number of bytes that are read from stdin. It exceeds what any node accepts, so that a
/// node refuses longer data.
const STDIN_BYTES_MAX: u64 = DATA_BYTES_MAX as u64 + 1;

pub(crate) fn command() -> Command {
    Command::new("set")
        .about("Replaces a znode's data")
        .arg(path_arg("The znode"))
        .arg(data_arg().required(true))
        .arg(version_arg())
}

/// Makes the argument for the data.
pub(crate) fn data_arg() -> Arg {
    Arg::new("data").value_name("DATA").help("The data; `-` reads stdin")
}

/// Makes the option for the expected version.
pub(crate) fn version_arg() -> Arg {
    option("if-version", "NUMBER", "Changes the znode only if its data has this version").value_parser(number::<i32>(0))
}

/// Returns the data of the argument, or the content of stdin for `-`.
pub(crate) fn data_of(matches: &ArgMatches) -> Result<Vec<u8>, Failure> {
    match matches.get_one::<String>("data").map(String::as_str) {
        Some("-") => {
            let read = read_data(io::stdin().lock());
            read.map_err(|error| Failure::refused(format!("cannot read stdin: {error}")))
        }
        text => Ok(text.unwrap_or_default().as_bytes().to_vec()),
    }
}

/// Reads data to its end, or to its first byte that makes it too long for every node.
fn read_data(from: impl Read) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    from.take(STDIN_BYTES_MAX).read_to_end(&mut data)?;
    Ok(data)
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let mut set = context.client.set(path_of(matches), data_of(matches)?);
    if let Some(version) = matches.get_one("if-version") {
        set = set.version(*version);
    }
    let done = set.await?;
    context.out.answer(&done, || Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_cut_off_is_too_long_for_every_node() {
        let read = |bytes: u64| read_data(io::repeat(b'x').take(bytes)).unwrap().len();
        let most = DATA_BYTES_MAX as usize;
        assert_eq!([read(most as u64), read(most as u64 + 9)], [most, most + 1]);
    }
}

//! `zlock man`: writes manual pages.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use super::failure::Failure;

pub(crate) fn command() -> Command {
    Command::new("man")
        .about("Writes the man pages, one for each command, into a directory")
        .arg(Arg::new("dir").value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf)))
}

pub(crate) fn run(matches: &ArgMatches, whole: Command) -> Result<u8, Failure> {
    let dir = matches.get_one::<PathBuf>("dir").expect("it is required");
    let failed = |error| Failure::refused(format!("cannot write man pages to {}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(whole, dir).map_err(failed)?;
    Ok(0)
}

//! `zlock completions`: prints completions for a shell.

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use super::failure::Failure;
use super::output::Output;

pub(crate) fn command() -> Command {
    Command::new("completions")
        .about("Prints completions for a shell, for the shell's startup file")
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(clap::value_parser!(Shell)))
}

pub(crate) fn run(matches: &ArgMatches, mut whole: Command) -> Result<u8, Failure> {
    let shell = *matches.get_one::<Shell>("shell").expect("it is required");
    // Generated in memory first, because the generator panics when stdout is closed.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut whole, "zlock", &mut text);
    Output::new(false).bytes(&text)?;
    Ok(0)
}

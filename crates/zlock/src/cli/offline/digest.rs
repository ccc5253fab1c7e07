//! `zlock digest`: prints the digest of a user's password. The command sends no request to a node.

use std::io::{self, BufRead as _, IsTerminal as _};

use clap::{Arg, ArgMatches, Command};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::cli::failure::Failure;
use crate::cli::options::flag;
use crate::cli::output::Output;

pub(crate) fn command() -> Command {
    Command::new("digest")
        .about("Reads a user's password from stdin, and prints its digest, for admin.super_digest and for ACLs")
        .arg(Arg::new("user").value_name("USER").required(true).help("Name of the user, without a colon"))
        .arg(flag("json", "Prints JSON"))
}

pub(crate) fn run(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let user = matches.get_one::<String>("user").expect("it is required");
    if user.is_empty() || user.contains(':') {
        return Err(Failure::usage(format!("`{user}` is no name of a user: it is not empty and has no colon")));
    }
    let password = read_password();
    let password =
        password.map_err(|error| Failure::refused(format!("the password on stdin cannot be read: {error}")))?;
    let password = password.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(Failure::usage("the password on stdin is empty"));
    }
    let digest = rest::digest(&format!("{user}:{password}")).expect("there is a colon");
    out.answer(&serde_json::json!({ "digest": digest }), || out.line(&digest))
}

/// Reads a line from stdin. A terminal does not show what is typed.
fn read_password() -> io::Result<String> {
    let stdin = io::stdin();
    let before = stdin.is_terminal().then(|| tcgetattr(&stdin)).transpose()?;
    if let Some(before) = &before {
        eprint!("password: ");
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    }
    let mut password = String::new();
    let read = stdin.lock().read_line(&mut password);
    if let Some(before) = &before {
        tcsetattr(&stdin, OptionalActions::Flush, before)?;
        eprintln!();
    }
    read.map(|_| password)
}

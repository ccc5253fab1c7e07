//! Better messages for wrong command lines, where clap's own messages mislead.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Commands that only Linux has.
pub(crate) const OF_LINUX: [&str; 6] = ["serve", "dev", "restore", "recover", "tls", "digest"];

/// Returns the unknown command of the error, if Linux has it and this system has not.
pub(crate) fn command_of_linux(error: &Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if !cfg!(target_os = "linux") => {
            OF_LINUX.into_iter().find(|command| command == word)
        }
        _ => None,
    }
}

/// Replaces the usage line in the error by that of `--help`, because clap's own line shows every
/// option with a value from an environment variable as if it were required. If the command runs
/// another program and a word of the command line is unknown, adds a tip to put `--` before the
/// program.
pub(crate) fn explained(mut error: Error, mut whole: Command, args: &[OsString]) -> Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    let words = meant(&whole, args);
    whole.build();
    let command = words
        .iter()
        .fold(&mut whole, |command, word| command.find_subcommand_mut(word).expect("it was found in the same command"));
    let runs_another = command.get_arguments().any(|arg| arg.get_id() == "command");
    let is_option =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if word.starts_with("--"));
    if runs_another || is_option {
        // Removes clap's tip to write the word behind `--`, where it would be taken as the program
        // to run, or as a path.
        error.remove(ContextKind::Suggested);
    }
    if runs_another && is_word_without_dashes(&error) {
        let tip = format!("put `--` before the command that is to be run: {}", example(command));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    error
}

/// Returns the names of the command and subcommand that the command line contains, such as `member`
/// and `add`.
fn meant(whole: &Command, args: &[OsString]) -> Vec<String> {
    let mut words = Vec::new();
    // Parses with an unbuilt command, because the groups of a built one would not ignore errors.
    if let Ok(matches) = whole.clone().ignore_errors(true).try_get_matches_from(args) {
        let mut matches = &matches;
        while let Some((word, deeper)) = matches.subcommand() {
            words.push(word.to_owned());
            matches = deeper;
        }
    }
    words
}

fn is_word_without_dashes(error: &Error) -> bool {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => word,
        _ => return false,
    };
    error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-')
}

/// Returns an example of the command line, such as `zlock lock NAME -- COMMAND`.
fn example(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let named = command.get_positionals().any(|arg| arg.get_id() == "name");
    format!("{name}{} -- COMMAND", if named { " NAME" } else { "" })
}

//! Messages about a wrong command line, where clap's own words are misleading.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Replaces the usage in the error by that of `--help`, because clap's own names every option that
/// a variable gives, as if it were required. For a word in the place of a command to run, adds a
/// tip that tells how to write the command.
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
        // clap's tip to write the word behind `--` would make it the command to run, or a path.
        error.remove(ContextKind::Suggested);
    }
    if runs_another && is_word_without_dashes(&error) {
        let tip = format!("put `--` before the command that is to be run: {}", example(command));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    error
}

/// Returns the names of the command that the line is about; of a group, with the command within it.
fn meant(whole: &Command, args: &[OsString]) -> Vec<String> {
    let mut words = Vec::new();
    // A built command is not used here, because its groups would not ignore errors.
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

/// Returns the example `zlock lock NAME -- COMMAND`.
fn example(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let named = command.get_positionals().any(|arg| arg.get_id() == "name");
    format!("{name}{} -- COMMAND", if named { " NAME" } else { "" })
}

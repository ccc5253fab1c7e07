//! Options that all client commands share, such as `--endpoints`. They can be given before or after
//! the command's name.

use std::fmt::Display;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use zlock_client::api::Millis;

const TIMEOUT_DEFAULT: &str = "10s";

/// Adds the shared options to a command, with their variables and defaults. For a group of
/// commands, they can also be given after the group's name.
pub(crate) fn with_options(command: Command) -> Command {
    let is_group = command.has_subcommands();
    let options = bare().map(|option| {
        let name = option.get_id().to_string();
        let variable = format!("ZLOCK_{}", name.replace('-', "_").to_ascii_uppercase());
        let option = match &*name {
            "timeout" => option.default_value(TIMEOUT_DEFAULT),
            "json" => option,
            // The value of `user` contains a password.
            _ if says_something(&variable) => option.env(variable).hide_env_values(name == "user"),
            _ => option,
        };
        option.global(is_group)
    });
    command.args(options)
}

/// Returns a parser for whole numbers of at least `least`.
pub(crate) fn number<T>(least: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr<Err = ParseIntError> + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse::<T>() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) => Err(format!("it is at least {least}")),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err("the number is too large".into()),
        Err(_) => Err("a whole number is expected".into()),
    }
}

/// Tells whether clap may read the environment variable. A variable that is set to an empty text
/// counts as unset, as in the Rust client.
fn says_something(variable: &str) -> bool {
    std::env::var_os(variable).is_none_or(|value| !value.to_string_lossy().trim().is_empty())
}

/// Returns the shared options in the form that is allowed before the command's name. They have no
/// environment variable and no default there, so that only the command line can set them.
pub(crate) fn before_commands() -> [Arg; 10] {
    bare().map(|option| option.help_heading("Options of client commands, before or after the command's name"))
}

/// Returns the name of a shared option that is given before the command; `None` if there is none.
pub(crate) fn stray(before: &ArgMatches) -> Option<String> {
    let ids = bare().map(|option| option.get_id().as_str().to_owned());
    ids.into_iter().find(|id| is_given(before, id))
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn bare() -> [Arg; 10] {
    let file = |name, help| file(name, "FILE", help);
    let endpoints = "Addresses of the nodes [default: those of the configuration file, else of `zlock dev`]";
    let socket = "Admin socket of a node on this machine, in place of endpoints; users who can open it are operators";
    let config = "A TOML file with `endpoints = [...]` and, where wanted, `ca`, `certificate`, `key`, `user`, `user_file` [default: zlock/client.toml in $XDG_CONFIG_HOME or ~/.config, if it is there and no endpoints are given]";
    let user =
        "User, for ACLs of the scheme digest. All users of this machine see it here: better use ZLOCK_USER or a file";
    let options = [
        option("endpoints", "[https://]HOST:PORT,...", endpoints).value_delimiter(','),
        self::file("admin-socket", "PATH", socket),
        file("client-config", config),
        file("ca", "PEM file with the authorities that sign the nodes' certificates [default: those of this system]"),
        file("certificate", "PEM file with the client certificate; only together with --key"),
        file("key", "PEM file with the private key of the client certificate"),
        option("user", "NAME:PASSWORD", user),
        file("user-file", "A file with NAME:PASSWORD in its first line"),
        time("timeout", "Time for which the command tries all nodes before it gives up"),
        flag("json", "Prints JSON"),
    ];
    options.map(|option| if option.get_id() == "json" { option } else { option.help_heading("Connection") })
}

/// Parsed shared options: those before the command, and those after it.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) before: &'a ArgMatches,
    pub(crate) behind: &'a ArgMatches,
}

impl<'a> Given<'a> {
    /// Returns the parsed options, those before or after the command, that contain the value in
    /// effect of the option `id`. A value after the command takes precedence over one before it,
    /// and both over an environment variable.
    pub(crate) fn of(&self, id: &str) -> &'a ArgMatches {
        if !is_given(self.behind, id) && is_given(self.before, id) { self.before } else { self.behind }
    }

    /// Tells whether an option is given on the command line.
    pub(crate) fn is_given(&self, id: &str) -> bool {
        is_given(self.before, id) || is_given(self.behind, id)
    }
}

/// Parses `30s`, `250ms`, `5m`, `1h` or 0. A number without a unit is refused, as it would mean
/// milliseconds, which few users expect.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare && text.bytes().any(|byte| byte != b'0') {
        return Err(format!("a unit is missing: {text}s or {text}ms"));
    }
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err("it is negative: write 30s, 250ms, 5m or 1h".to_owned());
    }
    let Millis(ms) = text.parse().map_err(|_| "not a duration: write 30s, 250ms, 5m or 1h".to_owned())?;
    Ok(Duration::from_millis(ms))
}

/// Makes an option that takes a duration. A text that begins with a dash is read as the duration
/// and refused; clap would read it as another option.
pub(crate) fn time(name: &'static str, help: &'static str) -> Arg {
    option(name, "TIME", help).value_parser(duration).allow_hyphen_values(true)
}

/// Makes an option without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Makes an option with a value. `value` is the name of the value in the help.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Makes an option whose value is a path on this machine.
pub(crate) fn file(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(clap::value_parser!(PathBuf))
}

/// Makes a command that only groups other commands.
pub(crate) fn group(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).subcommand_required(true).arg_required_else_help(true)
}

/// Makes the argument for a required path.
pub(crate) fn path_arg(help: &'static str) -> Arg {
    Arg::new("path").value_name("PATH").required(true).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> (ArgMatches, String) {
        let inner = with_options(Command::new("group").subcommand(Command::new("leaf")));
        let command = Command::new("zlock").args(before_commands()).subcommand(with_options(Command::new("ls")));
        let matches = command.subcommand(inner).try_get_matches_from(args).unwrap();
        let (_, mut leaf) = matches.subcommand().unwrap();
        while let Some((_, deeper)) = leaf.subcommand() {
            leaf = deeper;
        }
        let given = Given { before: &matches, behind: leaf };
        let text = |id: &str| given.of(id).get_one::<Duration>(id).map_or("-".into(), |time| format!("{time:?}"));
        let said = format!("{} {}", given.of("json").get_flag("json"), text("timeout"));
        (matches.clone(), said)
    }

    #[test]
    fn options_count_wherever_they_stand() {
        for (args, expected) in [
            (&["zlock", "ls"][..], "false 10s"),
            (&["zlock", "--json", "ls"], "true 10s"),
            (&["zlock", "ls", "--json"], "true 10s"),
            (&["zlock", "--timeout", "3s", "ls", "--json"], "true 3s"),
            (&["zlock", "--timeout", "3s", "ls", "--timeout", "4s"], "false 4s"),
            (&["zlock", "--timeout=3s", "group", "leaf"], "false 3s"),
            (&["zlock", "group", "--timeout=3s", "--json", "leaf"], "true 3s"),
            (&["zlock", "group", "leaf", "--timeout=3s"], "false 3s"),
            (&["zlock", "group", "--timeout=4s", "leaf", "--timeout=3s"], "false 3s"),
        ] {
            assert_eq!(given(args).1, expected, "{args:?}");
        }
        assert_eq!(stray(&given(&["zlock", "--json", "ls"]).0).as_deref(), Some("json"));
        assert_eq!(stray(&given(&["zlock", "ls", "--json"]).0), None);
    }

    #[test]
    fn a_duration_has_a_unit() {
        let ms = |text: &str| duration(text).map(|time| time.as_millis());
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("0"), Ok(0));
        assert_eq!(ms("30"), Err("a unit is missing: 30s or 30ms".into()));
        assert_eq!(ms("-5s"), Err("it is negative: write 30s, 250ms, 5m or 1h".into()));
        assert!(ms("").is_err() && ms("soon").is_err() && ms("--shared").is_err());
    }
}

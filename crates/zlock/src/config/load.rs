//! Settings from flags, variables and the file. A flag takes precedence over a variable, a variable
//! over the file, and the file over the default.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::{ConfigError, KEYS, Key, Settings, file};

/// Value that a flag, an environment variable or the configuration file gives for a key.
#[derive(Clone, Debug)]
pub struct Given {
    /// The key's path.
    pub key: String,
    /// The value as text.
    pub text: String,
    /// Source of the value: a flag with its dashes, the name of an environment variable, or the
    /// path of the configuration file.
    pub origin: String,
}

/// Adds the option `--config`, and for every key a flag with its environment variable.
pub fn flags(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("ZLOCK_CONFIG")
        .value_parser(clap::value_parser!(PathBuf))
        .help("TOML file with any of the keys below, each in its table");
    let defaults = Settings::default();
    KEYS.iter().fold(command.arg(config), |command, key| command.arg(flag(key, &defaults)))
}

fn flag(key: &Key, defaults: &Settings) -> Arg {
    let default = key.default(defaults);
    let help = if default.is_empty() { key.help.to_owned() } else { format!("{} [default: {default}]", key.help) };
    Arg::new(key.path)
        .long(key.flag())
        .env(key.variable())
        .value_name(key.kind)
        .help_heading(key.heading())
        // `-h` shows the basic keys, and `--help` all keys.
        .hide_short_help(!key.is_basic)
        .hide_env_values(true)
        .help(help)
}

/// Loads the settings from the parsed command line, whose options [`flags`] has declared.
///
/// # Errors
/// A [`ConfigError`] for an unreadable file or a refused value.
pub fn from_matches(matches: &ArgMatches) -> Result<Settings, ConfigError> {
    let file: Option<&PathBuf> = matches.get_one("config");
    load(file.map(PathBuf::as_path), given(matches))
}

/// Returns the values that were given as flags and environment variables.
pub fn given(matches: &ArgMatches) -> Vec<Given> {
    let given = KEYS.iter().filter_map(|key| {
        let text = matches.get_one::<String>(key.path)?.clone();
        let origin = match matches.value_source(key.path)? {
            ValueSource::EnvVariable => key.variable(),
            _ => format!("--{}", key.flag()),
        };
        Some(Given { key: key.path.to_owned(), text, origin })
    });
    given.collect()
}

/// Returns the environment variables that look like configuration keys but are none: their names
/// begin with `ZLOCK_` and the name of a table, and name no key of it. Variables that Kubernetes
/// sets for its services are left out.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_of_table =
        |name: &str| KEYS.iter().any(|key| name.starts_with(&format!("ZLOCK_{}_", key.table.to_uppercase())));
    let is_known = |name: &str| name == "ZLOCK_ADMIN_SOCKET" || KEYS.iter().any(|key| key.variable() == name);
    let is_of_service = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
    names.filter(|name| is_of_table(name) && !is_known(name) && !is_of_service(name)).collect()
}

/// Builds the settings: applies the file to the defaults, then the values in `given`, and then
/// checks the result.
///
/// # Errors
/// A [`ConfigError`] for an unreadable file or a refused value.
pub fn load(file: Option<&Path>, given: impl IntoIterator<Item = Given>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    if let Some(path) = file {
        for (key, text) in file::read(path)? {
            set(&mut settings, &Given { key, text, origin: path.display().to_string() })?;
        }
    }
    for one in given {
        set(&mut settings, &one)?;
    }
    settings.check()?;
    Ok(settings)
}

fn set(settings: &mut Settings, given: &Given) -> Result<(), ConfigError> {
    let refused = |message| ConfigError::Value { key: given.key.clone(), origin: given.origin.clone(), message };
    let key = KEYS.iter().find(|key| key.path == given.key).ok_or_else(|| refused("unknown key".to_owned()))?;
    (key.set)(settings, &given.text).map_err(refused)
}

//! What all commands of a client share.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use protocol::Millis;
use serde::Deserialize;
use zlock_client::Client;

use super::failure::Failure;
use super::output::Output;

/// Where `zlock dev` listens.
const DEFAULT_ENDPOINTS: [&str; 3] = ["localhost:7001", "localhost:7002", "localhost:7003"];

/// A client and a way to print.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) out: Output,
    pub(crate) endpoints: Vec<String>,
    /// Whether the session is left to expire at the end, instead of being closed.
    pub(crate) leaves_session: Cell<bool>,
}

/// The configuration file of clients, and what the options say in its place.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    endpoints: Vec<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Adds the shared options.
pub(crate) fn with_options(command: Command) -> Command {
    command
        .arg(
            Arg::new("endpoints")
                .long("endpoints")
                .value_name("[https://]HOST:PORT,...")
                .env("ZLOCK_ENDPOINTS")
                .value_delimiter(',')
                .help_heading("Connection")
                .help("The nodes [default: those of the configuration file, else of `zlock dev`]"),
        )
        .arg(
            Arg::new("client-config")
                .long("client-config")
                .value_name("FILE")
                .env("ZLOCK_CLIENT_CONFIG")
                .value_parser(clap::value_parser!(PathBuf))
                .help_heading("Connection")
                .help("A TOML file with `endpoints = [...]` and, for https, `ca`, `certificate`, `key` [default: zlock/client.toml in $XDG_CONFIG_HOME or ~/.config, if it is there and no endpoints are given]"),
        )
        .args(tls_options())
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .default_value("10s")
                .value_parser(duration)
                .help_heading("Connection")
                .help("How long to try other nodes before giving up"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints JSON"))
}

/// Files for nodes that speak TLS.
fn tls_options() -> [Arg; 3] {
    let file = |name: &'static str, variable: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("FILE").env(variable).help(help);
        arg.value_parser(clap::value_parser!(PathBuf)).help_heading("Connection")
    };
    [
        file("ca", "ZLOCK_CA", "PEM file with the authorities that https nodes are known by"),
        file("certificate", "ZLOCK_CERTIFICATE", "PEM file with a certificate to show to nodes that ask")
            .requires("key"),
        file("key", "ZLOCK_KEY", "PEM file with its private key").requires("certificate"),
    ]
}

/// `30s`, `250ms`, `5m` or `1h`; only 0 needs no unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let Millis(ms) = text.parse().map_err(|error: protocol::DurationError| error.to_string())?;
    Ok(Duration::from_millis(ms))
}

/// A path as people write it: the first slash may be left out.
pub(crate) fn path(text: &str) -> String {
    let bare = text.trim_end_matches('/');
    if bare.starts_with('/') { bare.to_owned() } else { format!("/{bare}") }
}

/// A required path argument.
pub(crate) fn path_arg(help: &'static str) -> Arg {
    Arg::new("path").value_name("PATH").required(true).help(help)
}

/// The path argument.
pub(crate) fn path_of(matches: &ArgMatches) -> String {
    path(matches.get_one::<String>("path").map_or("/", |text| text))
}

impl Context {
    pub(crate) fn read(name: &str, matches: &ArgMatches) -> Result<Context, Failure> {
        let File { endpoints, ca, certificate, key } = connection(matches)?;
        let operation = *matches.get_one::<Duration>("timeout").expect("it has a default");
        let mut builder =
            Client::builder(endpoints.clone()).operation_timeout(operation).label(format!("zlock {name}"));
        if let Ok(Some(timeout)) = matches.try_get_one::<Duration>("session-timeout") {
            builder = builder.session_timeout(*timeout).poll_time(Duration::from_secs(5));
        }
        if let Ok(Some(label)) = matches.try_get_one::<String>("label") {
            builder = builder.label(label);
        }
        if let Some(ca) = ca {
            builder = builder.ca(ca);
        }
        match (certificate, key) {
            (Some(certificate), Some(key)) => builder = builder.certificate(certificate, key),
            (None, None) => {}
            _ => return Err(Failure::refused("certificate and key belong together: name both files".to_owned())),
        }
        let (client, out) = (builder.build()?, Output::new(matches.get_flag("json")));
        Ok(Context { client, out, endpoints, leaves_session: Cell::new(false) })
    }
}

/// Each from its flag or variable, else the file, else the default.
fn connection(matches: &ArgMatches) -> Result<File, Failure> {
    let given = matches.get_many::<String>("endpoints");
    let named = matches.get_one::<PathBuf>("client-config").cloned();
    let file = match (&given, named) {
        (_, Some(named)) => read_file(&named)?,
        // The usual file is for its own endpoints.
        (Some(_), None) => File::default(),
        (None, None) => match usual_file().filter(|file| file.exists()) {
            Some(file) => read_file(&file)?,
            None => File { endpoints: DEFAULT_ENDPOINTS.map(String::from).to_vec(), ..File::default() },
        },
    };
    let endpoints = given.map(|given| given.filter(|text| !text.trim().is_empty()).cloned().collect());
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Ok(File {
        endpoints: endpoints.unwrap_or(file.endpoints),
        ca: path("ca").or(file.ca),
        certificate: path("certificate").or(file.certificate),
        key: path("key").or(file.key),
    })
}

fn read_file(file: &Path) -> Result<File, Failure> {
    let refused = |why: String| Failure::refused(format!("{}: {}", file.display(), why.replace('\n', " ")));
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    toml::from_str(&text).map_err(|error| refused(error.message().to_owned()))
}

fn usual_file() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| std::env::home_dir().map(|home| home.join(".config")))?;
    Some(config.join("zlock/client.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(path(text), expected, "{text:?}");
    }

    #[test]
    fn the_first_slash_and_the_last_may_be_written_or_not() {
        check("orders", "/orders");
        check("/orders", "/orders");
        check("a/b/", "/a/b");
        check("/", "/");
        check("", "/");
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        assert!(toml::from_str::<File>("endpoints = [\"a:1\"]").is_ok());
        assert!(toml::from_str::<File>("endpoint = [\"a:1\"]").is_err());
    }
}

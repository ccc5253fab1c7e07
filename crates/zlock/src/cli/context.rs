//! State that all client commands share.

use std::cell::Cell;
use std::time::Duration;

use clap::ArgMatches;
use zlock_client::{Client, ClientBuilder};

use super::connection::{Connection, User};
use super::failure::Failure;
use super::options::Given;
use super::output::Output;

/// Client for the cluster, printer and connection data of a running command.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) out: Output,
    pub(crate) connection: Connection,
    /// Whether the session stays open at the end of the command, and so expires by its timeout.
    pub(crate) leaves_session: Cell<bool>,
}

/// Adds the first slash to a path, if it is missing. The nodes check the path further.
pub(crate) fn path(text: &str) -> String {
    if text.starts_with('/') { text.to_owned() } else { format!("/{text}") }
}

/// Returns the path in the argument `path`; the root when there is none.
pub(crate) fn path_of(matches: &ArgMatches) -> String {
    path(matches.get_one::<String>("path").map_or("/", |text| text))
}

impl Context {
    /// Reads the shared options. `name` is the command's name, which becomes part of the label (the
    /// description for other clients) of the command's session. `before` has the options before the
    /// command's name, `matches` the options after it.
    pub(crate) fn read(name: &str, before: &ArgMatches, matches: &ArgMatches) -> Result<Context, Failure> {
        let given = Given { before, behind: matches };
        let connection = Connection::read(&given)?;
        let operation = *given.of("timeout").get_one::<Duration>("timeout").expect("it has a default");
        let builder = Client::builder(connection.endpoints.clone()).operation_timeout(operation);
        let mut builder = of_connection(builder.label(format!("zlock {name}")), &connection)?;
        if let Ok(Some(timeout)) = matches.try_get_one::<Duration>("session-timeout") {
            builder = builder.session_timeout(*timeout).poll_time(Duration::from_secs(5));
        }
        if let Ok(Some(label)) = matches.try_get_one::<String>("label") {
            builder = builder.label(label);
        }
        let client = builder.build().map_err(|error| match given.is_given("endpoints") {
            true => Failure::from(error).of_command_line(),
            false => Failure::from(error),
        })?;
        let out = Output::new(given.of("json").get_flag("json"));
        Ok(Context { client, out, connection, leaves_session: Cell::new(false) })
    }
}

fn of_connection(mut builder: ClientBuilder, connection: &Connection) -> Result<ClientBuilder, Failure> {
    if let Some(ca) = &connection.ca {
        builder = builder.ca(ca);
    }
    builder = match (&connection.certificate, &connection.key) {
        (Some(certificate), Some(key)) => builder.certificate(certificate, key),
        (None, None) => builder,
        _ => return Err(Failure::refused("certificate and key belong together: name both files")),
    };
    match &connection.user {
        Some(User { name, password }) => Ok(builder.user(name, password)),
        None => Ok(builder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(path(text), expected, "{text:?}");
    }

    #[test]
    fn the_first_slash_may_be_written_or_not() {
        check("orders", "/orders");
        check("/orders", "/orders");
        check("a/b/", "/a/b/");
        check("/", "/");
        check("", "/");
    }
}

//! Addresses of the nodes and identity of the client, from options, variables and the client's
//! configuration file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::failure::Failure;
use super::options::Given;

/// HTTP addresses of the nodes of `zlock dev`.
const DEFAULT_ENDPOINTS: [&str; 3] = ["localhost:7001", "localhost:7002", "localhost:7003"];

/// Addresses of the nodes, TLS files and identity with which a client connects.
pub(crate) struct Connection {
    pub(crate) endpoints: Vec<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) user: Option<User>,
    /// The named configuration file of the client, if the connection uses it.
    pub(crate) config: Option<PathBuf>,
}

/// Name and password with which a client authenticates itself.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
}

/// Content of a client's configuration file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    endpoints: Vec<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    user_file: Option<PathBuf>,
}

impl Connection {
    /// Reads each value from its option, else its environment variable, else the client's
    /// configuration file, else the default.
    pub(crate) fn read(given: &Given) -> Result<Connection, Failure> {
        if let Some(socket) = admin_socket(given)? {
            return Connection::by_socket(given, &socket);
        }
        let endpoints = given.of("endpoints").get_many::<String>("endpoints");
        let path = |name: &str| given.of(name).get_one::<PathBuf>(name).cloned();
        let file = match (&endpoints, path("client-config")) {
            (_, Some(named)) => read_file(&named)?,
            // The default file has settings for its own endpoints only.
            (Some(_), None) => File::default(),
            (None, None) => match usual_file().filter(|file| file.exists()) {
                Some(file) => read_file(&file)?,
                None => File { endpoints: DEFAULT_ENDPOINTS.map(String::from).to_vec(), ..File::default() },
            },
        };
        let endpoints = endpoints.map(|texts| texts.filter(|text| !text.trim().is_empty()).cloned().collect());
        let user = match named_user(given)? {
            None => of_either(file.user, file.user_file, "user", "user_file")?,
            user => user,
        };
        Ok(Connection {
            endpoints: endpoints.unwrap_or(file.endpoints),
            ca: path("ca").or(file.ca),
            certificate: path("certificate").or(file.certificate),
            key: path("key").or(file.key),
            user,
            config: path("client-config"),
        })
    }

    /// Returns the connection to the admin socket of a node on this machine. TLS settings are taken
    /// only from the command line: those of environment variables and of the default configuration
    /// file are meant for endpoints.
    fn by_socket(given: &Given, socket: &Path) -> Result<Connection, Failure> {
        let path =
            |name: &str| given.is_given(name).then(|| given.of(name).get_one::<PathBuf>(name).cloned()).flatten();
        // A relative path is resolved in the working directory of this program.
        let whole = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        let text = whole.to_str().ok_or_else(|| Failure::refused("the path of the admin socket is not UTF-8"))?;
        let (ca, certificate, key) = (path("ca"), path("certificate"), path("key"));
        let (endpoints, user) = (vec![format!("unix:{text}")], named_user(given)?);
        Ok(Connection { endpoints, ca, certificate, key, user, config: None })
    }
}

/// Returns the path of the admin socket; `None` if endpoints are to be used. `--admin-socket` gives
/// the path. Its environment variable gives it only if `--endpoints` is not given.
///
/// # Errors
/// A usage error when both options are given.
fn admin_socket(given: &Given) -> Result<Option<PathBuf>, Failure> {
    let socket = given.of("admin-socket").get_one::<PathBuf>("admin-socket").cloned();
    match (given.is_given("admin-socket"), given.is_given("endpoints")) {
        (true, true) => Err(Failure::usage("--admin-socket and --endpoints both name a node: give one of them")),
        (false, true) => Ok(None),
        _ => Ok(socket.filter(|socket| *socket != Path::new(""))),
    }
}

/// Reads the user's name and password from the options, else from the environment variables. `None`
/// when neither gives a user.
fn named_user(given: &Given) -> Result<Option<User>, Failure> {
    let text = given.of("user").get_one::<String>("user").filter(|text| !text.is_empty()).cloned();
    let file = given.of("user-file").get_one::<PathBuf>("user-file").filter(|file| *file != Path::new("")).cloned();
    match (given.is_given("user"), given.is_given("user-file")) {
        (true, true) => Err(Failure::usage("--user and --user-file both name the user: give one of them")),
        (true, false) => of_either(text, None, "--user", "--user-file").map_err(Failure::of_command_line),
        (false, true) => of_either(None, file, "--user", "--user-file"),
        (false, false) => of_either(text, file, "ZLOCK_USER", "ZLOCK_USER_FILE"),
    }
}

fn of_either(
    text: Option<String>,
    file: Option<PathBuf>,
    text_name: &str,
    file_name: &str,
) -> Result<Option<User>, Failure> {
    match (text, file) {
        (Some(_), Some(_)) => {
            Err(Failure::refused(format!("{text_name} and {file_name} both name the user: set one of them")))
        }
        (Some(text), None) => parse_user(&text, text_name).map(Some),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| Failure::refused(format!("{file_name}: cannot read {}: {error}", file.display())))?;
            parse_user(text.lines().next().unwrap_or_default(), &format!("the first line of {}", file.display()))
                .map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Parses `NAME:PASSWORD`. The failure names the `place` where the text was given. It does not
/// contain the text, which has a password.
fn parse_user(text: &str, place: &str) -> Result<User, Failure> {
    let parts = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let (name, password) = parts.ok_or_else(|| Failure::refused(format!("{place}: write NAME:PASSWORD")))?;
    Ok(User { name: name.to_owned(), password: password.to_owned() })
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

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        assert!(toml::from_str::<File>("endpoints = [\"a:1\"]\nuser = \"a:b\"").is_ok());
        assert!(toml::from_str::<File>("endpoint = [\"a:1\"]").is_err());
    }

    #[test]
    fn a_user_is_a_name_and_a_password_that_is_not_repeated() {
        let user = parse_user("alice:a:b", "--user").ok().unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("alice", "a:b"));
        for bad in ["hidden", ":hidden", ""] {
            let failure = format!("{:?}", parse_user(bad, "--user").err().unwrap());
            assert!(failure.contains("NAME:PASSWORD") && !failure.contains("hidden"), "{failure}");
        }
    }
}

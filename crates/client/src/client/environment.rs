//! Settings of a client from the environment variables that the command line reads, too.

use std::env::VarError;
use std::path::PathBuf;

use crate::client::builder::{ClientBuilder, bad};
use crate::{Client, Error};

impl ClientBuilder {
    /// Returns a builder with the settings in the environment:
    ///
    /// | variable | is |
    /// |---|---|
    /// | `ZLOCK_ENDPOINTS` | the nodes: `host:port,...`, each with `https://` before it for TLS |
    /// | `ZLOCK_CA` | as [`ClientBuilder::ca`] |
    /// | `ZLOCK_CERTIFICATE`, `ZLOCK_KEY` | as [`ClientBuilder::certificate`] |
    /// | `ZLOCK_USER` | `name:password`, as [`ClientBuilder::user`] |
    /// | `ZLOCK_USER_FILE` | a file that has `name:password` in its first line |
    ///
    /// An empty variable counts as one that is not set. Settings that are made later with the
    /// builder's methods replace the settings from the environment.
    ///
    /// # Errors
    /// `Refused` when `ZLOCK_ENDPOINTS` is missing, only one of `ZLOCK_CERTIFICATE` and `ZLOCK_KEY`
    /// is set, both `ZLOCK_USER` and `ZLOCK_USER_FILE` are set, a user has no colon, the file is
    /// unreadable, or a variable is not UTF-8.
    pub fn from_env() -> Result<ClientBuilder, Error> {
        from_variables(|name| std::env::var(name))
    }
}

/// Names of the environment variables that are read.
const NAMES: [&str; 6] =
    ["ZLOCK_ENDPOINTS", "ZLOCK_CA", "ZLOCK_CERTIFICATE", "ZLOCK_KEY", "ZLOCK_USER", "ZLOCK_USER_FILE"];

fn from_variables(variable: impl Fn(&str) -> Result<String, VarError>) -> Result<ClientBuilder, Error> {
    // A malformed variable is refused instead of ignored: without its `ZLOCK_CA`, for example, the
    // client would trust other authorities than intended.
    if let Some(name) = NAMES.into_iter().find(|name| matches!(variable(name), Err(VarError::NotUnicode(_)))) {
        return Err(bad(format!("{name} is not UTF-8")));
    }
    let get = |name: &str| variable(name).ok().filter(|value| !value.trim().is_empty());
    let endpoints = get("ZLOCK_ENDPOINTS").ok_or_else(|| {
        bad("ZLOCK_ENDPOINTS is not set: name the nodes in it, as in localhost:7001,localhost:7002,localhost:7003")
    })?;
    let endpoints = endpoints.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut builder = Client::builder(endpoints.collect::<Vec<String>>());
    if let Some(ca) = get("ZLOCK_CA") {
        builder = builder.ca(ca);
    }
    builder = match (get("ZLOCK_CERTIFICATE"), get("ZLOCK_KEY")) {
        (Some(certificate), Some(key)) => builder.certificate(certificate, key),
        (None, None) => builder,
        _ => return Err(bad("ZLOCK_CERTIFICATE and ZLOCK_KEY belong together: set both")),
    };
    match (get("ZLOCK_USER"), get("ZLOCK_USER_FILE")) {
        (Some(_), Some(_)) => Err(bad("ZLOCK_USER and ZLOCK_USER_FILE both name the user: set one of them")),
        (Some(user), None) => with_user(builder, &user, "ZLOCK_USER"),
        (None, Some(file)) => {
            let file = PathBuf::from(file);
            let text = std::fs::read_to_string(&file)
                .map_err(|error| bad(format!("ZLOCK_USER_FILE: cannot read {}: {error}", file.display())))?;
            with_user(builder, text.lines().next().unwrap_or_default(), "the first line of ZLOCK_USER_FILE")
        }
        (None, None) => Ok(builder),
    }
}

/// Sets the user from `name:password`. The error names the source `place` (a variable or file), and
/// never contains the text, because it has a password.
fn with_user(builder: ClientBuilder, text: &str, place: &str) -> Result<ClientBuilder, Error> {
    let (name, password) = text.split_once(':').ok_or_else(|| bad(format!("{place}: write name:password")))?;
    Ok(builder.user(name, password))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<String, String> {
        let value = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        from_variables(|name| value(name).ok_or(VarError::NotPresent))
            .map(|builder| format!("{builder:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_says_where_and_who() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("user");
        std::fs::write(&file, "carol:hidden\nmore\n").unwrap();
        let nodes = ("ZLOCK_ENDPOINTS", "https://a:1, https://b:2,");
        let all = [nodes, ("ZLOCK_CA", "ca.pem"), ("ZLOCK_CERTIFICATE", "c.pem"), ("ZLOCK_KEY", "k.pem")];
        let said = read(&[&all[..], &[("ZLOCK_USER", "alice:hid:den")]].concat()).unwrap();
        for part in ["[\"https://a:1\", \"https://b:2\"]", "Some(ca.pem)", "Some((c.pem, k.pem))", "Some(\"alice\")"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let file = ("ZLOCK_USER_FILE", file.to_str().unwrap());
        assert!(read(&[nodes, file]).unwrap().contains("Some(\"carol\")"));
        assert!(read(&[nodes, file, ("ZLOCK_USER", "")]).is_ok(), "what is empty is not set");
        for (variables, part) in [
            (&[][..], "ZLOCK_ENDPOINTS is not set"),
            (&[nodes, ("ZLOCK_KEY", "k.pem")], "belong together"),
            (&[nodes, file, ("ZLOCK_USER", "a:b")], "set one of them"),
            (&[nodes, ("ZLOCK_USER", "hidden")], "write name:password"),
            (&[nodes, ("ZLOCK_USER_FILE", "/nowhere/user")], "cannot read /nowhere/user"),
        ] {
            let refused = read(variables).unwrap_err();
            assert!(refused.contains(part) && !refused.contains("hidden"), "{refused}");
        }
    }

    #[test]
    fn a_variable_that_is_not_unicode_is_named_and_not_passed_over() {
        for bad in NAMES {
            let get = |name: &str| match name {
                _ if name == bad => Err(VarError::NotUnicode(OsStr::from_bytes(b"hid\xffden").to_owned())),
                "ZLOCK_ENDPOINTS" => Ok("a:1".to_owned()),
                _ => Err(VarError::NotPresent),
            };
            let refused = from_variables(get).unwrap_err().to_string();
            assert!(refused.contains(&format!("{bad} is not UTF-8")) && !refused.contains("hid"), "{refused}");
        }
    }
}

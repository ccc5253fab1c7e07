//! `zlock acl`: shows and sets the ACL of a znode.

use clap::{Arg, ArgMatches, Command};
use zlock_client::AclEntry;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{group, path_arg};
use super::seen::plain;

pub(crate) fn command() -> Command {
    let get = Command::new("get").about("Prints the entries of a znode's ACL, one in each line");
    let set = Command::new("set").about("Replaces a znode's ACL").long_about(
        "Replaces a znode's ACL. Each entry is SCHEME:ID:PERMS, with the letters cdrwa for create, delete, read, \
         write and admin: world:anyone:r, digest:alice:HASH:cdrwa, auth::cdrwa (all identities that this command \
         proves), x509:CN=worker:r.",
    );
    group("acl", "Shows or sets the permissions of a znode (its ACL)")
        .subcommand(get.arg(path_arg("The znode")))
        .subcommand(set.arg(path_arg("The znode")).arg(entries()))
}

fn entries() -> Arg {
    let arg = Arg::new("entries").value_name("SCHEME:ID:PERMS").required(true).num_args(1..);
    arg.value_parser(entry).help("An entry; the list is the whole ACL")
}

/// Parses an ACL entry `SCHEME:ID:PERMISSIONS`. Only the id may contain colons.
fn entry(text: &str) -> Result<AclEntry, String> {
    let parts = text.split_once(':').and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
    match parts {
        Some((scheme, (id, perms))) if !scheme.is_empty() => {
            Ok(AclEntry { perms: perms.into(), scheme: scheme.into(), id: id.into() })
        }
        _ => Err("write SCHEME:ID:PERMS, for example world:anyone:r".to_owned()),
    }
}

pub(crate) async fn get(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let found = context.client.acl(&path_of(matches)).await?;
    let line = |entry: &AclEntry| plain(&format!("{}:{}:{}", entry.scheme, entry.id, entry.perms));
    context.out.answer(&found, || found.acl.iter().try_for_each(|entry| context.out.line(&line(entry))))
}

pub(crate) async fn set(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let entries: Vec<AclEntry> = matches.get_many("entries").expect("they are required").cloned().collect();
    let done = context.client.set_acl(&path_of(matches), &entries).await?;
    context.out.answer(&done, || Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_scheme_an_id_and_letters() {
        let parts = |text: &str| entry(text).map(|entry| format!("{} {} {}", entry.scheme, entry.id, entry.perms));
        assert_eq!(parts("world:anyone:r").unwrap(), "world anyone r");
        assert_eq!(parts("digest:alice:aGFzaA==:cdrwa").unwrap(), "digest alice:aGFzaA== cdrwa");
        assert_eq!(parts("auth::cdrwa").unwrap(), "auth  cdrwa");
        for bad in ["", "world", "world:anyone", "::r"] {
            assert!(entry(bad).is_err(), "{bad:?}");
        }
    }
}

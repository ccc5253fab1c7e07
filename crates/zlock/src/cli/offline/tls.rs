//! `zlock tls`: creates a certificate authority, and certificates for members and clients. The
//! command sends no request to a node.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{ArgAction, ArgMatches, Command};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose as Purpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use replica::{Member, node_uri};

use crate::cli::failure::Failure;
use crate::cli::new_file::{NewFile, failed};
use crate::cli::options::{file, flag, group, number, option};
use crate::cli::output::Output;
use crate::config::value::members;

/// Days for which the certificate of an authority is valid.
const AUTHORITY_DAYS: u64 = 3_650;
/// Beginning of an authority's name. The name of the authority's cluster follows.
const AUTHORITY_OF: &str = "zlock authority of ";
const DAY: Duration = Duration::from_secs(86_400);
/// Time before the making of a certificate at which its validity begins, because clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3_600);

pub(crate) fn command() -> Command {
    let init = Command::new("init")
        .about("Makes an authority, and certificates for members and clients; with an authority in DIR, new certificates of it")
        .arg(file("out", "DIR", "Directory for the files, made if it is missing").required(true))
        .arg(option("members", members::NAME, "Members of the cluster, as in the key node.members of their configuration"))
        .arg(option("client", "NAME", "Name of a client; may be given several times").action(ArgAction::Append))
        .arg(option("cluster-id", "NAME", "Name of the cluster, as in the key node.cluster_id").default_value("zlock"))
        .arg(
            option("days", "DAYS", "Days for which the certificates are valid")
                .default_value("365")
                .value_parser(number::<u64>(1)),
        )
        .arg(flag("json", "Prints JSON"));
    group("tls", "Makes certificates for TLS of members and clients").subcommand(init)
}

pub(crate) fn run(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("init", matches)) => init(out, matches),
        _ => Err(Failure::usage("tls what? init")),
    }
}

fn init(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let text = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let days = *matches.get_one::<u64>("days").expect("it has a default");
    if days > AUTHORITY_DAYS {
        return Err(Failure::usage(format!("--days: at most {AUTHORITY_DAYS}, as long as the authority is valid")));
    }
    let members = members::parse(text("members")).map_err(|why| Failure::usage(format!("--members: {why}")))?;
    let clients: Vec<&String> = matches.get_many::<String>("client").into_iter().flatten().collect();
    let is_file_name = |name: &&&String| name.starts_with('.') || name.contains(['/', '\0']) || name.is_empty();
    if let Some(name) = clients.iter().find(is_file_name) {
        return Err(Failure::usage(format!("--client: `{name}` cannot be part of a file's name")));
    }
    let directory = matches.get_one::<PathBuf>("out").expect("it is required");
    let written = make(directory, text("cluster-id"), &members, &clients, days)?;
    let paths: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    out.answer(&serde_json::json!({ "files": paths }), || paths.iter().try_for_each(|path| out.line(path)))
}

/// Makes new certificates for members and clients, and an authority if the directory has none.
/// Returns the paths of the written files.
pub(crate) fn make(
    directory: &Path,
    cluster_id: &str,
    members: &[Member],
    clients: &[&String],
    days: u64,
) -> Result<Vec<PathBuf>, Failure> {
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut files = Files { directory, written: Vec::new() };
    let authority = authority(&mut files, cluster_id)?;
    for member in members {
        files.put(&format!("node-{}", member.id), &authority, of_member(cluster_id, member)?, days)?;
    }
    for name in clients {
        files.put(&format!("client-{name}"), &authority, of_client(name), days)?;
    }
    Ok(files.written)
}

/// Files that this command writes.
struct Files<'a> {
    directory: &'a Path,
    written: Vec<PathBuf>,
}

impl Files<'_> {
    /// Writes a certificate and its key, which only this user can read. Both files are complete on
    /// disk before the first gets its name by `publish`, so that a full disk replaces none.
    fn write(
        &mut self,
        name: &str,
        (certificate, key): (&Certificate, &KeyPair),
        publish: impl Fn(NewFile, &Path) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let pair = [(format!("{name}.pem"), certificate.pem()), (format!("{name}-key.pem"), key.serialize_pem())];
        let mut complete = Vec::new();
        for (name, text) in pair {
            let path = self.directory.join(name);
            let mut file = NewFile::begin(&path)?;
            let written = file.write_all(text.as_bytes()).and_then(|()| file.file().sync_all());
            written.map_err(|error| failed(&path, error))?;
            complete.push((file, path));
        }
        for (file, path) in complete {
            publish(file, &path)?;
            self.written.push(path);
        }
        Ok(())
    }

    /// Makes a key, and a certificate that the authority signs. Writes both to files.
    fn put(
        &mut self,
        name: &str,
        authority: &Issuer<'_, KeyPair>,
        mut params: CertificateParams,
        days: u64,
    ) -> Result<(), Failure> {
        let now = SystemTime::now();
        params.not_before = (now - CLOCKS_DIFFER).into();
        params.not_after = (now + DAY * u32::try_from(days).unwrap_or(u32::MAX)).into();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(impossible)?;
        let certificate = params.signed_by(&key, authority).map_err(impossible)?;
        self.write(name, (&certificate, &key), NewFile::finish)
    }
}

/// Reads the authority from the directory, or makes a new one if the directory has none.
fn authority(files: &mut Files<'_>, cluster_id: &str) -> Result<Issuer<'static, KeyPair>, Failure> {
    let (certificate_path, key_path) = (files.directory.join("ca.pem"), files.directory.join("ca-key.pem"));
    let mut params = CertificateParams::default();
    params.distinguished_name = name(&format!("{AUTHORITY_OF}{cluster_id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    if certificate_path.exists() || key_path.exists() {
        let subject = accept::subject_in(&certificate_path).map_err(|error| Failure::refused(error.to_string()))?;
        if subject != format!("CN={AUTHORITY_OF}{cluster_id},O=zlock") {
            let why = format!(
                "is the certificate of `{subject}`, and not of an authority that this command made for the cluster {cluster_id}"
            );
            return Err(failed(&certificate_path, why));
        }
        let text = fs::read_to_string(&key_path).map_err(|error| failed(&key_path, error))?;
        let key = KeyPair::from_pem(&text).map_err(|error| failed(&key_path, error))?;
        return Ok(Issuer::new(params, key));
    }
    let now = SystemTime::now();
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + DAY * AUTHORITY_DAYS as u32).into();
    let key = KeyPair::generate().map_err(impossible)?;
    let certificate = params.self_signed(&key).map_err(impossible)?;
    let is_there = "is there already: another run has made an authority meanwhile";
    files.write("ca", (&certificate, &key), |file, path| file.finish_new(path, is_there))?;
    Ok(Issuer::new(params, key))
}

/// Describes the certificate of a member. Its names are the member's URI for the peer port, and the
/// hosts in the member's addresses and `localhost` for clients.
fn of_member(cluster_id: &str, member: &Member) -> Result<CertificateParams, Failure> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for addr in [&member.http_addr, &member.peer_addr] {
        let host = addr.rsplit_once(':').map_or(addr.as_str(), |(host, _)| host).trim_matches(['[', ']']).to_owned();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let wrong = |error| Failure::usage(format!("member {}: {error}", member.id));
    let mut params = CertificateParams::new(hosts).map_err(wrong)?;
    let uri = node_uri(cluster_id, member.id);
    params.subject_alt_names.push(SanType::URI(uri.try_into().map_err(wrong)?));
    params.distinguished_name = name(&format!("node {} of {cluster_id}", member.id));
    params.extended_key_usages = vec![Purpose::ServerAuth, Purpose::ClientAuth];
    Ok(params)
}

fn of_client(client: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(client);
    params.extended_key_usages = vec![Purpose::ClientAuth];
    params
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "zlock");
    name.push(DnType::CommonName, common);
    name
}

/// Makes the failure of a step that fails only when the system gives no random numbers.
fn impossible(error: rcgen::Error) -> Failure {
    Failure::refused(format!("no certificate can be made: {error}"))
}

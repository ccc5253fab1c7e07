//! Builder of a client, with all settings of the client.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::{Millis, OpenSession, ProblemType};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;

use crate::Error;
use crate::client::Client;
use crate::client::connection::{Approach, UNIX};
use crate::client::own_details::own_details;
use crate::client::secure::{Connector, Pem, Trust};
use crate::client::transport::Timeouts;

const POLL_MIN: Duration = Duration::from_millis(1);
/// Upper bound of `poll_time`. A node refuses more than 10 min.
const POLL_MAX: Duration = Duration::from_mins(9);

impl Client {
    /// Returns a builder for a client of these nodes, each `host:port`. One node is enough, but a
    /// client of all nodes goes on when one of them fails. `unix:/path` is the admin socket of a
    /// node on this machine, which makes the client an operator.
    pub fn builder<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> ClientBuilder {
        ClientBuilder::new(endpoints.into_iter().map(Into::into).collect())
    }

    /// Returns a client with default settings and an open session.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`], and when no node opens a session in time. If nothing listens at
    /// any endpoint, or all of them refuse TLS, `Unavailable` is returned within a second. It names
    /// each endpoint with its error.
    pub async fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Client, Error> {
        let client = Client::builder(endpoints).build()?;
        client.session().await?;
        Ok(client)
    }

    /// Connects with the endpoints and the identity from the environment: see
    /// [`ClientBuilder::from_env`].
    ///
    /// # Errors
    /// As [`ClientBuilder::from_env`] and [`Client::connect`].
    pub async fn from_env() -> Result<Client, Error> {
        let client = ClientBuilder::from_env()?.build()?;
        client.session().await?;
        Ok(client)
    }
}

/// Builder of a [`Client`]. Made by [`Client::builder`] and [`ClientBuilder::from_env`].
#[derive(Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    session: OpenSession,
    timeouts: Timeouts,
    trust: Trust,
    user: Option<User>,
}

/// Name and password of the client, for ACLs of the scheme `digest`.
#[derive(Clone)]
struct User {
    name: String,
    password: String,
}

impl ClientBuilder {
    pub(crate) fn new(endpoints: Vec<String>) -> ClientBuilder {
        ClientBuilder {
            endpoints,
            session: OpenSession { client: Some(own_details()), ..OpenSession::default() },
            trust: Trust::default(),
            user: None,
            timeouts: Timeouts {
                connect: Duration::from_secs(1),
                attempt: Duration::from_secs(2),
                operation: Duration::from_secs(15),
                poll: Duration::from_secs(10),
            },
        }
    }

    /// Sets the time for which the cluster keeps the session without a heartbeat: 30 s by default.
    /// The cluster grants 2 s to 5 min unless it is configured otherwise, and moves other values to
    /// the nearest bound. [`Client::session_timeout`] returns the granted value.
    ///
    /// The locks of a crashed client are free after this time. A client without a connection for
    /// longer loses its locks.
    pub fn session_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.session.timeout = Some(Millis::from(timeout));
        self
    }

    /// Sets the session's label: free text for people who look at the list of sessions.
    pub fn label(mut self, label: impl Into<String>) -> ClientBuilder {
        self.session.label = label.into();
        self
    }

    /// Sets the name of the program, for people who look for the holder of a lock. By default it is
    /// the name by which the program was started. The name of the machine and the number of the
    /// process are sent with it. Nodes refuse control characters and more than 256 bytes.
    pub fn program(mut self, program: impl Into<String>) -> ClientBuilder {
        self.session.client.get_or_insert_default().program = program.into();
        self
    }

    /// Sets the time that a call may take with all its tries; 15 s by default. Does not limit the
    /// wait for a lock or an event.
    pub fn operation_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.operation = timeout;
        self
    }

    /// Sets the timeout of one try, after which another node is asked; 2 s by default.
    pub fn attempt_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.attempt = timeout;
        self
    }

    /// Sets the timeout for opening a connection; 1 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.connect = timeout;
        self
    }

    /// Sets the length of one long-poll, after which the request is repeated, perhaps to another
    /// node; 10 s by default.
    ///
    /// A waiting client notices a hung node after this time. A long-poll for the grant of a lock
    /// ends after a third of the session's timeout, if that is shorter. The bounds are 1 ms and 9
    /// min; [`ClientBuilder::build`] refuses other times.
    pub fn poll_time(mut self, time: Duration) -> ClientBuilder {
        self.timeouts.poll = time;
        self
    }

    /// Sets a PEM file with the only authorities that may have signed the nodes' certificates. Only
    /// for endpoints that begin with `https://`. A client cannot have endpoints with and without
    /// TLS. Without this setting, the authorities of the system are trusted.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> ClientBuilder {
        self.trust.ca = Some(Pem::File(file.into()));
        self
    }

    /// Sets the authorities of [`ClientBuilder::ca`] as PEM text.
    pub fn ca_pem(mut self, text: impl Into<Vec<u8>>) -> ClientBuilder {
        self.trust.ca = Some(Pem::Text(text.into()));
        self
    }

    /// Trusts the certificate authorities of the system in addition to those of
    /// [`ClientBuilder::ca`]. The system's authorities are read from the default paths of OpenSSL,
    /// which `SSL_CERT_FILE` and `SSL_CERT_DIR` can change.
    pub fn native_roots(mut self) -> ClientBuilder {
        self.trust.native_roots = true;
        self
    }

    /// Sets PEM files with a certificate and its private key. The client shows the certificate to
    /// nodes that ask for one. In ACLs the certificate's subject is the client's identity.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> ClientBuilder {
        self.trust.own = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// Sets the certificate and key of [`ClientBuilder::certificate`] as PEM texts.
    pub fn certificate_pem(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> ClientBuilder {
        self.trust.own = Some((Pem::Text(certificate.into()), Pem::Text(key.into())));
        self
    }

    /// Sets the client's identity in ACLs of the scheme `digest`. The client is a super user where
    /// the node's `admin.super_digest` has this name and password. The name and password are sent
    /// with every request (`Authorization: Basic`). Without `https://` endpoints, others can read
    /// them in the network.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> ClientBuilder {
        self.user = Some(User { name: name.into(), password: password.into() });
        self
    }

    /// Builds the client. No request is sent before the first call. The client's background work,
    /// such as heartbeats, runs on the present tokio runtime, and ends with it.
    ///
    /// # Errors
    /// `Refused` when there is no endpoint, an endpoint is not `host:port`, or the settings for
    /// TLS, the user or [`ClientBuilder::poll_time`] are invalid.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        let addrs: Vec<(bool, String)> = self.endpoints.iter().map(|text| addr(text)).collect::<Result<_, _>>()?;
        if addrs.is_empty() {
            return Err(bad("no endpoint is given: name at least one node as host:port"));
        }
        if !(POLL_MIN..=POLL_MAX).contains(&self.timeouts.poll) {
            return Err(bad(format!("poll_time: {:?} is not from {POLL_MIN:?} to {POLL_MAX:?}", self.timeouts.poll)));
        }
        let secure = addrs.iter().filter(|(secure, _)| *secure).count();
        let connector = match secure {
            0 if self.trust.is_set() => {
                return Err(bad("authorities and certificates are for endpoints that begin with https://"));
            }
            0 => None,
            some if some < addrs.len() => return Err(bad("either all endpoints begin with https:// or none does")),
            _ => Some(Connector::load(&self.trust).map_err(bad)?),
        };
        let authorization = self.user.as_ref().map(User::authorization).transpose()?;
        let approach = Approach { connector, authorization };
        let addrs = addrs.into_iter().map(|(_, addr)| addr).collect();
        Ok(Client::new(addrs, &approach, self.timeouts, self.session))
    }
}

impl User {
    fn authorization(&self) -> Result<HeaderValue, Error> {
        if self.name.is_empty() || self.name.contains(':') {
            return Err(bad("user: a name has at least one character, and no colon"));
        }
        let proof = STANDARD.encode(format!("{}:{}", self.name, self.password));
        let value = HeaderValue::try_from(format!("Basic {proof}"));
        let mut value = value.map_err(|_| bad("user: name and password are too long for a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Writes the settings without the password and without private keys.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.name);
        let mut shown = f.debug_struct("ClientBuilder");
        shown.field("endpoints", &self.endpoints).field("session", &self.session).field("timeouts", &self.timeouts);
        shown.field("trust", &self.trust).field("user", &user).finish()
    }
}

/// Parses `host:port`, with or without `http://` or `https://` before it, or `unix:/path`. The bool
/// is true for `https://`.
fn addr(text: &str) -> Result<(bool, String), Error> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix(UNIX) {
        if path.starts_with('/') {
            return Ok((false, text.to_owned()));
        }
        return Err(bad(format!(
            "endpoint {text:?}: write unix: and the whole path, as in unix:/run/zlock/admin.sock"
        )));
    }
    let secure = text.strip_prefix("https://");
    let bare = secure.or_else(|| text.strip_prefix("http://")).unwrap_or(text).trim_end_matches('/');
    let parts = bare.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    // An IPv6 address needs brackets. Without them its last group looks like a port.
    let host = parts.map(|(host, _)| host).filter(|host| !host.contains(':') || host.starts_with('['));
    match host {
        Some(host) if host.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'@') => {
            Ok((secure.is_some(), bare.to_owned()))
        }
        _ => Err(bad(format!("endpoint {text:?}: write host:port, for example localhost:7001"))),
    }
}

pub(crate) fn bad(detail: impl Into<String>) -> Error {
    Error::refused_here(ProblemType::BadRequest, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = addr(text).ok();
        let secure = text.starts_with("https://");
        assert_eq!(found, expected.map(|addr| (secure, addr.to_owned())), "{text:?}");
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        check("localhost:7001", Some("localhost:7001"));
        check(" http://10.0.0.1:7001/ ", Some("10.0.0.1:7001"));
        check("[::1]:7001", Some("[::1]:7001"));
        check("unix:/run/zlock/admin.sock", Some("unix:/run/zlock/admin.sock"));
        check("unix:admin.sock", None);
        check("https://node1.example:7443", Some("node1.example:7443"));
        for bad in [
            "",
            "localhost",
            ":7001",
            "localhost:",
            "localhost:x",
            "localhost:70000",
            "::1:7001",
            "https://a",
            "a/b:1",
            "ü:1",
        ] {
            check(bad, None);
        }
    }

    #[track_caller]
    fn refused(builder: ClientBuilder, part: &str) {
        let Err(error) = builder.build() else { panic!("it can be built") };
        let error = error.to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn tls_is_for_all_endpoints_or_none() {
        let of = |endpoints: &[&str]| ClientBuilder::new(endpoints.iter().map(|one| (*one).to_owned()).collect());
        refused(of(&["https://a:1", "b:1"]).ca("ca.pem"), "either all endpoints");
        refused(of(&["a:1"]).ca("ca.pem"), "are for endpoints that begin with https://");
        refused(of(&["a:1"]).certificate("c.pem", "k.pem"), "are for endpoints that begin with https://");
        refused(of(&["a:1"]).native_roots(), "are for endpoints that begin with https://");
        refused(of(&["https://a:1"]).ca("/nowhere/ca.pem"), "tls-file-unreadable: cannot read /nowhere/ca.pem");
        refused(of(&["https://a:1"]).ca_pem("no PEM"), "tls-bad-certificate: the PEM text: there is no certificate");
    }

    #[tokio::test]
    async fn a_poll_time_out_of_bounds_is_refused_and_not_cut() {
        let of = |time: Duration| ClientBuilder::new(vec!["a:1".into()]).poll_time(time);
        refused(of(Duration::ZERO), "poll_time: 0ns is not from 1ms to 540s");
        refused(of(Duration::from_secs(541)), "poll_time: 541s is not from 1ms to 540s");
        assert!(of(Duration::from_secs(540)).build().is_ok() && of(Duration::from_millis(1)).build().is_ok());
        // A name that nodes refuse is sent as it is, and not shortened.
        let named = of(POLL_MIN).program("x".repeat(300));
        assert_eq!(named.session.client.unwrap().program.len(), 300);
    }

    #[test]
    fn a_user_has_a_name() {
        let of = |name: &str| ClientBuilder::new(vec!["a:1".into()]).user(name, "x:y");
        refused(of(""), "user: a name has at least one character");
        refused(of("a:b"), "and no colon");
        let user = User { name: "Aladdin".into(), password: "open sesame".into() };
        // The example of RFC 7617.
        assert_eq!(user.authorization().unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}

//! What a client can be told before it is built.

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
/// A node refuses more than 10 min.
const POLL_MAX: Duration = Duration::from_mins(9);

impl Client {
    /// A client of these nodes, each `host:port`. One is enough to work; all of them are needed to
    /// outlive any. `unix:/path` is the admin socket of a node on this machine: by it the client is
    /// an operator.
    pub fn builder<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> ClientBuilder {
        ClientBuilder::new(endpoints.into_iter().map(Into::into).collect())
    }

    /// A client with all settings as they come, whose session is open.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`], and when no node opens a session in time. `Unavailable` comes
    /// within a second when nothing listens at any endpoint, or TLS is refused at all of them, and
    /// names each with what happened there.
    pub async fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Client, Error> {
        let client = Client::builder(endpoints).build()?;
        client.session().await?;
        Ok(client)
    }

    /// As [`Client::connect`], to the nodes and as the identity that the environment names: see
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

/// Builds a [`Client`]. Made by [`Client::builder`] and [`ClientBuilder::from_env`].
#[derive(Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    session: OpenSession,
    timeouts: Timeouts,
    trust: Trust,
    user: Option<User>,
}

/// Who the client says that it is.
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

    /// How long the cluster keeps the session without a heartbeat: 30 s when not given. The cluster
    /// grants 2 s to 5 min unless it is set otherwise, and moves what is beyond to the nearest:
    /// [`Client::session_timeout`] says what was granted.
    ///
    /// What a client that died held is free after this time; a client that is cut off for longer
    /// loses what it holds.
    pub fn session_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.session.timeout_ms = Some(Millis::from(timeout).0);
        self
    }

    /// Free text for people who look at the list of sessions.
    pub fn label(mut self, label: impl Into<String>) -> ClientBuilder {
        self.session.label = label.into();
        self
    }

    /// The name of the program, for people who look at who holds a lock; the name that it was
    /// started by when not given. The names of the machine and of the process go with it. Nodes
    /// refuse control characters and more than 256 bytes.
    pub fn program(mut self, program: impl Into<String>) -> ClientBuilder {
        self.session.client.get_or_insert_default().program = program.into();
        self
    }

    /// How long a call may take with all its tries; 15 s when not given. Waiting for a lock or an
    /// event has its own time.
    pub fn operation_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.operation = timeout;
        self
    }

    /// How long one try may take before another node is asked; 2 s when not given.
    pub fn attempt_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.attempt = timeout;
        self
    }

    /// How long a connection may take; 1 s when not given.
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeouts.connect = timeout;
        self
    }

    /// How long one long-poll lasts before it is asked again, maybe of another node; 10 s when not
    /// given.
    ///
    /// A node that hangs is noticed after this time by those who wait at it. Waits for a lock are
    /// asked again after a third of the session's timeout where that is sooner. From 1 ms to 9 min;
    /// [`ClientBuilder::build`] refuses other times.
    pub fn poll_time(mut self, time: Duration) -> ClientBuilder {
        self.timeouts.poll = time;
        self
    }

    /// A PEM file with the authorities that may have signed the nodes' certificates, and no others.
    /// For endpoints that begin with `https://`, which are all of them or none. Without it, the
    /// authorities that this system trusts count.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> ClientBuilder {
        self.trust.ca = Some(Pem::File(file.into()));
        self
    }

    /// The same as PEM text.
    pub fn ca_pem(mut self, text: impl Into<Vec<u8>>) -> ClientBuilder {
        self.trust.ca = Some(Pem::Text(text.into()));
        self
    }

    /// The authorities that this system trusts, beside those of [`ClientBuilder::ca`]. They are
    /// found where OpenSSL finds them, `SSL_CERT_FILE` and `SSL_CERT_DIR` included.
    pub fn native_roots(mut self) -> ClientBuilder {
        self.trust.native_roots = true;
        self
    }

    /// PEM files with a certificate and its private key, to show to nodes that ask: its subject is
    /// who the client is in ACLs.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> ClientBuilder {
        self.trust.own = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// The same as PEM texts.
    pub fn certificate_pem(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> ClientBuilder {
        self.trust.own = Some((Pem::Text(certificate.into()), Pem::Text(key.into())));
        self
    }

    /// Who the client is in ACLs of the scheme `digest`, and a super user where the node's
    /// `super_digest` is of this name and password. They go with every request (`Authorization:
    /// Basic`), readable on the way unless the endpoints are https.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> ClientBuilder {
        self.user = Some(User { name: name.into(), password: password.into() });
        self
    }

    /// Builds the client. Nothing is sent before the first call.
    ///
    /// # Errors
    /// `Refused` when there is no endpoint, or one that is not `host:port`, or what was said about
    /// TLS, the user or the time of a poll cannot be used.
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

/// Without the password, and without keys.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.name);
        let mut shown = f.debug_struct("ClientBuilder");
        shown.field("endpoints", &self.endpoints).field("session", &self.session).field("timeouts", &self.timeouts);
        shown.field("trust", &self.trust).field("user", &user).finish()
    }
}

/// `host:port`, with or without `http://` or `https://` before it, or `unix:/path`; whether it is
/// the one with TLS.
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
    // An IPv6 address needs brackets, or its last group is taken for the port.
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
        // Nodes refuse a program's name that they do not take.
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

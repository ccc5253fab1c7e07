//! Protection from foreign web pages: every request is checked before any other work is done for
//! it.
//!
//! A browser sends requests on behalf of every page that is open in it, so a foreign page could use
//! a user's access to the node. Two headers reveal requests of foreign pages:
//!
//! - `Origin` is on every request of a page that writes or comes from another origin, and
//!   `Sec-Fetch-Site` on a page's other requests. A foreign origin is refused. Programs send
//!   neither header.
//! - `Host`, or the host of the request line if there is one, is the host in the page's URL. It
//!   reveals a name that an attacker has made to resolve to this node (DNS rebinding). A listener
//!   on loopback accepts the names of this machine and the listed names. Another listener accepts
//!   any name if none is listed; else the listed names, the host of the node's `http_addr`, and
//!   every address. Addresses are safe, because a foreign page cannot have the node's address as
//!   its host. With an unknown name, no `Origin` counts as the node's own.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::Version;
use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use zlock_client::api::ProblemType;

use crate::RestConfig;
use crate::http::peer::Peer;
use crate::problem::Problem;
use crate::request::paths::BEHIND_FENCE;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Name and port by which a request calls this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host<'a> {
    /// Name as written, in upper or lower case; an IPv6 address without its brackets.
    name: &'a str,
    port: Option<u16>,
}

/// Normalizes a host for [`RestConfig::http_hosts`]: an address in its shortest form and without
/// brackets, or a name in lower case and without a dot at its end. `None` for a text that is no
/// host, such as one with a port, a scheme or a pattern.
pub fn normal_host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Ok(addr) = bare.unwrap_or(text).parse::<IpAddr>() {
        // Only an IPv6 address has brackets.
        return (bare.is_none() || addr.is_ipv6()).then(|| addr.to_canonical().to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let mut labels = name.split('.');
    let is_name = labels.all(|label| !label.is_empty() && label.bytes().all(good));
    // Browsers treat a name whose last label is a number as an address, or refuse it.
    let last = name.rsplit('.').next().unwrap_or_default();
    (is_name && !last.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// Normalizes an origin for [`RestConfig::http_origins`] to the form that browsers send: scheme and
/// host in lower case, and the port unless it is the scheme's default. `None` for a text that is no
/// origin of http or https.
pub fn normal_origin(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match &*scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let Host { name, port } = Host::parse(rest)?;
    let host = normal_host(name)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(match port {
        Some(0) => return None,
        Some(port) if port != default_port => format!("{scheme}://{host}:{port}"),
        _ => format!("{scheme}://{host}"),
    })
}

/// Checks the host that a request names, and the origin of the web page that caused it, if any.
/// Returns the refusal if this node does not accept the host or the origin, else `None`.
pub(crate) fn problem(config: &RestConfig, request: &Request) -> Option<Problem> {
    let (headers, peer) = (request.headers(), request.extensions().get::<Peer>());
    let host = match host(request, peer.is_some()) {
        Ok(host) => host,
        Err(problem) => return Some(problem),
    };
    let on_loopback = peer.is_some_and(Peer::is_on_loopback);
    if let Some(host) = host
        && !host.is_local()
        && !host.is_listed(config)
        // A request on a loopback listener with another host came through a forwarder, for an
        // unknown client.
        && (on_loopback || !(config.http_hosts.is_empty() || host.addr().is_some() || host.is_own(config)))
    {
        return Some(foreign_host(host, on_loopback));
    }
    if !headers.contains_key(ORIGIN) && !headers.contains_key(SEC_FETCH_SITE) {
        return None;
    }
    // A fence check has the headers of the request that a proxy asks about, whose page belongs to
    // another service. A foreign page cannot send a fence check itself: it needs headers that
    // browsers let no foreign page set.
    if request.uri().path().starts_with(BEHIND_FENCE) {
        return None;
    }
    let scheme = peer.map_or("http", Peer::scheme);
    if is_foreign(config, headers, host, scheme) { Some(foreign_origin(headers)) } else { None }
}

/// Parses the host of a request; `None` if the request has none and needs none, as in HTTP/1.0.
fn host(request: &Request, is_connection: bool) -> Result<Option<Host<'_>>, Problem> {
    let bad = |why: &str| Err(Problem::bad("Host", why));
    let mut values = request.headers().get_all(HOST).iter();
    let Some(value) = values.next() else {
        let needed = is_connection && request.version() == Version::HTTP_11;
        return if needed { bad("it is missing") } else { Ok(None) };
    };
    if values.next().is_some() {
        return bad("given twice");
    }
    // The host of the request line replaces the header (RFC 9112, 3.2.2). Clients that use the node
    // as a proxy send it.
    let authority = request.uri().authority().map(|authority| authority.as_str());
    match value.to_str().ok().and_then(Host::parse).map(|host| authority.map_or(Some(host), Host::parse)) {
        Some(Some(host)) => Ok(Some(host)),
        _ => bad("write a name or an address, and a port"),
    }
}

/// Tells whether a web page of a foreign origin caused the request.
fn is_foreign(config: &RestConfig, headers: &HeaderMap, host: Option<Host<'_>>, scheme: &str) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (Some(origin), None) => {
            let Ok(origin) = origin.to_str() else { return true };
            let is_listed = config.http_origins.iter().any(|listed| listed.eq_ignore_ascii_case(origin));
            if is_listed {
                return false;
            }
            let own = host.is_some_and(|host| host.is_own_origin(origin, scheme, config));
            !own || !is_same_site(headers)
        }
        (Some(_), Some(_)) => true,
        // Reads by a page of the same origin, and URLs typed by the user, have no `Origin`.
        (None, _) => !is_same_site(headers),
    }
}

fn is_same_site(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none")
}

impl<'a> Host<'a> {
    fn parse(text: &'a str) -> Option<Host<'a>> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']')?;
                name.parse::<std::net::Ipv6Addr>().ok()?;
                (name, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        if name.is_empty() || !name.bytes().all(good) {
            return None;
        }
        let port = port.filter(|port| !port.is_empty()).map(str::parse).transpose().ok()?;
        // A dot at the end does not change the name.
        Some(Host { name: name.strip_suffix('.').unwrap_or(name), port })
    }

    /// Tells whether the host is a loopback address or `localhost`.
    fn is_local(self) -> bool {
        let addr = self.addr().is_some_and(|addr| addr.to_canonical().is_loopback());
        addr || self.name.eq_ignore_ascii_case("localhost")
    }

    fn addr(self) -> Option<IpAddr> {
        self.name.parse().ok()
    }

    fn is_listed(self, config: &RestConfig) -> bool {
        config.http_hosts.iter().any(|listed| self.is(listed))
    }

    /// Tells whether the name is the host of the node's `http_addr`.
    fn is_own(self, config: &RestConfig) -> bool {
        self.is(&config.own_host)
    }

    /// Tells whether the name is `host`, a text in the form that [`normal_host`] returns.
    fn is(self, host: &str) -> bool {
        match (self.addr(), host.parse::<IpAddr>()) {
            (Some(own), Ok(addr)) => own.to_canonical() == addr,
            (None, Err(_)) => self.name.eq_ignore_ascii_case(host),
            _ => false,
        }
    }

    /// Tells whether an origin is this host with the connection's scheme and port, and the host is
    /// known to be this node. An unknown name may have been made to resolve to this node after its
    /// page was loaded from another server (DNS rebinding). This cannot be done with an address.
    fn is_own_origin(self, origin: &str, scheme: &str, config: &RestConfig) -> bool {
        let Some((its_scheme, its_host)) = origin.split_once("://") else { return false };
        let Some(its_host) = Host::parse(its_host) else { return false };
        let default_port = if scheme == "https" { 443 } else { 80 };
        let port = |host: Host<'_>| host.port.unwrap_or(default_port);
        let same = its_scheme.eq_ignore_ascii_case(scheme)
            && its_host.name.eq_ignore_ascii_case(self.name)
            && port(its_host) == port(self);
        same && (self.addr().is_some() || self.is_local() || self.is_listed(config) || self.is_own(config))
    }
}

fn foreign_host(host: Host<'_>, on_loopback: bool) -> Problem {
    let whose = if on_loopback { "this machine" } else { "this node" };
    let detail = format!("Host: {} is not a name of {whose}; http.hosts lists the accepted names", host.name);
    Problem::new(ProblemType::ForeignHost, detail)
}

fn foreign_origin(headers: &HeaderMap) -> Problem {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or("another site");
    let detail = format!("a page of {origin} may not send requests; http.origins lists the accepted origins");
    Problem::new(ProblemType::ForeignOrigin, detail)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::http::peer::Known;

    fn config() -> RestConfig {
        let (http_hosts, http_origins) = (Vec::new(), vec!["https://ui.example".to_owned()]);
        RestConfig { http_hosts, http_origins, ..RestConfig::default() }
    }

    fn peer(on_loopback: bool, is_secure: bool) -> Peer {
        let addr = [127, 0, 0, 1].into();
        Peer::new(Known { addr, place: None, is_exempt: false, on_loopback, is_secure, subject: None })
    }

    fn asked(config: &RestConfig, peer: Peer, headers: &[(&str, &str)]) -> u16 {
        asked_for("/v1/sessions", config, peer, headers)
    }

    fn asked_for(target: &str, config: &RestConfig, peer: Peer, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::post(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(peer);
        problem(config, &request).map_or(200, |problem| problem.kind.status())
    }

    #[test]
    fn a_listener_on_loopback_takes_names_of_this_machine_only() {
        let mut config = config();
        let check = |config: &RestConfig, host: &str, status| {
            assert_eq!(asked(config, peer(true, false), &[("host", host)]), status, "{host}");
        };
        for own in ["localhost", "LocalHost:7001", "localhost.:7001", "127.0.0.1:7001", "127.9.9.9", "[::1]:7001"] {
            check(&config, own, 200);
        }
        for foreign in ["evil.example", "evil.example:7001", "10.0.0.1:7001", "[2001:db8::1]:7001", "localhost.evil"] {
            check(&config, foreign, 421);
        }
        for bad in ["", "a b", "[::1", "[evil]", "a:port", "a@b", "a/b"] {
            check(&config, bad, 400);
        }
        assert_eq!(asked(&config, peer(true, false), &[]), 400, "HTTP/1.1 has a Host");
        assert_eq!(asked(&config, peer(true, false), &[("host", "localhost"), ("host", "evil.example")]), 400);
        config.http_hosts = vec!["node1".into(), "2001:db8::1".into()];
        check(&config, "NODE1:7001", 200);
        check(&config, "[2001:DB8:0::1]:7001", 200);
        check(&config, "node2:7001", 421);
        config.own_host = "node2".into();
        check(&config, "node2:7001", 421);
        check(&config, "10.0.0.1:7001", 421);
    }

    #[test]
    fn another_listener_takes_every_name_until_names_are_given() {
        let mut config = config();
        assert_eq!(asked(&config, peer(false, false), &[("host", "any.example")]), 200);
        config.http_hosts = vec!["node1".into()];
        assert_eq!(asked(&config, peer(false, false), &[("host", "any.example")]), 421);
        assert_eq!(asked(&config, peer(false, false), &[("host", "node1:7001")]), 200);
        assert_eq!(asked(&config, peer(false, false), &[("host", "127.0.0.1:7001")]), 200);
    }

    #[test]
    fn the_host_of_the_request_line_counts_in_place_of_the_header() {
        let config = config();
        let asked = |target: &str, host| asked_for(target, &config, peer(true, false), &[("host", host)]);
        assert_eq!(asked("http://evil.example/v1/sessions", "localhost"), 421);
        assert_eq!(asked("http://localhost:7001/v1/sessions", "evil.example"), 200);
        assert_eq!(asked("http://user@localhost/v1/sessions", "localhost"), 400);
        assert_eq!(asked("http://localhost/v1/sessions", "a b"), 400);
        let page = [("host", "localhost:7001"), ("origin", "http://localhost:7001")];
        assert_eq!(asked_for("http://127.0.0.1:7001/v1/sessions", &config, peer(true, false), &page), 403);
        assert_eq!(asked_for("http://localhost:7001/v1/sessions", &config, peer(true, false), &page), 200);
    }

    /// A listener off loopback must accept all addresses: load balancers probe a node by its
    /// address, and other nodes give this node's `http_addr` to their clients.
    #[test]
    fn another_listener_takes_addresses_and_the_nodes_own_host_whatever_names_are_given() {
        let config = RestConfig { http_hosts: vec!["zlock.example".into()], own_host: "node1".into(), ..config() };
        for host in ["10.0.0.1:7001", "10.0.0.1", "[2001:db8::1]:7001", "node1:7001", "NODE1.", "zlock.example"] {
            assert_eq!(asked(&config, peer(false, false), &[("host", host)]), 200, "{host}");
        }
        for host in ["node2:7001", "node1.example", "10.0.0.1.example", "10.0.1", "evil.example"] {
            assert_eq!(asked(&config, peer(false, false), &[("host", host)]), 421, "{host}");
        }
        let page = |host, origin| asked(&config, peer(false, false), &[("host", host), ("origin", origin)]);
        assert_eq!(page("node1:7001", "http://node1:7001"), 200);
        assert_eq!(page("10.0.0.1:7001", "http://10.0.0.1:7001"), 200);
        assert_eq!(page("10.0.0.1:7001", "http://evil.example:7001"), 403);
    }

    #[test]
    fn hosts_and_origins_have_one_form() {
        for (text, normal) in [
            ("Node1.Example.", Some("node1.example")),
            ("node_1", Some("node_1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("[2001:DB8:0:0::1]", Some("2001:db8::1")),
            ("2001:db8:0000::1", Some("2001:db8::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("", None),
            (".", None),
            ("a..b", None),
            ("node1:7001", None),
            ("http://node1", None),
            ("node1/", None),
            ("*.example", None),
            ("[10.0.0.1]", None),
            ("[node1]", None),
            ("10.0.1", None),
            ("fe80::1%eth0", None),
            ("bücher.example", None),
        ] {
            assert_eq!(normal_host(text).as_deref(), normal, "{text}");
        }
        for (text, normal) in [
            ("HTTPS://UI.Example:443/", Some("https://ui.example")),
            ("http://ui.example:80", Some("http://ui.example")),
            ("http://ui.example:443", Some("http://ui.example:443")),
            ("https://ui.example.:8443", Some("https://ui.example:8443")),
            ("http://[2001:DB8::0:1]:8080", Some("http://[2001:db8::1]:8080")),
            ("https://ui.example/app", None),
            ("https://ui.example//", None),
            ("https://user@ui.example", None),
            ("https://ui.example?x", None),
            ("https://*.example", None),
            ("https://:443", None),
            ("https://ui.example:0", None),
            ("https://ui.example:99999", None),
            ("https://", None),
            ("ftp://ui.example", None),
            ("ui.example", None),
            ("null", None),
        ] {
            assert_eq!(normal_origin(text).as_deref(), normal, "{text}");
        }
    }

    #[test]
    fn a_foreign_page_is_refused() {
        let mut config = config();
        let check = |config: &RestConfig, host: &str, headers: &[(&str, &str)], status| {
            let headers = [&[("host", host)], headers].concat();
            assert_eq!(asked(config, peer(false, false), &headers), status, "{headers:?}");
        };
        let own = [("origin", "http://10.0.0.1:7001")];
        check(&config, "10.0.0.1:7001", &own, 200);
        check(&config, "10.0.0.1", &[("origin", "http://10.0.0.1:80")], 200);
        check(&config, "10.0.0.1:7001", &[("origin", "https://ui.example"), ("sec-fetch-site", "cross-site")], 200);
        check(&config, "10.0.0.1:7001", &[("sec-fetch-site", "none")], 200);
        check(&config, "10.0.0.1:7001", &[("sec-fetch-site", "same-origin")], 200);
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://10.0.0.1",
            "http://10.0.0.1:7002",
            "https://10.0.0.1:7001",
            "http://10.0.0.1:7001.evil.example",
            "http://ui.example",
            "https://ui.example.evil.example",
        ] {
            check(&config, "10.0.0.1:7001", &[("origin", origin)], 403);
        }
        check(&config, "10.0.0.1:7001", &[own[0], own[0]], 403);
        for site in ["cross-site", "same-site", "unheard-of"] {
            check(&config, "10.0.0.1:7001", &[("sec-fetch-site", site)], 403);
            check(&config, "10.0.0.1:7001", &[own[0], ("sec-fetch-site", site)], 403);
        }
        // An unlisted name may come from DNS rebinding, so it is foreign.
        let rebound = [("origin", "http://evil.example:7001")];
        check(&config, "evil.example:7001", &rebound, 403);
        config.http_hosts = vec!["evil.example".into()];
        check(&config, "evil.example:7001", &rebound, 200);
    }

    #[test]
    fn with_tls_an_own_page_came_with_tls() {
        let headers = |origin| [("host", "10.0.0.1"), ("origin", origin)];
        assert_eq!(asked(&config(), peer(false, true), &headers("https://10.0.0.1")), 200);
        assert_eq!(asked(&config(), peer(false, true), &headers("http://10.0.0.1")), 403);
    }
}

//! Minimal HTTP/1.1 client of zlock: one request at a time, answers with a `content-length`.

use std::io::Write as _;

use zlock_client::api::headers;

use super::link::Link;
use crate::error::Error;

/// A client of zlock's HTTP server.
pub(crate) struct Rest {
    link: Link,
    host: String,
    session: Option<String>,
    /// The body of the last answer.
    body: Vec<u8>,
    keys: u64,
}

impl Rest {
    pub(crate) async fn open(addr: &str) -> Result<Rest, Error> {
        Ok(Rest::over(Link::open(addr).await?, addr))
    }

    /// Returns a client on an open connection.
    pub(crate) fn over(link: Link, host: &str) -> Rest {
        Rest { link, host: host.to_owned(), session: None, body: Vec::new(), keys: 0 }
    }

    /// Sends one request. Returns the status of the answer, whose body is then in `self.body`.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &[u8],
    ) -> Result<u16, Error> {
        self.send(method, path, key, body).await?;
        self.answer().await
    }

    /// Sends a request that may be incomplete. `rest` has the headers after `host`, the blank line,
    /// and as much of the body as is to be sent.
    pub(crate) async fn begin(&mut self, method: &str, path: &str, rest: &str) -> Result<(), Error> {
        self.begin_head(method, path)?;
        self.link.out.extend_from_slice(rest.as_bytes());
        self.link.flush().await
    }

    fn begin_head(&mut self, method: &str, path: &str) -> Result<(), Error> {
        Ok(write!(self.link.out, "{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host)?)
    }

    async fn send(&mut self, method: &str, path: &str, key: Option<&str>, body: &[u8]) -> Result<(), Error> {
        self.begin_head(method, path)?;
        let out = &mut self.link.out;
        if let Some(session) = &self.session {
            write!(out, "{}: {session}\r\n", headers::SESSION_KEY)?;
        }
        if let Some(key) = key {
            write!(out, "{}: {key}\r\n", headers::IDEMPOTENCY_KEY)?;
        }
        write!(out, "content-length: {}\r\n\r\n", body.len())?;
        out.extend_from_slice(body);
        self.link.flush().await
    }

    /// Receives an answer. Returns its status; its body is then in `self.body`.
    pub(crate) async fn answer(&mut self) -> Result<u16, Error> {
        let head = loop {
            if let Some(end) = self.link.bytes().windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.link.fill().await?;
        };
        let (status, length) = read_head(&self.link.bytes()[..head])?;
        self.link.need(head + length).await?;
        self.body.clear();
        self.body.extend_from_slice(&self.link.bytes()[head..head + length]);
        self.link.consume(head + length);
        Ok(status)
    }

    /// Waits until the server ends the connection.
    pub(crate) async fn ended(&self) {
        self.link.ended().await;
    }

    /// Fails when the server has reset the connection.
    pub(crate) fn is_open(&self) -> Result<(), Error> {
        self.link.is_open()
    }

    /// The last answer's body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Sends a request, and fails unless the status is 2xx.
    pub(crate) async fn done(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(), Error> {
        match self.call(method, path, None, body).await? {
            200..300 => Ok(()),
            status => Err(Error::answer(&format!("{method} {path}: {status}"), &self.body)),
        }
    }

    /// Connects, and uses the session of another connection.
    pub(crate) async fn resume(addr: &str, of: &Rest) -> Result<Rest, Error> {
        let mut rest = Rest::open(addr).await?;
        rest.session.clone_from(&of.session);
        Ok(rest)
    }

    pub(crate) async fn open_session(&mut self, timeout_ms: u64) -> Result<(), Error> {
        self.done("POST", "/v1/sessions", format!("{{\"timeout\":\"{timeout_ms}ms\"}}").as_bytes()).await?;
        self.session = Some(text_field(&self.body, "session_key")?);
        Ok(())
    }

    /// Ends the session, if there is one. The id is the part of the session key before the dot.
    pub(crate) async fn close_session(&mut self) -> Result<(), Error> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let id = session.split('.').next().unwrap_or_default();
        self.done("DELETE", &format!("/v1/sessions/{id}"), b"").await?;
        self.session = None;
        Ok(())
    }

    /// Takes the session key out of this client, which has no session afterwards.
    pub(crate) fn take_session(&mut self) -> Option<String> {
        self.session.take()
    }

    /// Sends a heartbeat for another session than this client's.
    pub(crate) async fn keep_session_alive(&mut self, session: &str) -> Result<(), Error> {
        let own = self.session.replace(session.to_owned());
        let kept = self.keep_alive().await;
        self.session = own;
        kept
    }

    pub(crate) async fn keep_alive(&mut self) -> Result<(), Error> {
        let id = self.session.as_deref().and_then(|session| session.split('.').next()).unwrap_or_default();
        match self.call("POST", &format!("/v1/sessions/{id}/keepalive"), None, b"").await? {
            200..300 => Ok(()),
            404 | 410 => Err(Error::Gone),
            status => Err(Error::answer(&format!("keepalive: {status}"), &self.body)),
        }
    }

    /// Creates a znode. Succeeds also if the znode exists.
    pub(crate) async fn create(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        match self.call("POST", &format!("/v1/znodes/{name}"), None, data).await? {
            200..300 | 409 => Ok(()),
            status => Err(Error::answer(&format!("create {name}: {status}"), &self.body)),
        }
    }

    pub(crate) async fn set(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        self.done("PUT", &format!("/v1/znodes/{name}"), data).await
    }

    pub(crate) async fn get(&mut self, name: &str, linearizable: bool) -> Result<(), Error> {
        let query = if linearizable { "" } else { "?consistency=local" };
        self.done("GET", &format!("/v1/znodes/{name}{query}"), b"").await
    }

    /// Sends a long poll for changes of a znode's data from now on.
    pub(crate) async fn watch(&mut self, name: &str) -> Result<(), Error> {
        self.send("GET", &format!("/v1/znodes/{name}?watch=data&wait=60s"), None, b"").await
    }

    /// Receives the answer to [`Rest::watch`]. Fails unless it has an event.
    pub(crate) async fn told(&mut self) -> Result<(), Error> {
        let status = self.answer().await?;
        match self.body.windows(8).any(|eight| eight == b"\"kind\":\"") {
            true if status == 200 => Ok(()),
            _ => Err(Error::answer(&format!("watch: {status}"), &self.body)),
        }
    }

    /// Acquires a lock with an idempotency key, as docs/http-api.md asks. Returns the path of the
    /// ticket, the lock node that queues for the lock.
    pub(crate) async fn lock(&mut self, name: &str) -> Result<String, Error> {
        match self.acquire(name, "wait=60s").await? {
            200 => text_field(&self.body, "ticket"),
            status => Err(Error::answer(&format!("lock {name}: {status}"), &self.body)),
        }
    }

    /// Queues a ticket (a lock node) for a lock, and returns its path without waiting. The ticket
    /// holds the lock if no other ticket is before it.
    pub(crate) async fn join(&mut self, name: &str) -> Result<String, Error> {
        match self.acquire(name, "keep=true").await? {
            200 | 202 => text_field(&self.body, "ticket"),
            status => Err(Error::answer(&format!("join {name}: {status}"), &self.body)),
        }
    }

    async fn acquire(&mut self, name: &str, query: &str) -> Result<u16, Error> {
        self.keys += 1;
        let key = format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), self.keys);
        self.call("POST", &format!("/v1/locks/{name}?{query}"), Some(&key), b"").await
    }

    /// Sends a long poll that ends when the ticket holds its lock.
    pub(crate) async fn await_ticket(&mut self, ticket: &str) -> Result<(), Error> {
        self.send("GET", &format!("/v1/tickets{ticket}?wait=60s"), None, b"").await
    }

    /// Receives the answer to [`Rest::await_ticket`]. Fails unless the ticket holds its lock.
    pub(crate) async fn told_ticket(&mut self) -> Result<(), Error> {
        match self.answer().await? {
            200 => Ok(()),
            status => Err(Error::answer(&format!("ticket: {status}"), &self.body)),
        }
    }

    pub(crate) async fn unlock(&mut self, ticket: &str) -> Result<(), Error> {
        self.done("DELETE", &format!("/v1/tickets{ticket}"), b"").await
    }
}

/// Returns the status and the length of the body.
fn read_head(head: &[u8]) -> Result<(u16, usize), Error> {
    let unexpected = || Error::answer("no HTTP", head);
    let text = std::str::from_utf8(head).map_err(|_| unexpected())?;
    let status = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or_else(unexpected)?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Ok((status, length.unwrap_or(0)))
}

/// Returns the text of a JSON field that has no escapes. A full JSON parser would take the load
/// generator's own time, and so distort the measured latencies.
fn text_field(json: &[u8], name: &str) -> Result<String, Error> {
    let text = String::from_utf8_lossy(json);
    let value = text.split_once(&format!("\"{name}\":\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.map(|(value, _)| value.to_owned()).ok_or_else(|| Error::answer("a field is missing", json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_answer_has_a_status_and_a_length() {
        let head = b"HTTP/1.1 201 Created\r\nx: y\r\nContent-Length: 12\r\n\r\n";
        assert_eq!(read_head(head).unwrap(), (201, 12));
        assert_eq!(read_head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), (204, 0));
        assert!(read_head(b"nonsense").is_err());
        assert_eq!(text_field(br#"{"state":"held","ticket":"/a/b"}"#, "ticket").unwrap(), "/a/b");
        assert!(text_field(b"{}", "ticket").is_err());
    }
}

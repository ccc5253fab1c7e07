//! The members of the cluster, separated by commas: one by one, or by a pattern of host names.

use std::ops::RangeInclusive;

use replica::{MEMBERS_MAX, Member};

/// Name of this kind of value in the help.
pub const NAME: &str = "ID=PEER/HTTP,...";

/// Reads `1=host:peer_port/host:http_port,2=...`. A part without `ID=` is a pattern such as
/// `n-{0..2}:peer_port/n-{0..2}:http_port`, which stands for a member for each number in the range.
/// The id of such a member is the number plus 1, as numbers count from 0 and ids from 1.
///
/// # Errors
/// A message when a part of a member is missing or invalid, or there are too many members.
pub fn parse(text: &str) -> Result<Vec<Member>, String> {
    let mut found = Vec::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        match one.split_once('=') {
            Some((id, addrs)) => found.push(member(one, id, addrs)?),
            None => found.extend(pattern(one)?),
        }
        if found.len() > MEMBERS_MAX {
            return Err(format!("a cluster has at most {MEMBERS_MAX} members"));
        }
    }
    Ok(found)
}

fn member(text: &str, id: &str, addrs: &str) -> Result<Member, String> {
    let wrong = || format!("`{text}` is not `ID=PEER_HOST:PORT/HTTP_HOST:PORT`");
    let (peer_addr, http_addr) = addrs.split_once('/').ok_or_else(wrong)?;
    let id = id.trim().parse().map_err(|_| wrong())?;
    for addr in [peer_addr, http_addr] {
        if addr.contains(['{', '}']) {
            return Err(format!("`{text}` has an id and a range: a pattern has no id, as each member gets its own"));
        }
        port(addr).ok_or_else(|| format!("`{addr}` of member {id} is not `HOST:PORT`"))?;
    }
    Ok(Member { id, peer_addr: peer_addr.to_owned(), http_addr: http_addr.to_owned() })
}

/// Returns the members that a pattern stands for.
fn pattern(text: &str) -> Result<Vec<Member>, String> {
    let wrong = || {
        format!(
            "`{text}` is neither `ID=PEER_HOST:PORT/HTTP_HOST:PORT` nor a pattern such as `n-{{0..2}}:PORT/n-{{0..2}}:PORT`"
        )
    };
    let (peer_addr, http_addr) = text.split_once('/').ok_or_else(wrong)?;
    let (peer, http) = (Pattern::parse(peer_addr)?, Pattern::parse(http_addr)?);
    if peer.numbers != http.numbers {
        return Err(format!("the two addresses of `{text}` have different ranges"));
    }
    let one =
        |number: u32| Member { id: u64::from(number) + 1, peer_addr: peer.addr(number), http_addr: http.addr(number) };
    Ok(peer.numbers.clone().map(one).collect())
}

/// An address whose host contains a range of numbers: `n-{0..2}:7101`.
struct Pattern<'a> {
    before: &'a str,
    numbers: RangeInclusive<u32>,
    after: &'a str,
}

impl<'a> Pattern<'a> {
    fn parse(addr: &'a str) -> Result<Pattern<'a>, String> {
        let wrong = || format!("`{addr}` is not `HOST:PORT` with one range of numbers, such as `n-{{0..2}}:7101`");
        let (before, rest) = addr.split_once('{').ok_or_else(wrong)?;
        let (range, after) = rest.split_once('}').ok_or_else(wrong)?;
        let (first, last) = range.split_once("..").ok_or_else(wrong)?;
        let (first, last) = ordinal(first).zip(ordinal(last)).ok_or_else(wrong)?;
        let found = Pattern { before, numbers: first..=last, after };
        if before.contains('}') || after.contains(['{', '}']) || port(&found.addr(first)).is_none() {
            return Err(wrong());
        }
        if first > last {
            return Err(format!("the range `{{{range}}}` is empty: its first number is above its last"));
        }
        if (last - first) as usize >= MEMBERS_MAX {
            return Err(format!("the range `{{{range}}}` is too long: a cluster has at most {MEMBERS_MAX} members"));
        }
        Ok(found)
    }

    fn addr(&self, number: u32) -> String {
        format!("{}{number}{}", self.before, self.after)
    }
}

/// Returns the number of a pod in its StatefulSet, from its digits; `None` for any other text.
pub(super) fn ordinal(digits: &str) -> Option<u32> {
    // `parse` accepts a sign, too.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns the port of `host:port`; `None` for an empty host or an invalid port.
pub(in crate::config) fn port(addr: &str) -> Option<u16> {
    let (host, port) = addr.rsplit_once(':')?;
    if host.is_empty() { None } else { port.parse().ok().filter(|port| *port != 0) }
}

/// Returns the value as text that `parse` reads back.
pub fn show(value: &[Member]) -> String {
    let one = |member: &Member| format!("{}={}/{}", member.id, member.peer_addr, member.http_addr);
    value.iter().map(one).collect::<Vec<_>>().join(",")
}

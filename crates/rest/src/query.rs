//! The query string, read strictly: what nobody asked for is refused by name.

use std::fmt::Display;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use protocol::Millis;
use znode::ZPath;

use crate::problem::Problem;

/// The parameters of a request. Handlers take what they know; [`Query::finish`] refuses the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    params: Vec<(String, String)>,
}

impl Query {
    /// Reads `a=1&b`. A plus is a space, as in forms.
    pub(crate) fn parse(raw: &str) -> Result<Query, Problem> {
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if params.iter().any(|(known, _)| *known == name) {
                return Err(Problem::bad(&name, "given twice"));
            }
            params.push((name, value));
        }
        Ok(Query { params })
    }

    /// Takes a parameter as text.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.params.iter().position(|(known, _)| known == name)?;
        Some(self.params.swap_remove(at).1)
    }

    /// Whether the parameter is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.params.iter().any(|(known, _)| known == name)
    }

    /// Takes a parameter as a value.
    pub(crate) fn get<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        self.take(name).map(|text| text.parse().map_err(|error| Problem::bad(name, error))).transpose()
    }

    /// Takes a znode path, as it is.
    pub(crate) fn path(&mut self, name: &str) -> Result<Option<ZPath>, Problem> {
        let path = self.take(name).map(|text| ZPath::parse(&text));
        path.transpose().map_err(|_| Problem::bad(name, "not a znode path"))
    }

    /// Takes a duration that has a longest value.
    pub(crate) fn duration_ms(&mut self, name: &str, max_ms: u64) -> Result<Option<u64>, Problem> {
        match self.get::<Millis>(name)? {
            Some(Millis(ms)) if ms > max_ms => Err(Problem::bad(name, format!("at most {}", Millis(max_ms)))),
            ms => Ok(ms.map(|Millis(ms)| ms)),
        }
    }

    /// Takes a flag: `?keep`, `?keep=true` or `?keep=false`.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(_) => Err(Problem::bad(name, "true or false")),
        }
    }

    /// Takes `limit`: the length of a page, up to `max`.
    pub(crate) fn limit(&mut self, max: usize) -> Result<usize, Problem> {
        // Handlers look one further, to know whether there is a next page.
        let max = max.min(usize::MAX - 1);
        match self.get("limit")? {
            Some(0) => Err(Problem::bad("limit", "at least 1")),
            Some(limit) => Ok(max.min(limit)),
            None => Ok(max),
        }
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.params.first() {
            Some((name, _)) => Err(Problem::bad(name, "unknown parameter")),
            None => Ok(()),
        }
    }
}

fn decode(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(String::from).map_err(|_| Problem::bad("query", "not UTF-8 after percent-decoding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_taken_once() {
        let mut query = Query::parse("label=a+b%2b%26&wait=30s&keep").unwrap();
        assert_eq!(query.take("label").as_deref(), Some("a b+&"));
        assert_eq!(query.take("label"), None);
        assert_eq!(query.duration_ms("wait", 30_000).unwrap(), Some(30_000));
        assert!(query.flag("keep").unwrap());
        assert!(query.finish().is_ok());
    }

    #[test]
    fn what_is_unknown_double_or_too_large_is_refused() {
        assert!(Query::parse("a=1&a=2").is_err());
        assert!(Query::parse("a=%ff").is_err());
        assert!(Query::parse("watch=data").unwrap().finish().is_err());
        let mut query = Query::parse("wait=31s&limit=0&keep=maybe&since=-1").unwrap();
        assert!(query.duration_ms("wait", 30_000).is_err());
        assert!(query.limit(10).is_err());
        assert!(query.flag("keep").is_err());
        assert!(query.get::<u64>("since").is_err());
    }
}

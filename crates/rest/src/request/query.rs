//! Parameters of a request, from its query or a JSON body. An unknown parameter is refused by name.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, Visitor};
use zlock_client::api::Millis;
use znode::ZPath;

use crate::problem::Problem;
use crate::request::paths;

/// Parameters of a request. Handlers take the parameters that they know; [`Query::finish`] refuses
/// all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    params: Vec<(String, Value)>,
    /// Names that the handler has asked for, to suggest one for a misspelled name.
    known: Vec<&'static str>,
}

/// Value of a parameter, in the form in which the request gave it.
#[derive(Clone, Debug)]
enum Value {
    /// A name without a value in a query.
    Bare,
    /// A text in a query, which may be a number or a flag.
    Written(String),
    /// A text in a body.
    Text(String),
    /// A number in a body, as decimal text.
    Number(String),
    /// A flag in a body.
    Flag(bool),
}

/// Largest number of parameters of a request. No operation has so many.
const PARAMS_MAX: usize = 64;

/// Parameters that may be given several times.
const SEVERAL: [&str; 1] = ["exclude"];

impl Query {
    /// Parses the query of a URL, such as `a=1&b`. A plus is a space, as in forms.
    pub(crate) fn parse(raw: &str) -> Result<Query, Problem> {
        let mut query = Query::default();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Value::Written(decode(value)?)),
                None => (pair, Value::Bare),
            };
            query.add(decode(name)?, value, "given twice")?;
        }
        Ok(query)
    }

    /// Adds a parameter. If it was given before, it is refused with the text `twice`.
    fn add(&mut self, name: String, value: Value, twice: &str) -> Result<(), Problem> {
        if self.params.len() == PARAMS_MAX {
            return Err(Problem::bad(&name, format!("at most {PARAMS_MAX} parameters")));
        }
        if self.has(&name) && !SEVERAL.contains(&&*name) {
            return Err(Problem::bad(&name, twice));
        }
        self.params.push((name, value));
        Ok(())
    }

    /// Adds the members of a JSON object, which are parameters like those of the query.
    ///
    /// # Errors
    /// 400 when the body is no object, or when a parameter is given twice, in the object or in
    /// object and query.
    pub(crate) fn add_object(&mut self, json: &[u8]) -> Result<(), Problem> {
        let mut refused = None;
        let mut reader = serde_json::Deserializer::from_slice(json);
        let read = reader.deserialize_any(Members { query: self, refused: &mut refused }).and_then(|()| reader.end());
        match refused {
            Some(problem) => Err(problem),
            None => read.map_err(|error| unreadable(json, &error)),
        }
    }

    /// Takes a parameter as text; `None` when it is missing.
    pub(crate) fn take(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        match self.remove(name) {
            None => Ok(None),
            Some(Value::Bare) => Ok(Some(String::new())),
            Some(Value::Written(text) | Value::Text(text)) => Ok(Some(text)),
            Some(Value::Number(_) | Value::Flag(_)) => Err(Problem::bad(name, "a JSON string is expected")),
        }
    }

    /// Takes all values of a parameter that may be given several times.
    pub(crate) fn take_all(&mut self, name: &'static str) -> Result<Vec<String>, Problem> {
        let mut found = Vec::new();
        while let Some(text) = self.take(name)? {
            found.push(text);
        }
        Ok(found)
    }

    /// Tells whether the parameter was given and not taken yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.params.iter().any(|(known, _)| known == name)
    }

    /// Takes a number; `None` when it is missing.
    pub(crate) fn get<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, Problem> {
        let text = match self.remove(name) {
            None => return Ok(None),
            Some(Value::Bare) => String::new(),
            // Rust's parser accepts a plus sign; the API does not.
            Some(Value::Written(text)) if text.starts_with('+') => {
                return Err(Problem::bad(name, "a number is written without a plus, which is a blank in a query"));
            }
            Some(Value::Written(text) | Value::Number(text)) => text,
            Some(Value::Text(_) | Value::Flag(_)) => return Err(Problem::bad(name, "a JSON number is expected")),
        };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().map(Some).map_err(|_| match is_number {
            true => Problem::bad(name, "the number is too large"),
            false => Problem::bad(name, "a number is expected"),
        })
    }

    /// Takes a znode path; the query has been percent-decoded already.
    pub(crate) fn path(&mut self, name: &'static str) -> Result<Option<ZPath>, Problem> {
        self.take(name)?.map(|text| paths::parse(name, &text)).transpose()
    }

    /// Takes a duration of at most `max_ms`, in milliseconds; `None` when it is missing.
    pub(crate) fn duration_ms(&mut self, name: &'static str, max_ms: u64) -> Result<Option<u64>, Problem> {
        let text = match self.remove(name) {
            None => return Ok(None),
            Some(Value::Bare) => String::new(),
            Some(Value::Written(text) | Value::Text(text) | Value::Number(text)) => text,
            Some(Value::Flag(_)) => return Err(Problem::bad(name, "a duration such as \"30s\" is expected")),
        };
        let Millis(ms) = text.parse().map_err(|error| Problem::bad(name, error))?;
        at_most(name, ms, max_ms).map(Some)
    }

    /// Takes a flag: `?keep`, `?keep=true` or `?keep=false`, or `true` or `false` in a body.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.remove(name) {
            None | Some(Value::Flag(false)) => Ok(false),
            Some(Value::Bare | Value::Flag(true)) => Ok(true),
            Some(Value::Written(text)) => match text.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(Problem::bad(name, "true or false")),
            },
            Some(Value::Text(_) | Value::Number(_)) => Err(Problem::bad(name, "a JSON true or false is expected")),
        }
    }

    /// Takes a parameter if its value is `word`, and returns true. Otherwise leaves it and returns
    /// false.
    pub(crate) fn take_word(&mut self, name: &str, word: &str) -> bool {
        let is_it = |(known, value): &(String, Value)| {
            known == name && matches!(value, Value::Written(text) | Value::Text(text) if text == word)
        };
        let at = self.params.iter().position(is_it);
        at.map(|at| self.params.swap_remove(at)).is_some()
    }

    /// Takes `page_size`, from 1 to `max`; `max` when it is missing.
    pub(crate) fn page_size(&mut self, max: usize) -> Result<usize, Problem> {
        // Handlers look for one item more than a page has, to know whether there is a next page.
        let max = max.min(usize::MAX - 1);
        match self.get("page_size")? {
            Some(0) => Err(Problem::bad("page_size", "at least 1")),
            Some(size) if size > max => Err(Problem::bad("page_size", format!("at most {max}"))),
            Some(size) => Ok(size),
            None => Ok(max),
        }
    }

    /// Refuses the parameters that the handler did not take. The refusal of a parameter named like
    /// one of `fields` says that it belongs into the body.
    pub(crate) fn finish_beside(self, fields: &[&str]) -> Result<(), Problem> {
        match self.params.first() {
            Some((name, _)) if fields.contains(&&**name) => {
                Err(Problem::bad(name, "it is a field of the body, which is a JSON object"))
            }
            _ => self.finish(),
        }
    }

    /// Refuses the parameters that the handler did not take, and suggests a known name.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        let Some((name, _)) = self.params.first() else { return Ok(()) };
        match meant(name, self.known.iter().copied()) {
            Some(known) => Err(Problem::bad(name, format!("unknown parameter: is {known} meant?"))),
            None => Err(Problem::bad(name, "unknown parameter")),
        }
    }

    fn remove(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        let at = self.params.iter().position(|(known, _)| known == name)?;
        Some(self.params.swap_remove(at).1)
    }
}

/// Visitor that reads the members of a JSON object into a query, without building their values
/// first.
struct Members<'a> {
    query: &'a mut Query,
    /// Refusal of a JSON member. Reading stops there.
    refused: &'a mut Option<Problem>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object of parameters, such as {\"wait\":\"30s\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            // Many clients write an absent optional field as null.
            let Some(Scalar(value)) = map.next_value::<Option<Scalar>>()? else { continue };
            let twice = "given twice, in the query and the body or in one of them";
            if let Err(problem) = self.query.add(name, value, twice) {
                *self.refused = Some(problem);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// A JSON value that is a text, a number or a boolean.
struct Scalar(Value);

impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true or false")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
        Ok(Scalar(Value::Flag(flag)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(Value::Number(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(Value::Number(number.to_string())))
    }

    /// Writes `2.0` as `2`, because JSON Schema counts `2.0` as an integer.
    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar(Value::Number(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(Value::Text(text.to_owned())))
    }
}

/// Returns the duration `ms` of the parameter `name` if it is at most `max_ms`, else 400.
pub(crate) fn at_most(name: &str, ms: u64, max_ms: u64) -> Result<u64, Problem> {
    if ms > max_ms { Err(Problem::bad(name, format!("at most {}", Millis(max_ms)))) } else { Ok(ms) }
}

/// Cuts a list to a page of at most `limit` items. Returns the page's last item if the list had
/// more items, else `None`.
pub(crate) fn cut<T>(found: &mut Vec<T>, limit: usize) -> Option<&T> {
    let more = found.len() > limit;
    found.truncate(limit);
    found.last().filter(|_| more)
}

/// Returns the known name of which `given` is probably a misspelling.
pub(crate) fn meant(given: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // Number of bytes to add, leave out or change to make one name of the other.
    let given = given.as_bytes().to_vec();
    let typos = |known: &str| strsim::generic_levenshtein(&given, &known.as_bytes().to_vec());
    let nearest = known.map(|known| (typos(known), known)).min();
    nearest.filter(|(typos, known)| *typos <= 2 && typos * 2 <= known.len()).map(|(_, known)| known)
}

fn decode(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(String::from).map_err(|_| Problem::bad("query", "not UTF-8 after percent-decoding"))
}

/// Makes a 400 for a body that is no valid JSON object, with an example if the body does not begin
/// like an object.
pub(crate) fn unreadable(body: &[u8], error: &serde_json::Error) -> Problem {
    let begins = body.trim_ascii_start().first();
    match begins {
        Some(b'{') => Problem::bad("body", error),
        None => Problem::bad("body", "it is empty, and a JSON object is expected"),
        Some(_) => Problem::bad("body", format!("a JSON object is expected, such as {{\"label\":\"me\"}}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(query: &str, body: &str) -> Result<Query, Problem> {
        let mut query = Query::parse(query)?;
        query.add_object(body.as_bytes())?;
        Ok(query)
    }

    #[test]
    fn parameters_are_decoded_and_taken_once() {
        let mut query = Query::parse("label=a+b%2b%26&wait=30s&keep").unwrap();
        assert_eq!(query.take("label").unwrap().as_deref(), Some("a b+&"));
        assert_eq!(query.take("label").unwrap(), None);
        assert_eq!(query.duration_ms("wait", 30_000).unwrap(), Some(30_000));
        assert!(query.flag("keep").unwrap());
        assert!(query.finish().is_ok());
    }

    #[test]
    fn what_is_unknown_double_or_too_large_is_refused() {
        assert!(Query::parse("a=1&a=2").is_err());
        assert!(Query::parse("a=%ff").is_err());
        assert!(Query::parse("watch=data").unwrap().finish().is_err());
        let mut query = Query::parse("wait=31s&page_size=0&keep=maybe&since=-1&after=%2b1").unwrap();
        assert!(query.duration_ms("wait", 30_000).is_err());
        assert!(query.page_size(10).is_err());
        assert_eq!(Query::parse("page_size=10").unwrap().page_size(10).unwrap(), 10);
        assert!(Query::parse("page_size=11").unwrap().page_size(10).is_err());
        assert!(query.flag("keep").is_err());
        assert!(query.get::<u64>("since").is_err());
        assert!(query.get::<u64>("after").is_err());
    }

    #[test]
    fn the_number_of_parameters_is_bounded() {
        let names = |from: usize, to| (from..to).map(|number| format!("p{number}"));
        let query = names(0, PARAMS_MAX).collect::<Vec<_>>().join("&");
        assert!(both(&query, "{}").is_ok());
        assert_eq!(both(&query, r#"{"more":1}"#).err().unwrap().detail, "more: at most 64 parameters");
        assert_eq!(both(&format!("{query}&more"), "{}").err().unwrap().detail, "more: at most 64 parameters");
    }

    #[test]
    fn a_flag_with_an_empty_value_is_refused() {
        assert!(Query::parse("keep=").unwrap().flag("keep").is_err());
        assert!(Query::parse("keep").unwrap().flag("keep").unwrap());
        assert!(!Query::parse("keep=false").unwrap().flag("keep").unwrap());
    }

    #[test]
    fn the_members_of_a_body_are_parameters_of_their_own_types() {
        let mut query =
            both("wait=3s", r#"{"label":"a","keep":true,"permits":2,"lock_delay":"5s","permits_max":null}"#).unwrap();
        assert_eq!(query.take("label").unwrap().as_deref(), Some("a"));
        assert!(query.flag("keep").unwrap());
        assert_eq!(query.get::<u32>("permits").unwrap(), Some(2));
        assert_eq!(query.duration_ms("wait", 30_000).unwrap(), Some(3_000));
        assert_eq!(query.duration_ms("lock_delay", 30_000).unwrap(), Some(5_000));
        assert!(query.finish().is_ok());
        let mut wrong =
            both("", r#"{"label":1,"keep":"true","permits":"2","wait":30,"permits_max":1.5,"after":-1,"since":2.0}"#)
                .unwrap();
        assert!(wrong.take("label").is_err() && wrong.flag("keep").is_err() && wrong.get::<u32>("permits").is_err());
        assert!(wrong.duration_ms("wait", 60_000).is_err());
        assert!(wrong.get::<u32>("permits_max").is_err() && wrong.get::<u32>("after").is_err());
        assert_eq!(wrong.get::<u32>("since").unwrap(), Some(2));
    }

    #[test]
    fn a_body_that_is_no_object_of_parameters_is_refused() {
        for bad in
            ["", "[]", "1", "\"a\"", "wait=3s", "{\"a\":{}}", "{\"a\":[1]}", "{\"a\":1,\"a\":2}", "{} {}", "{", "null"]
        {
            assert!(both("", bad).is_err(), "{bad}");
        }
        assert!(both("wait=3s", r#"{"wait":"3s"}"#).is_err());
    }
}

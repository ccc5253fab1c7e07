//! EDN, as Jepsen, Knossos and Elle read it.

use std::fmt::{self, Write as _};

use serde_json::Value;

use crate::history::{Entry, Kind, Process};

impl Entry {
    /// One line of EDN, as Jepsen, Knossos and Elle read it.
    pub fn to_edn(&self) -> String {
        let mut line = String::from("{:type ");
        let kind = match self.kind {
            Kind::Invoke => "invoke",
            Kind::Ok => "ok",
            Kind::Fail => "fail",
            Kind::Info => "info",
        };
        write!(line, ":{kind}, :f :{}, :value {}", self.f, Edn(&self.value)).expect("writing to a string");
        match self.process {
            Process::Client(process) => write!(line, ", :process {process}"),
            Process::Nemesis(_) => write!(line, ", :process :nemesis"),
        }
        .expect("writing to a string");
        write!(line, ", :time {}, :index {}", self.time, self.index).expect("writing to a string");
        for (key, number) in [("node", self.node), ("zxid", self.zxid)] {
            if let Some(number) = number {
                write!(line, ", :{key} {number}").expect("writing to a string");
            }
        }
        if let Some(error) = &self.error {
            write!(line, ", :error {}", Edn(&Value::String(error.clone()))).expect("writing to a string");
        }
        line.push('}');
        line
    }
}

/// A JSON value in EDN: nil, vectors, and keywords for the keys of maps.
struct Edn<'a>(&'a Value);

impl fmt::Display for Edn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("nil"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::String(text) => write_text(f, text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(" ")?;
                    }
                    write!(f, "{}", Edn(item))?;
                }
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("{")?;
                for (i, (key, value)) in map.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, ":{} {}", key.replace('_', "-"), Edn(value))?;
                }
                f.write_str("}")
            }
        }
    }
}

/// EDN's strings know the escapes of JSON but `\/`, `\b` and `\f`, which serde_json does not need
/// for plain text.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_str("\"")
}

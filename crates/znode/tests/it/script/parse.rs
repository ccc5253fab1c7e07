//! Parsing of a script's commands.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

use goldenscript::{Argument, Command};
use znode::{
    Acl, Acquire, AcquireAll, ClientInfo, Create, CreateMode, Ensure, FencingToken, HeldTicket, Identity, Limits,
    LockGuard, LockMode, Op, Policy, ZPath, ZnodeOp,
};

use super::alias::Aliases;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The arguments of a command; each may be taken only once.
pub(crate) struct Words {
    positional: VecDeque<String>,
    keys: BTreeMap<String, String>,
}

impl Words {
    pub(crate) fn of(command: &Command, aliases: &Aliases) -> Result<Words> {
        let mut words = Words { positional: VecDeque::new(), keys: BTreeMap::new() };
        for argument in &command.args {
            match argument {
                Argument::Positional(value) => words.positional.push_back(aliases.expand(value)?),
                Argument::KeyValue(key, value) => {
                    words.keys.insert(key.clone(), aliases.expand(value)?);
                }
                other => panic!("an argument of a new kind: {other:?}"),
            }
        }
        Ok(words)
    }

    /// Parses one operation of a multi, written as words with blanks between them.
    fn of_text(text: &str) -> Words {
        let mut words = Words { positional: VecDeque::new(), keys: BTreeMap::new() };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => {
                    words.keys.insert(key.into(), value.into());
                }
                None => words.positional.push_back(word.into()),
            }
        }
        words
    }

    pub(crate) fn finish(&self) -> Result<()> {
        if self.positional.is_empty() && self.keys.is_empty() {
            Ok(())
        } else {
            Err(format!("what are {:?} {:?}?", self.positional, self.keys).into())
        }
    }

    pub(crate) fn next(&mut self) -> Result<String> {
        self.positional.pop_front().ok_or_else(|| "a word is missing".into())
    }

    pub(crate) fn key(&mut self, key: &str) -> Option<String> {
        self.keys.remove(key)
    }

    pub(crate) fn key_number(&mut self, key: &str, default: u64) -> Result<u64> {
        self.key(key).map_or(Ok(default), |value| milliseconds(&value))
    }

    pub(crate) fn key_path(&mut self, key: &str) -> Result<Option<ZPath>> {
        Ok(self.key(key).map(|path| ZPath::parse(&path)).transpose()?)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        Ok(self.next()?.parse()?)
    }

    pub(crate) fn duration(&mut self) -> Result<u64> {
        milliseconds(&self.next()?)
    }

    pub(crate) fn key_duration(&mut self, key: &str) -> Result<Option<u64>> {
        self.key(key).map(|text| milliseconds(&text)).transpose()
    }

    pub(crate) fn path(&mut self) -> Result<ZPath> {
        Ok(ZPath::parse(&self.next()?)?)
    }

    pub(crate) fn rest_numbers(&mut self) -> Result<Vec<u64>> {
        self.positional.drain(..).map(|word| Ok(word.parse()?)).collect()
    }

    pub(crate) fn rest_paths(&mut self) -> Result<Vec<ZPath>> {
        self.positional.drain(..).map(|word| Ok(ZPath::parse(&word)?)).collect()
    }

    pub(crate) fn version(&mut self) -> Result<i32> {
        Ok(self.key("version").map_or(Ok(-1), |version| version.parse())?)
    }

    /// Takes a guard, as in `guard=/lock;token`.
    pub(crate) fn guard(&mut self) -> Result<Option<LockGuard>> {
        let Some(guard) = self.key("guard") else {
            return Ok(None);
        };
        let (lock, token) = guard.split_once(';').ok_or("a guard is /lock;token")?;
        Ok(Some(LockGuard { lock: ZPath::parse(lock)?, token: FencingToken(token.parse()?) }))
    }

    pub(crate) fn open(&mut self, secret: u8) -> Result<Op> {
        let timeout_ms = self.key_number("timeout", 10_000)? as u32;
        let label = self.key("label").unwrap_or_default();
        let address = self.key("address").map(|address| address.parse()).transpose()?;
        let client = ClientInfo {
            host: self.text("host")?,
            pid: self.key("pid").map(|pid| pid.parse()).transpose()?,
            program: self.text("program")?,
            address: self.key("seen").map(|address| address.parse()).transpose()?,
        };
        Ok(Op::OpenSession { secret_hash: [secret; 16], timeout_ms, label, address, client })
    }

    /// Takes an ACL, as in `acl=world:anyone:rw,digest:bob:cdrwa`. `acl=` is an empty list; without
    /// the word the ACL is open.
    pub(crate) fn acl(&mut self) -> Result<Vec<Acl>> {
        let Some(text) = self.key("acl") else {
            return Ok(Acl::open());
        };
        text.split(',').filter(|entry| !entry.is_empty()).map(acl_entry).collect()
    }

    /// Takes the identities of the client, as in `as=digest:bob`.
    pub(crate) fn identities(&mut self) -> Vec<Identity> {
        let text = self.key("as").unwrap_or_default();
        let known = |word: &str| word.split_once(':').map(|(scheme, id)| (scheme.to_owned(), id.to_owned()));
        text.split(',').filter_map(known).map(|(scheme, id)| Identity { scheme, id }).collect()
    }

    pub(crate) fn acquire(&mut self) -> Result<Acquire> {
        let mode = match self.key("mode").as_deref() {
            None => LockMode::Exclusive,
            Some(word) => lock_mode(word)?,
        };
        let lock = self.path()?;
        Ok(Acquire {
            owner: self.text("owner")?,
            label: self.text("label")?,
            lock_delay_ms: self.key_number("delay", 0)? as u32,
            priority: self.key_number("priority", 0)? as u32,
            keyless: self.key("keyless").is_some_and(|word| word == "true"),
            ..Acquire::new(lock, mode)
        })
    }

    /// Takes the arguments of `releaseheld`, as in `/l mode=read token=7 owner=o`.
    pub(crate) fn held_ticket(&mut self) -> Result<HeldTicket> {
        Ok(HeldTicket {
            lock: self.path()?,
            mode: self.key("mode").map(|word| lock_mode(&word)).transpose()?,
            token: self.key("token").map(|token| token.parse().map(FencingToken)).transpose()?,
            owner: self.key("owner"),
        })
    }

    /// Takes the arguments of `acquireall`, as in `/a:read /b`, perhaps with `owner=`.
    pub(crate) fn acquire_all(&mut self) -> Result<AcquireAll> {
        let mut parts = Vec::new();
        for word in self.positional.drain(..) {
            let (path, mode) = word.split_once(':').unwrap_or((&word, "exclusive"));
            parts.push((ZPath::parse(path)?, lock_mode(mode)?));
        }
        let policy = match self.key("policy").as_deref() {
            None | Some("strict") => Policy::Strict,
            Some("backfill") => Policy::Backfill,
            Some(other) => return Err(format!("no policy {other}").into()),
        };
        Ok(AcquireAll {
            policy,
            owner: self.key("owner").unwrap_or_default(),
            label: self.text("label")?,
            lock_delay_ms: self.key_number("delay", 0)? as u32,
            ..AcquireAll::new(parts)
        })
    }

    pub(crate) fn multi(&mut self) -> Result<Vec<ZnodeOp>> {
        let mut ops = Vec::new();
        for text in self.positional.drain(..) {
            let mut words = Words::of_text(&text);
            let name = words.next()?;
            ops.push(words.znode_op(&name)?);
            words.finish()?;
        }
        Ok(ops)
    }

    pub(crate) fn znode_op(&mut self, name: &str) -> Result<ZnodeOp> {
        Ok(match name {
            "create" => ZnodeOp::Create(self.create()?),
            "delete" => ZnodeOp::Delete { path: self.path()?, version: self.version()? },
            "set" => ZnodeOp::SetData { path: self.path()?, data: self.data()?, version: self.version()? },
            "check" => ZnodeOp::Check { path: self.path()?, version: self.version()? },
            other => return Err(format!("no command {other}").into()),
        })
    }

    fn create(&mut self) -> Result<Create> {
        let path = self.next()?;
        let (parent, name) = path.rsplit_once('/').ok_or("a path begins with a slash")?;
        let parent = if parent.is_empty() { ZPath::root() } else { ZPath::parse(parent)? };
        let ttl_ms = self.key_number("ttl", 0)?;
        let mode = match self.key("mode").as_deref() {
            None | Some("persistent") => CreateMode::Persistent,
            Some("ephemeral") => CreateMode::Ephemeral,
            Some("sequential") => CreateMode::PersistentSequential,
            Some("ephemeral-sequential") => CreateMode::EphemeralSequential,
            Some("container") => CreateMode::Container,
            Some("ttl") => CreateMode::PersistentTtl { ttl_ms },
            Some("ttl-sequential") => CreateMode::PersistentSequentialTtl { ttl_ms },
            Some(other) => return Err(format!("no create mode {other}").into()),
        };
        let ensure = match self.key("ensure").as_deref() {
            None => Ensure::New,
            Some("own") => Ensure::Own,
            Some("own-with-data") => Ensure::OwnWithData,
            Some(other) => return Err(format!("ensure is own or own-with-data, not {other}").into()),
        };
        Ok(Create { data: self.data()?, mode, acl: self.acl()?, ensure, ..Create::new(parent, name) })
    }

    /// Takes the data of a znode: the next word, or the number of bytes in `size=`, or no data.
    fn data(&mut self) -> Result<Vec<u8>> {
        let size = self.key_number("size", 0)? as usize;
        Ok(self.positional.pop_front().map_or_else(|| vec![b'x'; size], String::into_bytes))
    }

    /// Takes a word, or `name*length`, which stands for a long text of that length.
    fn text(&mut self, key: &str) -> Result<String> {
        let text = self.key(key).unwrap_or_default();
        match text.split_once('*') {
            Some((word, times)) => Ok(word.repeat(times.parse()?)),
            None => Ok(text),
        }
    }

    /// Takes limits as words with new values; the others stay as in `old`.
    pub(crate) fn limits(&mut self, old: &Limits) -> Result<Limits> {
        let mut limits = old.clone();
        for (key, value) in std::mem::take(&mut self.keys) {
            let number = milliseconds(&value)?;
            let narrow = match &*key {
                "znodes" => {
                    limits.znodes_max = number;
                    continue;
                }
                "state_bytes" => {
                    limits.state_bytes_max = number;
                    continue;
                }
                "subtree_bytes" => {
                    limits.subtree_bytes_max = number;
                    continue;
                }
                "data_bytes" => &mut limits.data_bytes_max,
                "path_bytes" => &mut limits.path_bytes_max,
                "path_depth" => &mut limits.path_depth_max,
                "name_bytes" => &mut limits.name_bytes_max,
                "label_bytes" => &mut limits.label_bytes_max,
                "children" => &mut limits.children_max,
                "waiters" => &mut limits.waiters_max,
                "sessions" => &mut limits.sessions_max,
                "sessions_per_address" => &mut limits.sessions_per_address_max,
                "ephemerals" => &mut limits.ephemerals_max,
                "ops" => &mut limits.ops_max,
                "entry_cost" => &mut limits.entry_cost_max,
                "acl_entries" => &mut limits.acl_entries_max,
                "holds" => &mut limits.holds_max,
                "replies" => &mut limits.replies_max,
                "used_keys" => &mut limits.used_keys_max,
                "timeout_min" => &mut limits.session_timeout_min_ms,
                "timeout_max" => &mut limits.session_timeout_max_ms,
                "lock_delay" => &mut limits.lock_delay_max_ms,
                "container_idle" => &mut limits.container_idle_ms,
                "history" => &mut limits.history_max,
                "histories" => &mut limits.histories_max,
                "ended" => &mut limits.ended_sessions_max,
                "ended_ms" => &mut limits.ended_sessions_ms,
                "looks" => &mut limits.deadlock_looks_max,
                other => return Err(format!("no limit {other}").into()),
            };
            *narrow = u32::try_from(number)?;
        }
        Ok(limits)
    }
}

/// Parses a lock mode: `read`, for example, or `2/5` for two of five permits.
fn lock_mode(word: &str) -> Result<LockMode> {
    Ok(match word {
        "exclusive" => LockMode::Exclusive,
        "read" => LockMode::Read,
        "write" => LockMode::Write,
        "latch" => LockMode::Latch,
        other => {
            let (permits, limit) = other.split_once('/').ok_or_else(|| format!("no lock mode {other}"))?;
            LockMode::Lease { permits: permits.parse()?, limit: limit.parse()? }
        }
    })
}

fn acl_entry(entry: &str) -> Result<Acl> {
    let (who, perms) = entry.rsplit_once(':').ok_or("an ACL entry is scheme:id:perms")?;
    let (scheme, id) = who.split_once(':').ok_or("an ACL entry is scheme:id:perms")?;
    let perms = match perms.parse() {
        Ok(bits) => bits,
        Err(_) => perms.chars().map(|perm| "rwcda".find(perm).map_or(1 << 31, |bit| 1 << bit)).sum(),
    };
    Ok(Acl { perms, scheme: scheme.into(), id: id.into() })
}

/// Parses a time: `5s`, `250ms` or a plain number of milliseconds.
fn milliseconds(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse()?;
    match &text[digits.len()..] {
        "" | "ms" => Ok(number),
        "s" => Ok(number * 1000),
        unit => Err(format!("no unit {unit}").into()),
    }
}

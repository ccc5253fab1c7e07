//! The runner of the golden scripts: it has a state, a clock, and the sessions that were opened.

mod alias;
mod parse;
mod show;

use std::collections::BTreeMap;
use std::error::Error;

use goldenscript::{Block, Command, Context, Runner};
use znode::{
    Attempt, Credential, EventRecord, LogPosition, Op, Reply, Request, RequestKey, SessionId, State, StateBuilder,
    Term, TicketRef, Txn, TxnOutcome, Upgrade, WriteTurn, ZPath, Zxid, lock,
};

use alias::Aliases;
use parse::Words;

/// Maximum number of commands in a block of a script. They come before the block's output, so a
/// short block is easy to read.
const BLOCK_COMMANDS_MAX: usize = 3;

/// Runner of one script, with the state that the script's commands change.
pub(crate) struct Script {
    state: State,
    /// A replica that is read back from a snapshot after every command.
    twin: State,
    time_ms: u64,
    term: Term,
    zxid: Zxid,
    secrets: BTreeMap<SessionId, u8>,
    /// The ticket that each acquire got, by its idempotency key, so that a script can name the
    /// ticket by the key.
    tickets: BTreeMap<u64, ZPath>,
    aliases: Aliases,
    attempts: u64,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            state: State::default(),
            twin: State::default(),
            time_ms: 1000,
            term: Term(1),
            zxid: Zxid(0),
            secrets: BTreeMap::new(),
            tickets: BTreeMap::new(),
            aliases: Aliases::default(),
            attempts: 0,
        }
    }
}

impl Runner for Script {
    type Command = Command;

    fn start_block(&mut self, block: &Block) -> Result<String, Box<dyn Error>> {
        match block.commands.len() {
            ..=BLOCK_COMMANDS_MAX => Ok(String::new()),
            count => Err(format!("{count} commands before their output, more than {BLOCK_COMMANDS_MAX}").into()),
        }
    }

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        self.aliases.learn(command);
        let mut words = Words::of(command, &self.aliases)?;
        let output = match self.setting(&command.name, &mut words)? {
            Some(output) => output,
            None => match self.look(&command.name, &mut words)? {
                Some(output) => output,
                None => self.transact(&command.name, &mut words)?,
            },
        };
        words.finish()?;
        self.check();
        self.aliases.shorten(&output)
    }
}

impl Script {
    /// Runs a command that changes no state, but a setting for the next commands, such as the time,
    /// or how names are shown. Returns `None` for another command.
    fn setting(&mut self, name: &str, words: &mut Words) -> Result<Option<String>, Box<dyn Error>> {
        match name {
            "tick" => self.time_ms += words.duration()?,
            "term" => self.term = Term(words.number()?),
            "names" => match &*words.next()? {
                "full" => self.aliases.off = true,
                other => return Err(format!("names may be full, not {other}").into()),
            },
            "skip" => {
                self.zxid.0 += 1;
                let at = LogPosition { term: self.term, zxid: self.zxid };
                self.state.skip(at);
                self.twin.skip(at);
            }
            _ => return Ok(None),
        }
        Ok(Some(String::new()))
    }

    /// Runs a command that only shows a part of the state. Returns `None` for another command.
    fn look(&mut self, name: &str, words: &mut Words) -> Result<Option<String>, Box<dyn Error>> {
        let state = &self.state;
        let output = match name {
            "get" => show::data(state, &words.path()?),
            "stat" => show::stat(state, &words.path()?),
            "acl" => show::acl(state, &words.path()?),
            "children" => show::children(state, &words.path()?, words.key("after").as_deref()),
            "tree" => show::tree(state),
            "sessions" => show::sessions(state, SessionId(words.key_number("after", 0)?)),
            "counts" => show::counts(state),
            "quotas" => show::quotas(state),
            "candidates" => {
                let now_ms = words.key_number("now", self.time_ms)?;
                show::candidates(&state.reap_candidates(now_ms, words.key_number("max", 100)? as usize))
            }
            "status" => show::status(&lock::status(state, &self.ticket(words)?)),
            "position" => show::position(&lock::position(state, &self.ticket(words)?)),
            "queue" => {
                let (path, from) = (words.path()?, words.key_number("from", 0)? as usize);
                show::queue(&lock::queue(state, &path, from, words.key_number("max", 100)? as usize))
            }
            "history" => {
                let path = words.path()?;
                show::history(&lock::history(state, &path, words.key_number("max", 100)? as usize))
            }
            "past" => {
                let path = words.path()?;
                lock::may_read_history(state, &path, &words.identities()).to_string()
            }
            "mixed-clients" => {
                let mixed = lock::mixed_clients(state, &words.path()?);
                format!("{}of {} locks", show::mixed_clients(&mixed), state.mixed_lock_count())
            }
            "ended" => show::ended(state.ended_session(SessionId(words.number()?))),
            "list" => {
                let (prefix, after) = (words.path()?, words.key_path("after")?);
                show::list(&lock::list(state, &prefix, after.as_ref(), words.key_number("max", 100)? as usize))
            }
            "held" => {
                let path = words.path()?;
                lock::is_held_with(state, &path, znode::FencingToken(words.key_number("token", 0)?)).to_string()
            }
            _ => return Ok(None),
        };
        Ok(Some(output))
    }

    /// Runs a command that becomes one entry of the log.
    fn transact(&mut self, name: &str, words: &mut Words) -> Result<String, Box<dyn Error>> {
        let secret = words.key_number("secret", 1)? as u8;
        let guard = words.guard()?;
        let address = words.key("from").map(|address| address.parse()).transpose()?;
        let request = if name == "open" {
            Request::new(words.open(secret)?)
        } else {
            let session = words.key("session").map(|id| id.parse().map(SessionId)).transpose()?;
            let credential = session.map(|session| {
                let secret = if secret == 1 { *self.secrets.get(&session).unwrap_or(&1) } else { secret };
                Credential { session, secret_hash: [secret; 16] }
            });
            let number = words.key("turn").map(|turn| turn.parse()).transpose()?;
            let connection = words.key_number("connection", 0)?;
            let turn = number.map(|number| WriteTurn { connection, number });
            let identities = words.identities();
            let attempt = self.attempt(name, words)?;
            Request { credential, turn, identities, attempt, ..Request::new(self.op(name, words, session)?) }
        };
        let key = words.key("key").map(|key| key.parse::<u64>()).transpose()?;
        let request = Request { key: key.map(request_key), guard, address, ..request };
        let opens = matches!(request.op, Op::OpenSession { .. });
        let (applied, events) = self.apply(request);
        match &applied.reply {
            Ok(Reply::SessionOpened { session, .. }) if opens => {
                self.secrets.insert(*session, secret);
            }
            Ok(Reply::Acquired { ticket, .. }) => {
                self.tickets.extend(key.map(|key| (key, ticket.clone())));
            }
            _ => {}
        }
        Ok(show::applied(&applied, &events, &self.state))
    }

    fn op(&mut self, name: &str, words: &mut Words, session: Option<SessionId>) -> Result<Op, Box<dyn Error>> {
        Ok(match name {
            "close" => Op::CloseSession {
                session: words
                    .key("of")
                    .map(|of| of.parse().map(SessionId))
                    .transpose()?
                    .or(session)
                    .ok_or("whose?")?,
            },
            "attach" => {
                let connection = words.number()?;
                Op::AttachSession { connection, timeout_ms: words.key_number("timeout", 10_000)? as u32 }
            }
            "expire" => {
                let term = Term(words.key_number("term", self.term.0)?);
                Op::ExpireSessions { sessions: words.rest_numbers()?.into_iter().map(SessionId).collect(), term }
            }
            "multi" => Op::Multi(words.multi()?),
            "setacl" => {
                let path = self.ticket(words)?;
                Op::SetAcl { path, acl: words.acl()?, version: words.version()? }
            }
            "acquire" => Op::Acquire(words.acquire()?),
            "setlock" => {
                let number = |number: Option<String>| number.map(|number| number.parse::<u32>()).transpose();
                let (limit, waiters_max) = (number(words.key("limit"))?, number(words.key("waiters"))?);
                let managed = words.key("managed").as_deref() == Some("true");
                Op::SetLock { lock: words.path()?, settings: znode::LockSettings { limit, managed, waiters_max } }
            }
            "handover" => Op::HandOver { ticket: self.ticket(words)?, to: self.ticket(words)? },
            "acquireall" => Op::AcquireAll(words.acquire_all()?),
            "release" => Op::Release { ticket: self.ticket(words)?.into() },
            "releaseheld" => Op::Release { ticket: TicketRef::Held(words.held_ticket()?) },
            "withdraw" => {
                let ticket = self.ticket(words)?;
                let attempt = znode::Attempt(words.key_number("attempt", 0)?);
                Op::Withdraw { ticket, attempt, if_waiting: words.key("if_waiting").as_deref() == Some("true") }
            }
            "reap" => Op::Reap { candidates: self.to_reap(words)? },
            "revoke" => {
                let path = self.ticket(words)?;
                let deadline_ms = words.key_duration("deadline")?.map(|ms| ms as u32);
                Op::Revoke { path, deadline_ms }
            }
            "upgrade" => {
                let (ticket, label) = (self.ticket(words)?, words.key("label").unwrap_or_default());
                Op::Upgrade(Upgrade { ticket, label })
            }
            "limits" => Op::SetLimits(words.limits(self.state.limits())?),
            _ => Op::Znode(words.znode_op(name)?),
        })
    }

    /// The attempt number of an acquire: a new number unless the command gives one; 0 for other
    /// commands.
    fn attempt(&mut self, name: &str, words: &mut Words) -> Result<Attempt, Box<dyn Error>> {
        if !matches!(name, "acquire" | "acquireall" | "upgrade") {
            return Ok(Attempt(0));
        }
        self.attempts += 1;
        Ok(Attempt(words.key_number("attempt", self.attempts)?))
    }

    /// The znodes that a `reap` command proposes to delete, named by path, with their own czxid or
    /// the given one. Without paths, all znodes that may be deleted now.
    fn to_reap(&self, words: &mut Words) -> Result<Vec<znode::ReapCandidate>, Box<dyn Error>> {
        let czxid = words.key("czxid").map(|czxid| czxid.parse().map(Zxid)).transpose()?;
        let paths = words.rest_paths()?;
        if paths.is_empty() {
            return Ok(self.state.reap_candidates(self.time_ms, 100));
        }
        let czxid_of = |path: &ZPath| self.state.node(path).map_or(Zxid(0), |node| node.stat().czxid);
        let candidate = |path: ZPath| znode::ReapCandidate { czxid: czxid.unwrap_or(czxid_of(&path)), path };
        Ok(paths.into_iter().map(candidate).collect())
    }

    /// Takes a ticket from the words, named by its path or by the key of its acquire.
    fn ticket(&self, words: &mut Words) -> Result<ZPath, Box<dyn Error>> {
        let word = words.next()?;
        match word.parse::<u64>() {
            Ok(key) => Ok(self.tickets.get(&key).ok_or("no acquire with that key had a ticket")?.clone()),
            Err(_) => Ok(ZPath::parse(&word)?),
        }
    }

    fn apply(&mut self, request: Request) -> (TxnOutcome, Vec<EventRecord>) {
        self.zxid.0 += 1;
        let at = LogPosition { term: self.term, zxid: self.zxid };
        let txn = Txn { proven: false, time_ms: self.time_ms, request };
        let bytes = znode::encode_txn(&txn);
        assert_eq!(znode::decode_txn(&bytes).as_ref(), Ok(&txn));
        let applied = self.state.apply_recorded(at, txn.clone(), &bytes);
        assert_eq!(self.twin.apply_recorded(at, txn, &bytes), applied, "a replica from a snapshot answers otherwise");
        applied
    }

    fn check(&mut self) {
        self.state.check_invariants().unwrap();
        let records: Vec<_> = self.state.records().collect();
        assert_eq!(self.twin.records().collect::<Vec<_>>(), records, "a replica from a snapshot has other records");
        let mut builder = StateBuilder::new();
        for record in &records {
            builder.push(record).unwrap();
        }
        self.twin = builder.finish().unwrap();
        self.twin.check_invariants().unwrap();
        assert_eq!(self.twin.records().collect::<Vec<_>>(), records, "a snapshot does not give back what went in");
    }
}

fn request_key(key: u64) -> RequestKey {
    RequestKey(u128::from(key).to_be_bytes())
}

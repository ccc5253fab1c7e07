//! Long reads, executed in slices, as pure functions of a state.

use std::sync::Arc;

use jute::{DataStat, MultiHeader, MultiOp, MultiResult, Record, error, op, write_multi_results};
use znode::{Identity, SessionId, State, ZPath, Znode};

use crate::request::reads::{Reader, stat_of};

/// Work of one slice. The unit is the work of listing one name. A read with more work is a long
/// read.
pub(crate) const SLICE: usize = 1_000;
/// Work of one operation of a multiRead, counted in listed names.
const OP: usize = 4;
/// Number of bytes of data that take as long to copy as one name takes to list.
const NAME_BYTES: usize = 256;

/// Part of a request that may take long.
#[derive(Clone, Copy)]
pub(crate) enum Walk<'a> {
    /// A walk over the names of a znode's children.
    Children { path: &'a str, with_stat: bool },
    /// A walk over the session's ephemeral znodes.
    Ephemerals { prefix: &'a str },
    /// The operations of a multiRead.
    Reads(&'a [MultiOp]),
}

/// Tells whether a request takes so long that it would delay other clients: whether its work
/// exceeds [`SLICE`]. The work of each operation, counted in listed names:
///
/// | request | work |
/// |---|---|
/// | getChildren, getChildren2, with a watch or without | children of the znode |
/// | getEphemerals | ephemerals of the session, whether they have the prefix or not |
/// | multiRead | four for each operation, and children of the znodes that it lists |
/// | all others, such as exists, getData, getACL and whoAmI | none: their work has a bound |
pub(crate) fn is_long(state: &State, session: SessionId, walk: Option<Walk<'_>>) -> bool {
    let children = |path: &str| {
        let node = ZPath::parse(path).ok().and_then(|path| state.node(&path));
        node.map_or(0, |node| node.stat().num_children as usize)
    };
    let names = match walk {
        Some(Walk::Children { path, .. }) => children(path),
        Some(Walk::Ephemerals { .. }) => state.session(session).map_or(0, |session| session.ephemeral_count()),
        Some(Walk::Reads(ops)) if ops.len() * OP > SLICE => return true,
        Some(Walk::Reads(ops)) => {
            ops.iter().map(|one| if let MultiOp::GetChildren(which) = one { children(&which.path) } else { OP }).sum()
        }
        None => 0,
    };
    names > SLICE
}

/// A long read, which is executed in slices. A first execution measures the length of its answer,
/// and a second one writes the answer from the same state.
pub(crate) struct LongRead {
    state: Arc<State>,
    identities: Arc<Vec<Identity>>,
    session: SessionId,
    pieces: Vec<Piece>,
    is_multi: bool,
    bytes_max: usize,
    next: usize,
    list: Option<PartialList>,
}

/// One operation of a long read; only a multiRead has several. They are executed one after the
/// other.
enum Piece {
    Children { path: String, with_stat: bool },
    Ephemerals { prefix: String },
    Data { path: String },
    Unknown,
}

/// A list of names that is written to the answer only in part. Later slices write the other names.
struct PartialList {
    /// Position in the answer of the list's length, which is written when all names are listed.
    at: usize,
    names: i32,
    after: Option<Box<str>>,
    /// Stat that follows the list in the answer; `None` if the operation asks for no stat.
    stat: Option<jute::Stat>,
}

/// Destination of an answer.
pub(crate) enum Sink {
    /// No destination: the answer is only measured. The number is the answer's length in bytes so
    /// far.
    Measure(usize),
    /// Buffer to which the answer is appended.
    Write(Vec<u8>),
}

/// Result of executing one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Work of the slice, counted in listed names.
    pub(crate) visited: usize,
    /// True if the read is complete.
    pub(crate) is_last: bool,
}

impl LongRead {
    /// Makes a long read. Measuring an answer longer than `bytes_max` fails.
    pub(crate) fn new(
        state: Arc<State>,
        identities: Arc<Vec<Identity>>,
        session: SessionId,
        walk: Option<Walk<'_>>,
        bytes_max: usize,
    ) -> LongRead {
        let children = |path: &str, with_stat| Piece::Children { path: path.to_owned(), with_stat };
        let pieces = match walk {
            Some(Walk::Children { path, with_stat }) => vec![children(path, with_stat)],
            Some(Walk::Ephemerals { prefix }) => vec![Piece::Ephemerals { prefix: prefix.to_owned() }],
            Some(Walk::Reads(ops)) => ops
                .iter()
                .map(|one| match one {
                    MultiOp::GetChildren(which) => children(&which.path, false),
                    MultiOp::GetData(which) => Piece::Data { path: which.path.clone() },
                    _ => Piece::Unknown,
                })
                .collect(),
            None => vec![Piece::Unknown],
        };
        let is_multi = matches!(walk, Some(Walk::Reads(_)));
        LongRead { state, identities, session, pieces, is_multi, bytes_max, next: 0, list: None }
    }

    /// Executes one slice. After the last slice, the next call executes the read again from the
    /// beginning.
    ///
    /// # Errors
    /// The error code for the answer.
    pub(crate) fn step(&mut self, sink: &mut Sink) -> Result<Slice, i32> {
        let mut visited = 0;
        while visited < SLICE {
            if self.list.is_some() {
                visited += self.go_on(SLICE - visited, sink)?;
            } else if self.next < self.pieces.len() {
                visited += self.begin(sink)?;
            } else {
                if self.is_multi {
                    let mut end = Vec::new();
                    write_multi_results(&[], &mut end);
                    sink.put(&end);
                }
                (self.next, self.list) = (0, None);
                return Ok(Slice { visited, is_last: true });
            }
            if matches!(sink, Sink::Measure(bytes) if *bytes > self.bytes_max) {
                return Err(error::BAD_ARGUMENTS);
            }
        }
        Ok(Slice { visited, is_last: false })
    }

    /// Begins the next operation of the read. Returns its work so far, counted in listed names.
    fn begin(&mut self, sink: &mut Sink) -> Result<usize, i32> {
        let reader = Reader { state: &self.state, identities: &self.identities };
        let piece = &self.pieces[self.next];
        let found = match piece {
            Piece::Children { path, .. } | Piece::Data { path } => reader.readable(path).map(Some),
            Piece::Ephemerals { .. } => Ok(None),
            Piece::Unknown => Err(error::MARSHALLING),
        };
        let node = match found {
            Ok(node) => node,
            Err(code) if self.is_multi => {
                sink.record(|out| MultiResult::Error(code).write(out));
                self.next += 1;
                return Ok(OP);
            }
            Err(code) => return Err(code),
        };
        let header = |op, out: &mut Vec<u8>| MultiHeader { op, done: false, error: 0 }.write(out);
        if let (Piece::Data { .. }, Some(node)) = (piece, node) {
            sink.record(|out| header(op::GET_DATA, out));
            sink.data(node);
            self.next += 1;
            return Ok(OP + node.data().len() / NAME_BYTES);
        }
        if self.is_multi {
            sink.record(|out| header(op::GET_CHILDREN, out));
        }
        let stat = node.filter(|_| matches!(piece, Piece::Children { with_stat: true, .. })).map(stat_of);
        self.list = Some(PartialList { at: sink.len(), names: 0, after: None, stat });
        sink.record(|out| 0.write(out));
        Ok(OP)
    }

    /// Continues the present list with at most `max` names. Returns the number of names visited.
    fn go_on(&mut self, max: usize, sink: &mut Sink) -> Result<usize, i32> {
        let Some(list) = &mut self.list else { return Ok(0) };
        let mut visited = 0;
        let mut last = None;
        let after = list.after.as_deref();
        let mut visit = |name: &str, counts: bool| {
            visited += 1;
            if counts {
                list.names += 1;
                sink.name(name);
            }
            if visited == max {
                last = Some(Box::from(name));
            }
        };
        match &self.pieces[self.next] {
            Piece::Children { path, .. } => {
                let path = ZPath::parse(path).map_err(|_| error::NO_NODE)?;
                match after {
                    None => self
                        .state
                        .children(&path)
                        .map_err(|_| error::NO_NODE)?
                        .take(max)
                        .for_each(|name| visit(name, true)),
                    Some(after) => {
                        let rest = self.state.children_from(&path, after).map_err(|_| error::NO_NODE)?;
                        rest.take(max).for_each(|name| visit(name, true));
                    }
                }
            }
            Piece::Ephemerals { prefix } => {
                let session = self.state.session(self.session);
                let after = after.and_then(|after| ZPath::parse(after).ok());
                let paths = session.into_iter().flat_map(|session| session.ephemerals_from(after.as_ref()));
                paths.take(max).for_each(|path| visit(path.as_str(), path.as_str().starts_with(prefix)));
            }
            Piece::Data { .. } | Piece::Unknown => {}
        }
        match last {
            Some(last) => list.after = Some(last),
            None => {
                sink.length(list.at, list.names);
                if let Some(stat) = &list.stat {
                    sink.record(|out| stat.write(out));
                }
                self.list = None;
                self.next += 1;
            }
        }
        Ok(visited)
    }
}

impl Sink {
    /// Returns the length of the answer in bytes so far.
    pub(crate) fn len(&self) -> usize {
        match self {
            Sink::Measure(bytes) => *bytes,
            Sink::Write(bytes) => bytes.len(),
        }
    }

    fn put(&mut self, more: &[u8]) {
        match self {
            Sink::Measure(bytes) => *bytes += more.len(),
            Sink::Write(bytes) => bytes.extend_from_slice(more),
        }
    }

    /// Appends a short record.
    fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Sink::Measure(bytes) => {
                let mut record = Vec::new();
                write(&mut record);
                *bytes += record.len();
            }
            Sink::Write(bytes) => write(bytes),
        }
    }

    /// Appends a text in the protocol's encoding.
    fn name(&mut self, name: &str) {
        if let Sink::Write(bytes) = self {
            length(name.len()).write(bytes);
        } else {
            self.put(&[0; 4]);
        }
        self.put(name.as_bytes());
    }

    /// Appends the answer to getData.
    fn data(&mut self, node: &Znode) {
        let stat = stat_of(node);
        match self {
            Sink::Measure(bytes) => {
                *bytes += DataStat { stat, ..DataStat::default() }.to_bytes().len() + node.data().len()
            }
            Sink::Write(bytes) => {
                length(node.data().len()).write(bytes);
                bytes.extend_from_slice(node.data());
                stat.write(bytes);
            }
        }
    }

    /// Writes the length of a list at the position reserved for it.
    fn length(&mut self, at: usize, names: i32) {
        if let Sink::Write(bytes) = self {
            bytes[at..at + 4].copy_from_slice(&names.to_be_bytes());
        }
    }
}

fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use jute::{PathOnly, PathWatch, Request};
    use znode::{Acl, Create, CreateMode, Credential, LogPosition, Op, Term, Txn, ZnodeOp, Zxid};

    use super::*;
    use crate::request::operations::{answer, needs};

    const SESSION: SessionId = SessionId(1);

    /// A state with `/many`, `/secret` and `/data`. `/many` has ephemeral children of the session,
    /// with 2,500 names of 200 bytes.
    fn state() -> Arc<State> {
        let mut state = State::default();
        let mut zxid = 0;
        let mut apply = |request| {
            zxid += 1;
            let at = LogPosition { term: Term(1), zxid: Zxid(zxid) };
            state.apply(at, Txn { proven: false, time_ms: zxid, request }).reply.unwrap();
        };
        let secret_hash = [0; 16];
        apply(znode::Request::new(Op::OpenSession {
            client: znode::ClientInfo::default(),
            secret_hash,
            timeout_ms: 5_000,
            label: String::new(),
            address: None,
        }));
        let acl = |id: &str| {
            vec![Acl { perms: 31, scheme: if id == "anyone" { "world" } else { "digest" }.into(), id: id.into() }]
        };
        let create = |parent: &str, name: String, mode, id| {
            let new = Create::new(ZPath::parse(parent).unwrap(), name);
            let create = ZnodeOp::Create(Create { data: vec![7; 1_000], mode, acl: acl(id), ..new });
            let credential = Some(Credential { session: SESSION, secret_hash });
            znode::Request { credential, ..znode::Request::new(Op::Znode(create)) }
        };
        apply(create("/", "many".into(), CreateMode::Persistent, "anyone"));
        apply(create("/", "secret".into(), CreateMode::Persistent, "bob:x"));
        apply(create("/", "data".into(), CreateMode::Persistent, "anyone"));
        for n in 0..2_500 {
            apply(create("/many", format!("{n:05}{}", "n".repeat(195)), CreateMode::Ephemeral, "anyone"));
        }
        Arc::new(state)
    }

    /// Executes a request in slices, to measure its answer and then to write it. Returns the
    /// answer's body, and the largest work of one slice.
    fn slowly(state: &Arc<State>, request: &Request) -> (Result<Vec<u8>, i32>, usize) {
        let mut read = LongRead::new(Arc::clone(state), Arc::default(), SESSION, needs(request).walk, 1 << 20);
        let (mut measured, mut written, mut most) = (Sink::Measure(0), Sink::Write(Vec::new()), 0);
        for sink in [&mut measured, &mut written] {
            loop {
                match read.step(sink) {
                    Err(code) => return (Err(code), most),
                    Ok(slice) => {
                        most = most.max(slice.visited);
                        if slice.is_last {
                            break;
                        }
                    }
                }
            }
        }
        let Sink::Write(body) = written else { panic!("it was written") };
        assert_eq!(measured.len(), body.len(), "{request:?}");
        (Ok(body), most)
    }

    #[test]
    fn a_long_read_in_slices_says_what_it_says_at_once_and_no_slice_is_long() {
        let state = state();
        let which = |path: &str| PathWatch { path: path.into(), watch: false };
        let children = |path: &str| MultiOp::GetChildren(which(path));
        let data = |path: &str| MultiOp::GetData(which(path));
        let below = |prefix: &str| Request::GetEphemerals(PathOnly { path: prefix.into() });
        let requests = [
            Request::GetChildren(which("/many")),
            Request::GetChildren2(which("/many")),
            Request::GetChildren2(which("/")),
            Request::GetChildren(which("/none")),
            Request::GetChildren2(which("/secret")),
            below("/many/01"),
            below(""),
            below("/none"),
            Request::MultiRead(vec![
                children("/many"),
                data("/none"),
                data("/data"),
                children("/secret"),
                children("/"),
            ]),
            Request::MultiRead(vec![data("/data"); 500]),
            Request::MultiRead(vec![children("/many"); 3]),
            Request::MultiRead(Vec::new()),
        ];
        let reader = Reader { state: &state, identities: &[] };
        for request in &requests {
            let (body, most) = slowly(&state, request);
            let at_once = answer(request, reader, SESSION, 1 << 20);
            assert_eq!(body.as_ref().map(Vec::len), at_once.as_ref().map(Vec::len), "{request:?}");
            assert_eq!(body, at_once);
            assert!(most <= SLICE + OP + 1_000 / NAME_BYTES, "{most} at once for {request:?}");
        }
    }

    #[test]
    fn what_is_long_is_told_by_what_it_goes_through() {
        let state = state();
        let is_long = |request: &Request| is_long(&state, SESSION, needs(request).walk);
        let many = || PathWatch { path: "/many".into(), watch: true };
        assert!(is_long(&Request::GetChildren(many())) && is_long(&Request::GetChildren2(many())));
        assert!(!is_long(&Request::GetChildren(PathWatch { path: "/".into(), watch: false })));
        // The walk is long although no path has the prefix, because each path is compared with it.
        assert!(is_long(&Request::GetEphemerals(PathOnly { path: "/none".into() })));
        assert!(is_long(&Request::MultiRead(vec![MultiOp::GetChildren(many())])));
        assert!(is_long(&Request::MultiRead(vec![MultiOp::GetData(many()); SLICE])));
        assert!(!is_long(&Request::MultiRead(vec![MultiOp::GetData(many()); 10])));
        assert!(!is_long(&Request::GetData(many())) && !is_long(&Request::GetAllChildrenNumber(PathOnly::default())));
    }
}

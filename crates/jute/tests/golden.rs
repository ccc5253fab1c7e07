//! Compares the records with ZooKeeper's own bytes in `golden/records-3.8.hex`, which
//! `golden/Golden.java` wrote.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::{Debug, Write as _};

use jute::{
    Acl, AclStat, AddWatchRequest, AuthRequest, Buffer, ClientInfo, ConnectRequest, ConnectResponse, CreateRequest,
    CreateTtlRequest, DataStat, DecodeError, Input, MultiHeader, MultiOp, MultiResult, Names, NamesStat, Number,
    PathOnly, PathStat, PathVersion, PathWatch, PathWatcher, ReconfigRequest, Record, ReplyHeader, Request,
    RequestHeader, SaslToken, SetAclRequest, SetDataRequest, SetWatches, SetWatches2, Stat, WatcherEvent,
    WhoAmIResponse, op, read_multi_results, write_multi_results,
};

const GOLDEN: &str = include_str!("golden/records-3.8.hex");

fn golden(name: &str) -> Vec<u8> {
    let hex = GOLDEN.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let hex = hex.unwrap_or_else(|| panic!("{name} is not in the file")).trim();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Checks that the value encodes to the golden bytes, and that the bytes decode to the value.
#[track_caller]
fn both_ways<T: Record + PartialEq + Debug>(name: &str, value: &T) {
    assert_eq!(hex(&value.to_bytes()), hex(&golden(name)), "{name}");
    read_back(name, value);
}

/// Checks that the golden bytes decode to the value, also with more bytes after them, and that
/// decoding fails without their last byte.
#[track_caller]
fn read_back<T: Record + PartialEq + Debug>(name: &str, value: &T) {
    let mut bytes = golden(name);
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value), "{name}");
    let short = T::from_bytes(&bytes[..bytes.len() - 1]);
    assert!(short.as_ref() != Ok(value), "{name} without its last byte");
    bytes.extend_from_slice(b"more");
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value), "{name} with more behind it");
}

#[track_caller]
fn request(name: &str, request: &Request) {
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    assert_eq!(hex(&bytes), hex(&golden(name)), "{name}");
    assert_eq!(Request::read(request.op(), &bytes).as_ref(), Ok(request), "{name}");
    assert!(Request::read(request.op(), &bytes[..bytes.len() - 1]).is_err(), "{name} without its last byte");
    bytes.push(0);
    assert_eq!(Request::read(request.op(), &bytes).as_ref(), Ok(request), "{name} with more behind it");
}

fn path() -> String {
    "/a".into()
}

fn data() -> Buffer {
    vec![0, 1, 0xff].into()
}

fn stat() -> Stat {
    Stat {
        czxid: 1,
        mzxid: 2,
        ctime_ms: 3,
        mtime_ms: 4,
        version: 5,
        cversion: 6,
        aversion: 7,
        ephemeral_owner: 8,
        data_length: 9,
        num_children: 10,
        pzxid: 11,
    }
}

fn acl() -> Vec<Acl> {
    vec![
        Acl { perms: 31, scheme: "world".into(), id: "anyone".into() },
        Acl { perms: 1, scheme: "digest".into(), id: "bob:x".into() },
    ]
}

fn names() -> Vec<String> {
    ["a", "", "ü"].map(String::from).to_vec()
}

fn create(flags: i32) -> CreateRequest {
    CreateRequest { path: path(), data: data(), acl: acl(), flags }
}

#[test]
fn the_handshake_has_zookeepers_bytes() {
    let password: Buffer = (0..16).map(|at| at * 17).collect::<Vec<u8>>().into();
    let asked = |read_only| ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0x1_0000_0001,
        timeout_ms: 30_000,
        session_id: -2,
        password: password.clone(),
        read_only,
    };
    both_ways("connect-request", &asked(Some(true)));
    let answered = |read_only| ConnectResponse {
        protocol_version: 0,
        timeout_ms: 4000,
        session_id: i64::MAX,
        password: password.clone(),
        read_only,
    };
    both_ways("connect-response", &answered(Some(false)));
    // The optional field `read_only` of newer clients is missing.
    assert_eq!(hex(&asked(None).to_bytes()), hex(&golden("connect-request-old")));
    assert_eq!(ConnectRequest::from_bytes(&golden("connect-request-old")), Ok(asked(None)));
    assert_eq!(hex(&answered(None).to_bytes()), hex(&golden("connect-response-old")));
    assert_eq!(ConnectResponse::from_bytes(&golden("connect-response-old")), Ok(answered(None)));
}

#[test]
fn headers_and_shared_records_have_zookeepers_bytes() {
    both_ways("request-header", &RequestHeader { xid: 7, op: op::CLOSE_SESSION });
    both_ways("reply-header", &ReplyHeader { xid: -8, zxid: 0x0102_0304_0506_0708, error: -110 });
    both_ways("stat", &stat());
    both_ways("acl", &acl()[1]);
    both_ways("watcher-event", &WatcherEvent { kind: 4, state: 3, path: path() });
    both_ways("multi-header", &MultiHeader { op: 1, done: false, error: -1 });
}

#[test]
fn requests_have_zookeepers_bytes() {
    let watch = |watch| PathWatch { path: path(), watch };
    let only = || PathOnly { path: path() };
    request("create", &Request::Create(op::CREATE2, create(3)));
    let ttl = CreateTtlRequest { path: path(), data: data(), acl: acl(), flags: 5, ttl_ms: 60_000 };
    request("create-ttl", &Request::CreateTtl(ttl));
    request("delete", &Request::Delete(PathVersion { path: path(), version: -1 }));
    request("exists", &Request::Exists(watch(true)));
    request("get-data", &Request::GetData(watch(false)));
    request("set-data", &Request::SetData(SetDataRequest { path: path(), data: data(), version: 2 }));
    request("get-acl", &Request::GetAcl(only()));
    request("set-acl", &Request::SetAcl(SetAclRequest { path: path(), acl: acl(), version: 2 }));
    request("get-children", &Request::GetChildren(watch(true)));
    request("get-children2", &Request::GetChildren2(watch(true)));
    request("sync", &Request::Sync(only()));
    request("check", &Request::Check(PathVersion { path: path(), version: 2 }));
    let joining = Some("server.1=a".into());
    request(
        "reconfig",
        &Request::Reconfig(ReconfigRequest { joining, leaving: None, new_members: None, config_id: -1 }),
    );
    request("check-watches", &Request::CheckWatches(PathWatcher { path: path(), kind: 2 }));
    request("remove-watches", &Request::RemoveWatches(PathWatcher { path: path(), kind: 3 }));
    request("auth", &Request::Auth(AuthRequest { kind: 0, scheme: "digest".into(), auth: data() }));
    request("sasl-request", &Request::Sasl(SaslToken { token: data() }));
    request("get-ephemerals", &Request::GetEphemerals(only()));
    request("get-all-children-number", &Request::GetAllChildrenNumber(only()));
    request("add-watch", &Request::AddWatch(AddWatchRequest { path: path(), mode: 1 }));
    request(
        "set-watches2",
        &Request::SetWatches2(SetWatches2 {
            relative_zxid: 9,
            data: names(),
            exist: Vec::new(),
            child: names(),
            persistent: vec!["/p".into()],
            persistent_recursive: vec!["/r".into()],
        }),
    );
    let set = MultiOp::SetData(SetDataRequest { path: path(), data: data(), version: 2 });
    let ttl = CreateTtlRequest { path: "/t".into(), data: data(), acl: acl(), flags: 5, ttl_ms: 60_000 };
    request(
        "multi",
        &Request::Multi(vec![
            MultiOp::Create(op::CREATE, create(3)),
            MultiOp::Create(op::CREATE_CONTAINER, CreateRequest { path: "/c".into(), ..create(4) }),
            MultiOp::CreateTtl(ttl),
            MultiOp::Delete(PathVersion { path: path(), version: 1 }),
            set,
            MultiOp::Check(PathVersion { path: path(), version: 3 }),
        ]),
    );
    let children = MultiOp::GetChildren(PathWatch { path: "/b".into(), watch: false });
    request("multi-read", &Request::MultiRead(vec![MultiOp::GetData(watch(false)), children]));
}

#[test]
fn null_lists_read_as_empty_ones() {
    let empty = CreateRequest { path: path(), data: Buffer(None), acl: Vec::new(), flags: 0 };
    read_back("create-null", &empty);
    let set = SetWatches { relative_zxid: 9, data: names(), exist: Vec::new(), child: Vec::new() };
    read_back("set-watches", &set);
}

#[test]
fn replies_have_zookeepers_bytes() {
    let path_only = PathOnly { path: path() };
    both_ways("create-response", &path_only);
    both_ways("sync-response", &path_only);
    both_ways("create2-response", &PathStat { path: path(), stat: stat() });
    both_ways("exists-response", &stat());
    both_ways("set-data-response", &stat());
    both_ways("set-acl-response", &stat());
    both_ways("get-data-response", &DataStat { data: data(), stat: stat() });
    both_ways("get-acl-response", &AclStat { acl: acl(), stat: stat() });
    both_ways("get-children-response", &Names { names: names() });
    both_ways("get-children2-response", &NamesStat { names: names(), stat: stat() });
    both_ways("get-ephemerals-response", &Names { names: names() });
    both_ways("get-all-children-number-response", &Number { number: 42 });
    both_ways("error-response", &Number { number: -101 });
    both_ways("sasl-response", &SaslToken { token: Buffer(None) });
    let clients = vec![ClientInfo { scheme: "ip".into(), user: "127.0.0.1".into() }];
    both_ways("who-am-i-response", &WhoAmIResponse { clients });
}

#[test]
fn results_of_a_multi_have_zookeepers_bytes() {
    let results = vec![
        MultiResult::Created(path()),
        MultiResult::CreatedStat(PathStat { path: path(), stat: stat() }),
        MultiResult::Deleted,
        MultiResult::Set(stat()),
        MultiResult::Checked,
        MultiResult::Data(DataStat { data: data(), stat: stat() }),
        MultiResult::Children(names()),
        MultiResult::Error(-101),
    ];
    let mut bytes = Vec::new();
    write_multi_results(&results, &mut bytes);
    assert_eq!(hex(&bytes), hex(&golden("multi-response")));
    assert_eq!(read_multi_results(&mut Input::new(&bytes)), Ok(results));
}

#[test]
fn every_golden_record_is_compared() {
    let source = include_str!("golden.rs");
    for line in GOLDEN.lines() {
        let name = line.split(' ').next().unwrap();
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    assert_eq!(Buffer::from_bytes(&[0xff, 0xff, 0xff, 0xfe]), Err(DecodeError::Length(-2)));
    assert_eq!(String::from_bytes(&[0xff; 4]), Err(DecodeError::Length(-1)));
    assert_eq!(String::from_bytes(&[0, 0, 0, 1, 0xff]), Err(DecodeError::Text));
    assert_eq!(Vec::<String>::from_bytes(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]), Err(DecodeError::Short));
    // A multi may have no reads, and a multiRead may have no writes.
    assert_eq!(Request::read(op::MULTI, &golden("multi-read")), Err(DecodeError::Op(op::GET_DATA)));
    assert_eq!(Request::read(op::MULTI_READ, &golden("multi")), Err(DecodeError::Op(op::CREATE)));
    assert_eq!(Request::read(12_345, b""), Ok(Request::Unknown(12_345)));
}

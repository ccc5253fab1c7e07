//! Tests with arbitrary bytes: a decoder returns a value or an error, and every decoded value
//! encodes and decodes to an equal value.
//!
//! The rules in `rules.rs` are also fuzzed: see `crates/jute/fuzz`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allocated;
mod rules;

use fastrand::Rng;
use jute::{
    Acl, ConnectRequest, CreateRequest, FrameError, Frames, MultiOp, PathVersion, PathWatch, Record, Request,
    SetDataRequest, SetWatches2, framed, op,
};

/// Returns random bytes that look a little like a record: small numbers, nulls, lengths that fit,
/// text.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(0..12) {
        match rng.u8(0..6) {
            0 => bytes.extend(rng.i32(-3..6).to_be_bytes()),
            1 => bytes.extend(rng.i32(..).to_be_bytes()),
            2 => bytes.push(rng.u8(..)),
            3 => bytes.extend((0..rng.usize(0..9)).map(|_| rng.u8(..)).collect::<Vec<u8>>()),
            4 => String::from("/a").write(&mut bytes),
            _ => bytes.extend([0, 0, 0, op::ALL[rng.usize(0..op::ALL.len())] as u8, u8::from(rng.u8(..) < 40)]),
        }
    }
    bytes
}

/// Returns requests that real clients send, in the form of [`rules::decode`]: one byte with the
/// operation's number plus 12 (some numbers are negative), then the body.
fn requests() -> Vec<Vec<u8>> {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    let create = CreateRequest { path: "/a/b".into(), data: b"data".as_slice().into(), acl, flags: 3 };
    let set = SetDataRequest { path: "/a".into(), data: vec![0; 40].into(), version: -1 };
    let which = PathWatch { path: "/a/b/c".into(), watch: true };
    let version = PathVersion { path: "/a".into(), version: 7 };
    let paths: Vec<String> = vec!["/a".into(), "/b/c".into()];
    let watches = SetWatches2 { data: paths.clone(), persistent: paths, ..SetWatches2::default() };
    let multi = vec![
        MultiOp::Create(op::CREATE, create.clone()),
        MultiOp::SetData(set.clone()),
        MultiOp::Check(version.clone()),
        MultiOp::Delete(version),
    ];
    let requests = [
        Request::Create(op::CREATE2, create),
        Request::SetData(set),
        Request::GetData(which.clone()),
        Request::SetWatches2(watches),
        Request::Multi(multi),
        Request::MultiRead(vec![MultiOp::GetData(which.clone()), MultiOp::GetChildren(which)]),
    ];
    let one = |request: &Request| {
        let mut bytes = vec![(request.op() + 12) as u8];
        request.write(&mut bytes);
        bytes
    };
    requests.iter().map(one).collect()
}

/// Changes a request in a few places: replaces a byte, cuts the end off, writes an extreme length,
/// inserts bytes, or repeats bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(1..=bytes.len());
        match rng.u8(0..5) {
            0 if at < bytes.len() => bytes[at] = rng.u8(..),
            1 => bytes.truncate(at),
            2 => {
                let length = [-2, -1, 0, 1, 0xf_ffff, i32::MAX, i32::MIN][rng.usize(0..7)].to_bytes();
                let end = (at + 4).min(bytes.len());
                bytes.splice(at..end, length);
            }
            3 => _ = bytes.splice(at..at, [rng.u8(..), 0, 0]),
            _ => bytes.extend_from_within(at..),
        }
    }
}

#[test]
fn no_bytes_hurt_a_reader() {
    let mut read = 0;
    for seed in 0..100_000 {
        let mut rng = Rng::with_seed(seed);
        let mut bytes = bytes(&mut rng);
        bytes.insert(0, (op::ALL[rng.usize(0..op::ALL.len())] + 12) as u8);
        read += u32::from(rules::decode(&bytes));
    }
    assert!(read > 5_000, "only {read} of the requests could be read: the bytes are too random to test anything");
}

#[test]
fn no_change_to_a_good_request_hurts_a_reader() {
    let requests = requests();
    assert!(requests.iter().all(|request| rules::decode(request)));
    let mut read = 0;
    for seed in 0..50_000 {
        let mut rng = Rng::with_seed(seed);
        let mut bytes = requests[rng.usize(0..requests.len())].clone();
        mutate(&mut rng, &mut bytes);
        read += u32::from(rules::decode(&bytes));
    }
    assert!((5_000..45_000).contains(&read), "{read} requests could be read: the changes are not what they should be");
}

#[test]
fn no_length_makes_a_reader_allocate_what_is_not_there() {
    let requests = requests();
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let mut bytes = requests[rng.usize(0..requests.len())].clone();
        mutate(&mut rng, &mut bytes);
        let (op, body) = (i32::from(bytes[0]) - 12, &bytes[1..]);
        let allocated = allocated::during(|| _ = Request::read(op, body));
        // Four bytes of input may be an empty text, which takes 24 bytes in memory. A list grows by
        // doubling, which copies its items.
        let most = 64 * body.len() + 1_024;
        assert!(allocated <= most, "seed {seed}: {allocated} bytes for {}", body.len());
    }
}

#[test]
fn packets_come_out_as_they_went_in_however_they_are_cut() {
    for seed in 0..5_000 {
        let mut rng = Rng::with_seed(seed);
        let mut stream = Vec::new();
        for _ in 0..rng.usize(0..6) {
            let packet = bytes(&mut rng);
            stream.extend(framed(|out| out.extend_from_slice(&packet)));
        }
        if rng.u8(0..4) == 0 && !stream.is_empty() {
            let at = rng.usize(0..stream.len());
            stream[at] = rng.u8(..);
        }
        let (mut script, mut rest) = (vec![rng.u8(100..)], &stream[..]);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rng.usize(1..=rest.len().min(255)));
            script.push(piece.len() as u8);
            script.extend_from_slice(piece);
            rest = behind;
        }
        rules::frames(&script);
    }
}

#[test]
fn a_length_out_of_bounds_ends_the_stream_before_it_is_waited_for() {
    for (length, refused) in [(200, false), (201, true), (-1, true), (i32::MIN, true), (i32::MAX, true)] {
        let mut frames = Frames::new(200);
        frames.push(&length.to_bytes());
        assert_eq!(frames.next_packet(), if refused { Err(FrameError(length)) } else { Ok(None) });
    }
    let mut frames = Frames::new(200);
    frames.push(b"ruo");
    assert_eq!((frames.first_word(), frames.pending()), (None, 3));
    frames.push(b"k");
    assert_eq!(frames.first_word(), Some(*b"ruok"));
    assert!(frames.next_packet().is_err(), "a word is too long to be a length: {}", op::PING);
    assert!(ConnectRequest::from_bytes(b"ruok").is_err());
}

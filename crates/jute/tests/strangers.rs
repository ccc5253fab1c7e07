//! Bytes from strangers: whatever they are, a reader answers, and what it answers writes and reads back the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fastrand::Rng;
use jute::{ConnectRequest, FrameError, Frames, Input, Record, Request, framed, op, read_multi_results};

const OPS: [i32; 31] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 100, 101, 102, 103, 104, 105, 106, 107,
    -10, -11,
];

/// Bytes that look a little like a record: small numbers, nulls, lengths that fit, text.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(0..12) {
        match rng.u8(0..6) {
            0 => bytes.extend(rng.i32(-3..6).to_be_bytes()),
            1 => bytes.extend(rng.i32(..).to_be_bytes()),
            2 => bytes.push(rng.u8(..)),
            3 => bytes.extend((0..rng.usize(0..9)).map(|_| rng.u8(..)).collect::<Vec<u8>>()),
            4 => String::from("/a").write(&mut bytes),
            _ => bytes.extend([0, 0, 0, OPS[rng.usize(0..OPS.len())] as u8, u8::from(rng.u8(..) < 40)]),
        }
    }
    bytes
}

#[test]
fn no_bytes_hurt_a_reader() {
    let mut read = 0;
    for seed in 0..200_000 {
        let mut rng = Rng::with_seed(seed);
        let bytes = bytes(&mut rng);
        let op = OPS[rng.usize(0..OPS.len())];
        let _ = ConnectRequest::from_bytes(&bytes);
        let _ = read_multi_results(&mut Input::new(&bytes));
        let Ok(request) = Request::read(op, &bytes) else { continue };
        read += 1;
        let mut written = Vec::new();
        request.write(&mut written);
        assert_eq!(Request::read(op, &written).as_ref(), Ok(&request), "seed {seed}");
    }
    assert!(read > 10_000, "only {read} of the requests could be read: the bytes are too random to test anything");
}

#[test]
fn packets_come_out_as_they_went_in_however_they_are_cut() {
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let packets: Vec<Vec<u8>> = (0..rng.usize(0..6)).map(|_| bytes(&mut rng)).collect();
        let stream: Vec<u8> = packets.iter().flat_map(|one| framed(|out| out.extend_from_slice(one))).collect();
        let (mut frames, mut found, mut rest) = (Frames::new(200), Vec::new(), &stream[..]);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rng.usize(1..=rest.len()));
            frames.push(piece);
            rest = behind;
            while let Some(packet) = frames.next_packet().unwrap() {
                found.push(packet.to_vec());
            }
        }
        assert_eq!(found, packets, "seed {seed}");
        assert_eq!(frames.pending(), 0, "seed {seed}");
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
}

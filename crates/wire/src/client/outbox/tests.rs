use std::sync::Arc;

use accept::Stream;
use futures_util::FutureExt;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::client::shared_bytes::SharedBytes;

use super::*;

fn all() -> Arc<SharedBytes> {
    Arc::new(SharedBytes::new(1 << 30))
}

fn outbox(bytes_max: usize, all: &Arc<SharedBytes>) -> Outbox {
    Outbox::new(bytes_max, all.account(None), CancellationToken::new())
}

#[tokio::test]
async fn events_wait_for_the_answer_that_sets_their_watch() {
    let outbox = outbox(100, &all());
    outbox.push_event(b"1");
    outbox.hold();
    outbox.push_event(b"4");
    outbox.push(b"2".to_vec());
    outbox.release(b"3".to_vec());
    outbox.push_event(b"5");
    outbox.finish();
    outbox.push_event(b"6");
    assert_eq!(outbox.next().await.unwrap(), b"12345");
    assert_eq!(outbox.next().await, None);
}

#[tokio::test]
async fn what_the_socket_takes_is_sent_at_once_and_the_rest_is_the_writers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut client, accepted) = (client.unwrap(), accepted.unwrap().0);
    accepted.writable().await.unwrap();
    let (_reading, writing) = Stream::from(accepted).into_split();
    let outbox = outbox(1 << 30, &all());
    outbox.attach(writing.direct());
    assert!(outbox.push_event(b"first") && !outbox.push_event(b","));
    outbox.send_events();
    assert_eq!(outbox.unread(), 0);
    let mut sent = b"first,".to_vec();
    while outbox.unread() == 0 {
        outbox.push(vec![sent.len() as u8; 1 << 20]);
        sent.extend_from_slice(&vec![sent.len() as u8; 1 << 20]);
        outbox.send_now();
    }
    // An answer must not overtake bytes that are still unsent.
    outbox.push(b"last".to_vec());
    outbox.send_now();
    sent.extend_from_slice(b"last");
    let left = outbox.next().await.unwrap();
    outbox.push(b"!".to_vec());
    outbox.send_now();
    assert_eq!(outbox.next().await.unwrap(), b"!");
    sent.truncate(sent.len() - left.len());
    let mut received = vec![0; sent.len()];
    client.read_exact(&mut received).await.unwrap();
    assert!(received == sent && left.ends_with(b"last"));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let outbox = outbox(10, &all());
    outbox.push(b"12345".to_vec());
    assert!(outbox.has_room(Room::Read));
    let writing = outbox.next().await.unwrap();
    outbox.push(b"6".to_vec());
    assert!(!outbox.has_room(Room::Read), "{writing:?} is not written yet");
    outbox.push_event(b"78901");
    assert_eq!(outbox.next().await, None);
}

/// A long answer is sent even above the bound. The bound then applies to the bytes after it.
#[tokio::test]
async fn an_answer_of_any_length_is_sent_and_what_waits_behind_it_has_its_bound() {
    let outbox = outbox(10, &all());
    outbox.push(vec![1; 1_000]);
    outbox.push_event(&[2; 10]);
    assert!(!outbox.has_room(Room::Read));
    assert_eq!(outbox.next().await.unwrap().len(), 1_010);
    outbox.wrote(500);
    assert!(!outbox.is_aborted() && outbox.unread() == 510);
    outbox.wrote(499);
    outbox.push_event(&[3]);
    assert!(outbox.is_aborted(), "eleven bytes wait behind it");
}

#[test]
fn what_is_not_taken_counts_for_all_until_it_is_or_the_connection_ends() {
    let all = all();
    let outbox = outbox(1 << 20, &all);
    outbox.push(vec![1; UNCOUNTED_BYTES_MAX]);
    assert_eq!(all.look(), (0, 0), "a little is not counted");
    outbox.hold();
    outbox.push(vec![2; 1_000]);
    outbox.push_event(&[3; 500]);
    assert_eq!(all.look(), (1_500, 1_500));
    outbox.release(Vec::new());
    let bytes = outbox.next().now_or_never().unwrap().unwrap();
    outbox.wrote(bytes.len() - UNCOUNTED_BYTES_MAX - 1);
    assert_eq!(all.look(), (1, 1_500));
    outbox.push(vec![4; 1_000]);
    drop(outbox);
    assert_eq!(all.look(), (0, 1_500));
}

/// A client asks for a second long answer before it has read the first one to its end. Both answers
/// are exempt from the bound, so the connection stays open.
#[tokio::test]
async fn a_second_long_answer_behind_what_is_left_of_the_first_ends_nothing() {
    let outbox = outbox(10, &all());
    outbox.push(vec![1; 1_000]);
    assert_eq!(outbox.next().await.unwrap().len(), 1_000);
    outbox.wrote(995);
    assert!(outbox.has_room(Room::Read), "it has read nearly all of it");
    outbox.push(vec![2; 1_000]);
    outbox.push_event(&[3; 10]);
    assert!(!outbox.is_aborted() && outbox.unread() == 1_015);
    assert_eq!(outbox.next().await.unwrap().len(), 1_010);
    outbox.wrote(999);
    outbox.push_event(&[4]);
    assert!(outbox.is_aborted(), "twelve bytes wait");
}

#[tokio::test]
async fn what_is_being_written_counts_until_its_writer_has_let_go_of_it_and_an_abort_ends_the_connection() {
    let all = all();
    let closed = CancellationToken::new();
    let outbox = Outbox::new(100_000, all.account(None), closed.clone());
    let writing = outbox.writing();
    outbox.push(vec![1; UNCOUNTED_BYTES_MAX + 50_000]);
    let bytes = outbox.next().await.unwrap();
    outbox.push_event(&[2; 100_000]);
    outbox.push_event(&[3]);
    assert!(outbox.is_aborted() && closed.is_cancelled(), "nothing else has to find out");
    assert_eq!(all.look().0, 50_000, "the writer has these");
    assert!(!outbox.wrote(1), "it is to stop");
    drop(bytes);
    drop(writing);
    assert_eq!((all.look().0, outbox.next().await), (0, None));
}

#[test]
fn without_room_for_all_a_client_that_keeps_little_goes_on_with_what_has_a_short_answer() {
    let all = Arc::new(SharedBytes::new(100_000));
    let (one, other) = (outbox(1 << 20, &all), outbox(1 << 20, &all));
    one.push(vec![1; UNCOUNTED_BYTES_MAX + 100_000]);
    let room = |outbox: &Outbox| [Room::Ping, Room::Short, Room::Read].map(|wanted| outbox.has_room(wanted));
    assert_eq!((room(&one), room(&other)), ([true, false, false], [true, true, false]));
    let mut claim = PlaceClaim::default();
    assert!(other.room([Some(Room::Read), None], &mut claim).now_or_never().is_none());
    assert_eq!(other.room([Some(Room::Read), Some(Room::Short)], &mut claim).now_or_never(), Some(()));
    drop(one);
    assert_eq!(other.room([Some(Room::Read), None], &mut claim).now_or_never(), Some(()));
    assert!(other.has_room_in_turn(Room::Read, &claim));
}

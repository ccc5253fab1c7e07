//! Packets that a client has sent and the server has not processed yet.

use std::borrow::Cow;
use std::collections::VecDeque;

use jute::{FrameError, Frames, Record, RequestHeader, op};

use crate::client::outbox::Room;

/// Packets of one client, in the order in which they arrived.
///
/// While a write is held back until earlier requests are answered, the connection is still read for
/// pings. Each packet after that write is examined once: a ping is taken out, and any other packet
/// is put aside, in order.
pub(crate) struct Inbox {
    frames: Frames,
    /// Complete packets that come before those in `frames`: the write that is held back, and
    /// packets after it.
    aside: VecDeque<Box<[u8]>>,
    aside_bytes: usize,
}

/// Remaining room for packets that are put aside: the connection's bounds on unanswered requests,
/// minus its present unanswered requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsideBounds {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// Result of examining the next packet after a write that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassOutcome {
    /// The packet is a ping, and was taken out.
    Ping,
    /// The packet is another request of this length in bytes, and was put aside.
    Aside(usize),
    /// The packet has not arrived completely.
    More,
    /// The packet stays unexamined, because there is no room to put packets aside.
    Full,
}

/// Event for which a connection waits before it takes the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCause {
    /// More bytes from the socket, because all complete packets are taken.
    More,
    /// More bytes from the socket, among which there may be pings. A write is held back until
    /// earlier requests are answered, and packets after it are put aside.
    Pings,
    /// Room in the outbox for the answer to the next packet.
    Room(Room),
    /// Room for the next packet within the bound on the request bytes of all clients.
    Bytes,
    /// The answer to a request in progress, because this connection's bounds on unanswered requests
    /// are reached.
    Turn,
    /// Next time slice of the connection on the runtime's thread, after other connections were
    /// served.
    Rest,
}

impl Inbox {
    pub(crate) fn new(frames: Frames) -> Inbox {
        Inbox { frames, aside: VecDeque::new(), aside_bytes: 0 }
    }

    /// Returns the frames into which bytes from the socket are pushed.
    pub(crate) fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// Returns the bytes of the packets that were put aside.
    pub(crate) fn aside_bytes(&self) -> usize {
        self.aside_bytes
    }

    /// Returns the number of bytes that have arrived, and were neither taken as packets nor put
    /// aside.
    pub(crate) fn unread(&self) -> usize {
        self.frames.pending()
    }

    /// Returns the next packet, and leaves it in the inbox; `None` if it is not complete.
    ///
    /// # Errors
    /// When the packet is too long.
    pub(crate) fn peek(&self) -> Result<Option<&[u8]>, FrameError> {
        match self.aside.front() {
            Some(packet) => Ok(Some(packet)),
            None => self.frames.peek(),
        }
    }

    /// Takes the next packet; `None` if it is not complete.
    ///
    /// # Errors
    /// When the packet is too long.
    pub(crate) fn next_packet(&mut self) -> Result<Option<Cow<'_, [u8]>>, FrameError> {
        let Some(packet) = self.aside.pop_front() else { return Ok(self.frames.next_packet()?.map(Cow::Borrowed)) };
        self.aside_bytes -= packet.len();
        if self.aside.is_empty() {
            self.aside = VecDeque::new();
        }
        Ok(Some(Cow::Owned(packet.into_vec())))
    }

    /// Examines the next packet that was not put aside: takes a ping out, or puts another packet
    /// aside. The packets put aside and the unread bytes stay within `bounds`, except for the bytes
    /// that one read from the socket adds.
    ///
    /// # Errors
    /// When the packet is too long.
    pub(crate) fn pass(&mut self, bounds: AsideBounds) -> Result<PassOutcome, FrameError> {
        let is_full = self.aside.len() >= bounds.requests
            || self.aside_bytes.saturating_add(self.frames.pending()) >= bounds.bytes;
        let Some(packet) = self.frames.peek()? else {
            return Ok(if is_full { PassOutcome::Full } else { PassOutcome::More });
        };
        if RequestHeader::from_bytes(packet).is_ok_and(|header| header.op == op::PING) {
            self.frames.next_packet()?;
            return Ok(PassOutcome::Ping);
        }
        if is_full {
            return Ok(PassOutcome::Full);
        }
        let bytes = packet.len();
        self.aside.push_back(packet.into());
        self.aside_bytes += bytes;
        self.frames.next_packet()?;
        Ok(PassOutcome::Aside(bytes))
    }
}

#[cfg(test)]
mod tests {
    use jute::framed;

    use super::*;

    fn push(inbox: &mut Inbox, op: i32, bytes: usize) {
        let frame = framed(|out| {
            RequestHeader { xid: 1, op }.write(out);
            out.resize(4 + bytes, 7);
        });
        inbox.frames().push(&frame);
    }

    fn ops(inbox: &mut Inbox) -> Vec<(i32, usize)> {
        let next = || {
            let packet = inbox.next_packet().unwrap()?;
            Some((RequestHeader::from_bytes(&packet).unwrap().op, packet.len()))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn pings_are_taken_out_and_the_rest_stays_in_its_order_within_both_bounds() {
        for (left, aside) in [
            (AsideBounds { requests: 9, bytes: 1_000 }, 3),
            (AsideBounds { requests: 2, bytes: 1_000 }, 2),
            (AsideBounds { requests: 9, bytes: 100 + 60 }, 0),
        ] {
            let mut inbox = Inbox::new(Frames::new(1_000));
            for (op, bytes) in [(op::PING, 8), (op::SET_DATA, 50), (op::PING, 8), (op::CREATE, 60)] {
                push(&mut inbox, op, bytes);
            }
            push(&mut inbox, op::EXISTS, 40);
            push(&mut inbox, op::PING, 8);
            let mut passed = Vec::new();
            while !matches!(passed.last(), Some(PassOutcome::More | PassOutcome::Full)) {
                passed.push(inbox.pass(left).unwrap());
            }
            let all = [
                PassOutcome::Ping,
                PassOutcome::Aside(50),
                PassOutcome::Ping,
                PassOutcome::Aside(60),
                PassOutcome::Aside(40),
                PassOutcome::Ping,
                PassOutcome::More,
            ];
            let expected = match aside {
                3 => all.to_vec(),
                2 => [&all[..4], &[PassOutcome::Full]].concat(),
                _ => vec![PassOutcome::Ping, PassOutcome::Full],
            };
            assert_eq!(passed, expected, "{left:?}");
            let rest: Vec<_> = ops(&mut inbox).into_iter().filter(|(op, _)| *op != op::PING).collect();
            assert_eq!(rest, [(op::SET_DATA, 50), (op::CREATE, 60), (op::EXISTS, 40)], "{left:?}");
            assert_eq!((inbox.aside_bytes, inbox.unread()), (0, 0));
        }
    }

    #[test]
    fn half_a_packet_behind_what_is_put_aside_counts_with_it() {
        let (mut inbox, left) = (Inbox::new(Frames::new(1_000)), AsideBounds { requests: 9, bytes: 200 });
        push(&mut inbox, op::SET_DATA, 100);
        assert_eq!(inbox.pass(left), Ok(PassOutcome::Aside(100)));
        inbox.frames().push(&framed(|out| out.resize(4 + 500, 7))[..99]);
        assert_eq!(inbox.pass(left), Ok(PassOutcome::More));
        inbox.frames().push(&[7]);
        assert_eq!(inbox.pass(left), Ok(PassOutcome::Full));
        // There is room again when the packets put aside are taken.
        assert_eq!(inbox.next_packet().unwrap().map(|packet| packet.len()), Some(100));
        assert_eq!(inbox.pass(left), Ok(PassOutcome::More));
        inbox.frames().push(&[7; 404]);
        assert_eq!(ops(&mut inbox), [(0x0707_0707, 500)]);
    }
}

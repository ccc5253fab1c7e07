//! Framing: cuts a stream into packets. A packet is its length in four bytes, then its bytes.

/// Error for a packet with this length, which is negative or too large. The rest of the stream
/// cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} bytes")]
pub struct FrameError(pub i32);

/// Largest capacity, in bytes, that [`Frames::release`] leaves to a nearly empty buffer.
const BUFFER_KEPT_BYTES: usize = 64 << 10;

/// Initial capacity of a frame's buffer, in bytes. Most frames are shorter, so the buffer is not
/// reallocated.
const FRAME_BYTES: usize = 256;

/// Cuts a stream that arrives in pieces of any size into packets. Buffers the pushed bytes until
/// they have been handed out as packets.
#[derive(Debug)]
pub struct Frames {
    packet_max: usize,
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that have been handed out.
    taken: usize,
}

impl Frames {
    /// Returns an empty buffer, for packets of at most `packet_max` bytes.
    pub fn new(packet_max: usize) -> Frames {
        Frames { packet_max, bytes: Vec::new(), taken: 0 }
    }

    /// Sets the largest length, in bytes, of all packets that have not been handed out yet.
    pub fn set_packet_max(&mut self, packet_max: usize) {
        self.packet_max = packet_max;
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Frees the memory of a large buffer that is nearly empty, as after a long packet.
    pub fn release(&mut self) {
        if self.bytes.capacity() > BUFFER_KEPT_BYTES && self.pending() < self.bytes.capacity() / 4 {
            (self.bytes, self.taken) = (self.bytes[self.taken..].to_vec(), 0);
        }
    }

    /// Hands out the next packet, without its length; `None` if not all of it has arrived yet.
    ///
    /// # Errors
    /// When the length is negative or above `packet_max`.
    pub fn next_packet(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.peek()?.map(<[u8]>::len) else { return Ok(None) };
        let start = self.taken + 4;
        self.taken = start + length;
        Ok(Some(&self.bytes[start..self.taken]))
    }

    /// Returns the next packet without handing it out; `None` if not all of it has arrived yet.
    ///
    /// # Errors
    /// As [`Frames::next_packet`].
    pub fn peek(&self) -> Result<Option<&[u8]>, FrameError> {
        let Some((length, rest)) = self.bytes[self.taken..].split_first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*length);
        let count = usize::try_from(length).ok().filter(|count| *count <= self.packet_max);
        Ok(rest.get(..count.ok_or(FrameError(length))?))
    }

    /// Returns the first four bytes that have not been handed out, for four-letter words such as
    /// `ruok`; `None` if fewer have arrived.
    pub fn first_word(&self) -> Option<[u8; 4]> {
        self.bytes[self.taken..].first_chunk().copied()
    }

    /// Number of bytes that have not been handed out.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

/// Returns a packet with its length in front. `write` must append the packet's content.
pub fn framed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_BYTES);
    out.extend_from_slice(&[0; 4]);
    write(&mut out);
    let length = i32::try_from(out.len() - 4).expect("no packet is longer than a few MiB");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_packet_leaves_no_long_buffer_behind_also_when_the_next_one_has_begun() {
        let mut frames = Frames::new(2 << 20);
        for behind in [&b""[..], &[0]] {
            frames.push(&framed(|out| out.extend_from_slice(&[7; 1 << 20])));
            frames.push(behind);
            assert_eq!(frames.next_packet().unwrap().map(<[u8]>::len), Some(1 << 20));
            frames.release();
            assert_eq!(frames.pending(), behind.len());
            assert!(frames.bytes.capacity() <= BUFFER_KEPT_BYTES, "{}", frames.bytes.capacity());
        }
        frames.push(&[0, 0, 1, 9]);
        assert_eq!(frames.next_packet(), Ok(Some(&[9][..])));
    }
}

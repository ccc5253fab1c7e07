//! Redis client that speaks RESP. Its lock is the one that Redis documents: `SET NX PX`, and a
//! script that deletes the key only if the key has this client's token.

use std::io::Write as _;

use super::link::Link;
use crate::error::Error;

const UNLOCK: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// A client of one Redis server.
pub(crate) struct Redis {
    link: Link,
    /// Digest of the loaded script `UNLOCK`, as `EVALSHA` wants it.
    unlock: String,
    token: u64,
}

impl Redis {
    pub(crate) async fn open(addr: &str) -> Result<Redis, Error> {
        let mut redis = Redis { link: Link::open(addr).await?, unlock: String::new(), token: 0 };
        let digest = redis.call(&[b"SCRIPT", b"LOAD", UNLOCK.as_bytes()]).await?;
        redis.unlock = String::from_utf8_lossy(&digest).into_owned();
        Ok(redis)
    }

    /// Sends one command. Returns the text or bytes of the reply; empty for nil.
    async fn call(&mut self, arguments: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let out = &mut self.link.out;
        write!(out, "*{}\r\n", arguments.len())?;
        for argument in arguments {
            write!(out, "${}\r\n", argument.len())?;
            out.extend_from_slice(argument);
            out.extend_from_slice(b"\r\n");
        }
        self.link.flush().await?;
        let line = self.line().await?;
        match line.split_first() {
            Some((b'$', b"-1")) => Ok(Vec::new()),
            Some((b'$', length)) => {
                let length: usize =
                    std::str::from_utf8(length).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
                self.link.need(length + 2).await?;
                let bytes = self.link.bytes()[..length].to_vec();
                self.link.consume(length + 2);
                Ok(bytes)
            }
            Some((b'+' | b':', text)) => Ok(text.to_vec()),
            _ => Err(Error::answer("redis", &line)),
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(end) = self.link.bytes().windows(2).position(|two| two == b"\r\n") {
                let line = self.link.bytes()[..end].to_vec();
                self.link.consume(end + 2);
                return Ok(line);
            }
            self.link.fill().await?;
        }
    }

    pub(crate) async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.call(&[b"SET", key.as_bytes(), value]).await.map(drop)
    }

    pub(crate) async fn get(&mut self, key: &str) -> Result<(), Error> {
        self.call(&[b"GET", key.as_bytes()]).await.map(drop)
    }

    /// Takes a free lock. Fails if the lock is held, because Redis has no queue.
    pub(crate) async fn lock(&mut self, key: &str) -> Result<String, Error> {
        self.token += 1;
        let token = format!("{:08x}{:016x}", std::process::id(), self.token);
        match self.call(&[b"SET", key.as_bytes(), token.as_bytes(), b"NX", b"PX", b"30000"]).await?.as_slice() {
            b"OK" => Ok(token),
            other => Err(Error::answer("lock", other)),
        }
    }

    pub(crate) async fn unlock(&mut self, key: &str, token: &str) -> Result<(), Error> {
        let script = self.unlock.clone();
        match self.call(&[b"EVALSHA", script.as_bytes(), b"1", key.as_bytes(), token.as_bytes()]).await?.as_slice() {
            b"1" => Ok(()),
            other => Err(Error::answer("unlock", other)),
        }
    }
}

//! The model's sessions: their opening, and their move to another connection.

use std::net::IpAddr;

use znode::{ClientInfo, Error, Reply, SessionId};

use super::{Answer, Model, Session};

impl Model {
    pub(super) fn open(
        &mut self,
        secret_hash: [u8; 16],
        timeout_ms: u32,
        label: String,
        address: Option<IpAddr>,
        client: ClientInfo,
    ) -> Answer {
        let texts = [&label, &client.host, &client.program];
        if texts.iter().any(|text| text.len() > self.limits.label_bytes_max as usize) {
            return Err(Error::DataTooLarge.into());
        }
        if self.sessions.len() >= self.limits.sessions_max as usize {
            return Err(Error::TooManySessions.into());
        }
        let of_address = self.sessions.iter().filter(|session| session.address == address).count();
        if address.is_some() && of_address >= self.limits.sessions_per_address_max as usize {
            return Err(Error::TooManySessions.into());
        }
        let timeout_ms = self.agreed(timeout_ms);
        let id = SessionId(self.last_zxid.0);
        self.sessions.push(Session {
            id,
            secret_hash,
            timeout_ms,
            label,
            opened_ms: self.time_ms,
            address,
            client,
            connection: 0,
            turns: 0,
            requests: Vec::new(),
        });
        Ok(Reply::SessionOpened { session: id, timeout_ms })
    }

    fn agreed(&self, timeout_ms: u32) -> u32 {
        match timeout_ms.max(self.limits.session_timeout_min_ms) {
            long if long > self.limits.session_timeout_max_ms => self.limits.session_timeout_max_ms,
            good => good,
        }
    }

    pub(super) fn attach(&mut self, session: Option<SessionId>, connection: u64, timeout_ms: u32) -> Answer {
        let timeout_ms = self.agreed(timeout_ms);
        if connection == 0 {
            return Err(Error::BadArguments.into());
        }
        let Some(id) = session else { return Err(Error::SessionRequired.into()) };
        let session = self.sessions.iter_mut().find(|session| session.id == id).unwrap();
        session.timeout_ms = timeout_ms;
        session.connection = connection;
        session.turns = 0;
        Ok(Reply::SessionOpened { session: id, timeout_ms })
    }
}

//! The client that sent the request of a log entry, as histories record it.

use std::sync::Arc;

use crate::edits::effects::Effects;
use crate::words::client_info::{TEXT_MAX, short};
use crate::{Actor, ClientInfo, Identity, SUPER, Session, SessionId, State, user};

impl State {
    /// The client that sent the request of the log entry that is being applied.
    pub(crate) fn actor(&self, effects: &Effects) -> Actor {
        let session = effects.context.session.and_then(|id| self.session_of(id, effects));
        let mut client = session.map_or_else(ClientInfo::default, |session| (*session.client).clone());
        client.address = effects.context.address.or(client.address);
        Actor {
            session: effects.context.session,
            label: session.map_or_else(String::new, |session| short(&session.label)),
            identity: shown(&effects.context.identities),
            client,
        }
    }

    /// The session with an id, if it is open or was ended by the log entry that is being applied.
    pub(crate) fn session_of<'a>(&'a self, id: SessionId, effects: &'a Effects) -> Option<&'a Session> {
        self.session(id).or_else(|| effects.ended.get(&id).map(|session| &**session))
    }
}

/// The client's first identity, without its proof, as in `digest:bob`. The super user's identity is
/// shown only if there is no other. Empty if there are no identities.
fn shown(identities: &[Identity]) -> String {
    let named = identities.iter().find(|identity| identity.scheme != SUPER).or(identities.first());
    let Some(Identity { scheme, id }) = named else { return String::new() };
    let id = if scheme == "digest" { user(id) } else { id };
    short(&format!("{scheme}:{id}"))
}

/// The label and the client description of a session, as records of ended tickets store them: the
/// label is cut to `TEXT_MAX` bytes. Both are empty for `None`.
pub(crate) fn remembered(session: Option<&Session>) -> (Arc<str>, Arc<ClientInfo>) {
    let label = |session: &Session| match session.label.len() > TEXT_MAX {
        true => short(&session.label).into(),
        false => session.label.clone(),
    };
    session.map_or_else(|| ("".into(), Arc::default()), |session| (label(session), session.client.clone()))
}

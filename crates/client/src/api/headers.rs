//! Names of the headers, in lower case as HTTP libraries require them.

/// Request header: the key of the session in which the request acts. The header counts as a
/// heartbeat of the session.
pub const SESSION_KEY: &str = "zlock-session-key";
/// Request header: a key chosen by the client, so that a repeated write is applied once. Requests
/// with equal keys are retries of one write. A key is a UUID, or up to 128 printable ASCII
/// characters.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Request header: the zxid that the node's state must have reached before a read with
/// `consistency=local` is answered.
pub const MIN_ZXID: &str = "zlock-min-zxid";
/// Request header: `<lock path>;<fencing token>`. The write is refused unless a holder of the lock
/// has this token when the write is applied.
pub const IF_LOCK: &str = "if-lock";
/// Header of a fence check, the request to `/v1/fence/...` by which a reverse proxy asks whether to
/// pass on its client's request: the path of the lock. The proxy must set this header in every
/// fence check, and replace one that its client sent.
pub const FENCE_LOCK: &str = "zlock-lock";
/// Header of a fence check (see [`FENCE_LOCK`]): the fencing token that the proxy's client sent.
pub const FENCING_TOKEN: &str = "zlock-fencing-token";
/// Header of a fence check (see [`FENCE_LOCK`]): the proxy's own credentials, in the form of
/// `Authorization`. (In a fence check, `Authorization` itself has the credentials of the proxy's
/// client.) The proxy must set this header in every fence check, and replace one that its client
/// sent.
pub const FENCE_AUTHORIZATION: &str = "zlock-authorization";
/// Answer header: the zxid of the write, or of the state that was read.
pub const ZXID: &str = "zlock-zxid";
/// Answer header: client libraries in the lock's queue that ignore each other's lock nodes, so that
/// clients of two libraries may hold the lock at once; absent when there are none.
pub const MIXED_CLIENTS: &str = "zlock-mixed-clients";
/// Answer header: the id of the answering node.
pub const NODE: &str = "zlock-node";
/// Answer header: the id of the leader, as far as the answering node knows; `none` without a known
/// leader.
pub const LEADER: &str = "zlock-leader";

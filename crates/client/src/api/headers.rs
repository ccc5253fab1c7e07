//! Names of the headers, in lower case as HTTP libraries require them.

/// Request: the key of the request's session. The header counts as a heartbeat of that session.
pub const SESSION_KEY: &str = "zlock-session-key";
/// Request: a UUID, or up to 128 printable ASCII characters. Several requests with one key are
/// retries of one write.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Request: the zxid that the state must have reached for a read with `consistency=local`.
pub const MIN_ZXID: &str = "zlock-min-zxid";
/// Request: `<lock path>;<token>`; the write is refused unless the token holds the lock when the
/// write is applied.
pub const IF_LOCK: &str = "if-lock";
/// Request below `/v1/fence/`: the path of the lock. The proxy must set this header in every
/// request, even if its client sent one.
pub const FENCE_LOCK: &str = "zlock-lock";
/// Request below `/v1/fence/`: the fencing token that the proxy's client shows.
pub const FENCING_TOKEN: &str = "zlock-fencing-token";
/// Request below `/v1/fence/`: the proxy's own credentials in the form of `Authorization`, because
/// that header belongs to the client's request there. The proxy must set this header in every
/// request, even if its client sent one.
pub const FENCE_AUTHORIZATION: &str = "zlock-authorization";
/// Answer: the zxid of the write, or of the state that was read.
pub const ZXID: &str = "zlock-zxid";
/// Answer: kinds of clients in the lock's queue that do not count each other's lock nodes; absent
/// when there are none.
pub const MIXED_CLIENTS: &str = "zlock-mixed-clients";
/// Answer: the id of the answering node.
pub const NODE: &str = "zlock-node";
/// Answer: the id of the leader, as far as the answering node knows; `none` without a known leader.
pub const LEADER: &str = "zlock-leader";

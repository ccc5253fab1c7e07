//! The names of the headers, in lower case as HTTP libraries want them.

/// Request: `<id>.<secret>`, the session that the request is made in. Counts as its heartbeat.
pub const SESSION: &str = "zlock-session";
/// Request: a UUID, or up to 128 printable ASCII characters, that marks retries of one write as the
/// same write.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Request: with `consistency=local`, the read must not be older than this zxid.
pub const MIN_ZXID: &str = "zlock-min-zxid";
/// Request: `<lock path>;<token>`; the write is refused unless the token holds the lock when the
/// write is applied.
pub const IF_LOCK: &str = "if-lock";
/// Request, behind `/v1/fence/`: the lock. For the proxy to set, whatever its client sends.
pub const FENCE_LOCK: &str = "zlock-lock";
/// Request, behind `/v1/fence/`: the fencing token that the proxy's client shows.
pub const FENCE_TOKEN: &str = "zlock-token";
/// Request, behind `/v1/fence/`: the proxy's own credentials, as in `Authorization`, which is the
/// other request's there. For the proxy to set, whatever its client sends.
pub const FENCE_AUTHORIZATION: &str = "zlock-authorization";
/// Answer: the zxid that the answer speaks of: the write's own, or that of the state that was read.
pub const ZXID: &str = "zlock-zxid";
/// Answer: clients that queue for the lock and do not see each other; absent when all is well.
pub const MIXED_FAMILIES: &str = "zlock-mixed-families";
/// Answer: the node that answered.
pub const NODE: &str = "zlock-node";
/// Answer: the node that leads, as far as the answering node knows; `none` when it knows of none.
pub const LEADER: &str = "zlock-leader";

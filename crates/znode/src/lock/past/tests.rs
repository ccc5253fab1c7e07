use super::*;
use crate::{Acquire, Attempt, Credential, Idempotency, LogPosition, Reply, Request, RequestKey, Term, Txn, lock};

fn apply(state: &mut State, zxid: u64, request: Request) -> Reply {
    state.apply(LogPosition { term: Term(1), zxid: Zxid(zxid) }, Txn { time_ms: zxid, request }).reply.unwrap()
}

#[test]
fn a_second_grant_of_a_ticket_takes_the_place_of_the_first() {
    let mut state = State::default();
    let open = Op::OpenSession {
        secret_hash: [0; 32],
        timeout_ms: 30_000,
        label: String::new(),
        address: None,
        client: crate::ClientInfo::default(),
    };
    apply(&mut state, 1, Request::new(open));
    let lock = ZPath::parse("/l").unwrap();
    let (owner, label) = (String::new(), String::new());
    let mode = LockMode::Exclusive;
    let acquire =
        Acquire { lock: lock.clone(), mode, owner, label, lock_delay_ms: 0, attempt: Attempt(1), keyless: None };
    let credential = Some(Credential { session: SessionId(1), secret_hash: [0; 32] });
    let idempotency = Some(Idempotency { key: RequestKey([1; 16]), fingerprint: [0; 16] });
    let request = Request { credential, idempotency, guard: None, address: None, op: Op::Acquire(acquire) };
    let Reply::Acquired { ticket, .. } = apply(&mut state, 2, request) else { panic!("it is free") };
    state.skip(LogPosition { term: Term(1), zxid: Zxid(9) });
    for token in [5, 7] {
        let at = Moment { zxid: Zxid(token), time_ms: token };
        state.put_grant(&ticket, Grant { at, token: FencingToken(token) });
        state.check_invariants().unwrap();
        let held = [2, 5, 7].map(|token| lock::is_held_with(&state, &lock, FencingToken(token)));
        assert_eq!(held, [2, 5, 7].map(|other| other == token), "token {token}");
    }
}

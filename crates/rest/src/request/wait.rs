//! Waits of requests until the state meets a condition.

use std::sync::Arc;
use std::time::Duration;

use replica::{Step, WaitEnd};
use tokio::time::Instant;
use znode::{State, Zxid};

use crate::problem::Problem;
use crate::request::call::Call;

/// Parameter `wait` of a request: the deadline until which the request may wait.
pub(crate) struct Wait {
    /// Deadline of the wait; `None` if the request does not wait.
    deadline: Option<Instant>,
}

impl Wait {
    /// Takes the parameter `wait`. This frees the request's head, so the path and other parts of
    /// the head must be read before.
    pub(crate) fn take(call: &mut Call) -> Result<Wait, Problem> {
        let wait_ms = call.query.duration_ms("wait", call.door.config.wait_max_ms)?.unwrap_or(0);
        if wait_ms > 0 {
            call.forget_head();
        }
        Ok(Wait { deadline: (wait_ms > 0).then(|| call.arrived + Duration::from_millis(wait_ms)) })
    }

    pub(crate) fn ending(deadline: Instant) -> Wait {
        Wait { deadline: Some(deadline) }
    }

    /// Waits until `step` returns a result for `state` or a later state. Returns the result, or
    /// `None` when the deadline comes first; and the zxid of the last state that was examined.
    pub(crate) async fn until<T: Send>(
        &self,
        call: &Call,
        state: Arc<State>,
        step: impl Fn(&State) -> Step<T> + Send + Sync,
    ) -> Result<(Option<T>, Zxid), Problem> {
        if let Step::Ready(now) = step(&state) {
            return Ok((Some(now), state.last_zxid()));
        }
        let Some(deadline) = self.deadline else {
            return Ok((None, state.last_zxid()));
        };
        // While a reader holds a state, every write copies what it changes.
        drop(state);
        let _permit = call.door.wait_permit()?;
        let _waiting = call.waits();
        let deadline = deadline.max(Instant::now());
        let step = |state: &State| match step(state) {
            Step::Ready(now) => Step::Ready((Some(now), state.last_zxid())),
            Step::Watch(key) => Step::Watch(key),
        };
        let waited = tokio::select! {
            waited = call.door.replica.wait_for(deadline, step) => waited,
            () = call.door.stopped() => return Err(Problem::stopping()),
        };
        match waited {
            Ok(now) => Ok(now),
            Err(WaitEnd::Deadline) => Ok((None, call.door.replica.state().last_zxid())),
            Err(end) => Err(end.into()),
        }
    }
}

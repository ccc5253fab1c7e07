//! Results of the tries of one call, for each endpoint.

/// Number of unreachable tries (`Ending::Unreachable`) in a row that every endpoint must have had
/// before a call fails early. Only for a client that has never got an answer from any endpoint.
const CHANCES: u32 = 2;

/// Tries of one call, with one element for each endpoint.
#[derive(Debug)]
pub(crate) struct Tries(Vec<EndpointTries>);

#[derive(Clone, Debug, Default)]
struct EndpointTries {
    /// Result of the last try at the endpoint.
    reason: Option<String>,
    /// Number of the last tries in a row that found the endpoint unreachable.
    unreachable: u32,
}

impl Tries {
    pub(crate) fn new(endpoints: usize) -> Tries {
        Tries(vec![EndpointTries::default(); endpoints])
    }

    /// Notes a failed try at an endpoint. The reason names the endpoint.
    pub(crate) fn failed(&mut self, index: usize, reason: String, unreachable: bool) {
        let tries = &mut self.0[index];
        tries.reason = Some(reason);
        tries.unreachable = if unreachable { tries.unreachable + 1 } else { 0 };
    }

    /// Tells whether the last [`CHANCES`] tries at every endpoint found it unreachable.
    pub(crate) fn are_hopeless(&self) -> bool {
        self.0.iter().all(|tries| tries.unreachable >= CHANCES)
    }

    /// Returns the message for a call without an answer: the result of the last try at every
    /// endpoint that was tried.
    pub(crate) fn words(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().filter_map(|tries| tries.reason.as_deref()).collect();
        if reasons.is_empty() { "there was no time to ask a node".to_owned() } else { reasons.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_has_its_chances_and_is_named() {
        let mut tries = Tries::new(2);
        assert_eq!(tries.words(), "there was no time to ask a node");
        tries.failed(0, "a:1: refused".into(), true);
        tries.failed(1, "b:1: refused".into(), true);
        tries.failed(0, "a:1: no name".into(), true);
        assert!(!tries.are_hopeless(), "the other one has a chance left");
        assert_eq!(tries.words(), "a:1: no name; b:1: refused");
        tries.failed(1, "b:1: starts".into(), false);
        tries.failed(1, "b:1: refused".into(), true);
        assert!(!tries.are_hopeless(), "there was a node a moment ago");
        tries.failed(1, "b:1: refused".into(), true);
        assert!(tries.are_hopeless());
    }
}

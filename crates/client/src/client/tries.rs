//! What the tries of one call met, endpoint by endpoint.

/// How often each endpoint may be out of reach, for a client that has never reached any, before it
/// gives up.
const CHANCES: u32 = 2;

/// The tries of one call. As long as the list of endpoints is.
#[derive(Debug)]
pub(crate) struct Tries(Vec<Tried>);

#[derive(Clone, Debug, Default)]
struct Tried {
    /// How the last try there ended.
    reason: Option<String>,
    /// Tries, since the last one that found a node, that did not.
    unreachable: u32,
}

impl Tries {
    pub(crate) fn new(endpoints: usize) -> Tries {
        Tries(vec![Tried::default(); endpoints])
    }

    /// A try at an endpoint failed, for a reason that names it.
    pub(crate) fn failed(&mut self, index: usize, reason: String, unreachable: bool) {
        let tried = &mut self.0[index];
        tried.reason = Some(reason);
        tried.unreachable = if unreachable { tried.unreachable + 1 } else { 0 };
    }

    /// Whether no endpoint leads to a node, as far as tries can tell.
    pub(crate) fn are_hopeless(&self) -> bool {
        self.0.iter().all(|tried| tried.unreachable >= CHANCES)
    }

    /// What is to be said when there was no answer: of every endpoint that was tried, how the last
    /// try ended.
    pub(crate) fn words(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().filter_map(|tried| tried.reason.as_deref()).collect();
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

//! Durations of requests, by operation of the API.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::http::Method;
use replica::{Durations, Entrance, Replica};

use crate::route::Route;

/// Durations of answered requests, by the path of the route and the method.
pub(crate) struct RouteTimes(HashMap<String, Vec<(Method, Arc<Durations>)>>);

impl RouteTimes {
    pub(crate) fn new(replica: &Replica, routes: impl Iterator<Item = &'static Route>) -> RouteTimes {
        let mut times: HashMap<String, Vec<(Method, Arc<Durations>)>> = HashMap::new();
        for (path, method, operation) in routes.flat_map(Route::operations) {
            let durations = replica.times().of_requests(Entrance::Http, &operation);
            times.entry(path).or_default().push((method, durations));
        }
        RouteTimes(times)
    }

    /// Counts an answered request. A request for which the API has no operation is not counted.
    pub(crate) fn note(&self, path: Option<&MatchedPath>, method: &Method, time: Duration) {
        if let Some(durations) = self.of(path, method) {
            durations.note(time);
        }
    }

    /// Returns true if the API has an operation with this path and method.
    pub(crate) fn has(&self, path: Option<&MatchedPath>, method: &Method) -> bool {
        self.of(path, method).is_some()
    }

    fn of(&self, path: Option<&MatchedPath>, method: &Method) -> Option<&Durations> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let operations = self.0.get(path?.as_str())?;
        operations.iter().find(|(of, _)| of == method).map(|(_, durations)| &**durations)
    }
}

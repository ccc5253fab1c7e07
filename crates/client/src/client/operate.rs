//! Calls for operators, over the admin socket of a node or with an operator's identity.

use hyper::Method;

use crate::Error;
use crate::api::Drain;
use crate::client::Client;
use crate::client::call::{Call, Prefer};

const DRAIN: &str = "/v1/admin/drain";

impl Client {
    /// Drains the node that is this client's only endpoint: the node gives up leadership and
    /// reports itself as not ready, until the drain is ended or the node stops. The drained node
    /// still serves all requests.
    ///
    /// # Errors
    /// `Refused` with `OperatorOnly` where the client is no operator. `Refused` with `BadRequest`
    /// when the client has several endpoints, as any of them could be drained.
    pub async fn drain(&self) -> Result<Drain, Error> {
        self.of_one_node(Method::PUT).await
    }

    /// Ends the drain of the node that is this client's only endpoint.
    ///
    /// # Errors
    /// As [`Client::drain`].
    pub async fn undrain(&self) -> Result<Drain, Error> {
        self.of_one_node(Method::DELETE).await
    }

    async fn of_one_node(&self, method: Method) -> Result<Drain, Error> {
        if self.inner.transport.addrs().count() != 1 {
            return Err(crate::client::builder::bad("a drain is of one node: a client of one endpoint asks for it"));
        }
        // Safe to repeat, as a second drain changes nothing.
        let call = Call::write(method, DRAIN.into()).repeatable().prefer(Prefer::Any);
        self.inner.transport.send(&call, self.deadline()).await?.json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProblemType;
    use crate::client::fake_node::fake_node;

    #[tokio::test]
    async fn one_node_is_drained_and_no_other() {
        let answer = r#"{"node_id":1,"draining":true,"leads":false,"leader":2}"#;
        let (addr, mut requests) = fake_node(async |_| answer.to_owned()).await;
        let client = Client::builder([addr.clone()]).build().unwrap();
        let drain = client.drain().await.unwrap();
        assert_eq!((drain.node_id, drain.draining, drain.leads, drain.leader), (1, true, false, Some(2)));
        client.undrain().await.unwrap();
        let asked = [requests.recv().await.unwrap(), requests.recv().await.unwrap()];
        assert_eq!(asked, ["PUT /v1/admin/drain", "DELETE /v1/admin/drain"]);
        let client = Client::builder([addr, "127.0.0.1:1".into()]).build().unwrap();
        let error = client.drain().await.unwrap_err();
        assert!(error.code() == Some(ProblemType::BadRequest) && error.to_string().contains("one endpoint"), "{error}");
    }
}

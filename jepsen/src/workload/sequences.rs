//! Clients of the workload `sequential`: they create sequential children below a few parents, and
//! delete some of them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use zlock_client::api::{Children, CreatedZnode};

use super::Work;
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// Number of parent znodes, each of which counts its children. There are several, so that a mix-up
/// of their counters is found.
const PARENTS: u64 = 3;

/// The workload `sequential`.
#[derive(Default)]
pub struct Sequences {
    next_element: AtomicU64,
}

/// A child that the worker created: path of the parent, element (the unique number in the child's
/// name before the sequence number), and path of the child.
type Child = (String, u64, String);

/// Returns the ten digits at the end of a sequential child's path as a number.
pub(crate) fn number_of(path: &str) -> Option<u64> {
    path.get(path.len().checked_sub(10)?..)?.parse().ok()
}

/// Returns the names of all children, read page by page, with retries.
pub(crate) async fn list(client: &mut Client, parent: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().map(|name| format!("&after={name}")).unwrap_or_default();
        let call = Call::get(format!("/v1/znodes{parent}?children&page_size=500{after}"));
        let mut answer = client.insist(call, |_| false).await?;
        let page: Children = answer.read(Effect::Read).ok_or("the children cannot be read")?;
        let more = page.cursor.is_some();
        names.extend(page.children);
        if !more {
            return Ok(names);
        }
    }
}

/// Records the list of a parent's children at the end of a run.
pub(crate) async fn final_list(client: &mut Client, parent: &str) -> Result<(), String> {
    client.invoke("list", json!({"parent": parent}));
    let names = list(client, parent).await?;
    client.end(Kind::Ok, "list", json!({"parent": parent, "names": names}), None, None);
    Ok(())
}

impl Sequences {
    async fn create(&self, client: &mut Client) -> Option<Child> {
        let element = self.next_element.fetch_add(1, Ordering::Relaxed);
        let parent = format!("{}/sequential/p{}", super::ROOT, client.rng.u64(..PARENTS));
        let mut value = json!({"parent": parent, "element": element});
        let target = format!("/v1/znodes{parent}/e{element}-?mode=persistent-sequential");
        let mut child = None;
        let result = |answer: &mut Answer| -> Option<Value> {
            let created: CreatedZnode = answer.read(Effect::Write)?;
            value["number"] = number_of(&created.path).into();
            child = Some(created.path);
            Some(value)
        };
        client.operate("create", json!({"parent": parent, "element": element}), Call::post(target), result).await;
        child.map(|path| (parent, element, path))
    }

    async fn delete(&self, (parent, element, path): Child, client: &mut Client) {
        let call = Call::delete(format!("/v1/znodes{path}"));
        client.operate("delete", json!({"parent": parent, "element": element}), call, |_| None).await;
    }
}

impl Work for Sequences {
    type Worker = Option<Child>;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        for parent in 0..PARENTS {
            client.ensure(&format!("{}/sequential/p{parent}", super::ROOT), "").await?;
        }
        Ok(())
    }

    async fn step(&self, last: &mut Option<Child>, client: &mut Client) -> Result<(), String> {
        match last.take() {
            Some(child) if client.rng.u8(..3) == 0 => self.delete(child, client).await,
            _ => *last = self.create(client).await,
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        for parent in 0..PARENTS {
            final_list(client, &format!("{}/sequential/p{parent}", super::ROOT)).await?;
        }
        Ok(())
    }
}

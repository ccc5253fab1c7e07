//! After everything is healed all nodes hold the same state.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::Children;
use tokio::time::Instant;

use crate::answer::Effect;
use crate::cluster::views;
use crate::http::{Call, Http};
use crate::verdict::Verdict;
use crate::workload::ROOT;

/// How long the nodes may take to agree.
const AGREE_MAX: Duration = Duration::from_secs(30);

/// Every znode below the harness's root: path, and its facts as JSON.
type Tree = BTreeMap<String, String>;

/// Compares what the nodes have applied, then every znode that the harness made, with all eleven facts, read locally.
pub async fn check(endpoints: &[String]) -> Verdict {
    let mut verdict = Verdict::default();
    let deadline = Instant::now() + AGREE_MAX;
    loop {
        let problem = match compare(endpoints).await {
            Ok((znodes, zxid)) => {
                verdict.figure("znodes-compared", znodes);
                verdict.figure("zxid", zxid);
                return verdict;
            }
            Err(problem) => problem,
        };
        if Instant::now() > deadline {
            verdict.found("nodes-differ", problem, &[]);
            return verdict;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn compare(endpoints: &[String]) -> Result<(usize, u64), String> {
    let applied = applied(endpoints).await?;
    let mut http = Http::new(endpoints);
    let mut first: Option<Tree> = None;
    for node in 1..=endpoints.len() as u64 {
        let tree = read_tree(&mut http, node).await?;
        match &first {
            None => first = Some(tree),
            Some(first) => {
                if let Some(difference) = difference(first, &tree) {
                    return Err(format!("nodes 1 and {node} differ: {difference}"));
                }
            }
        }
    }
    Ok((first.map_or(0, |tree| tree.len()), applied))
}

/// What all nodes have applied, when it is the same.
async fn applied(endpoints: &[String]) -> Result<u64, String> {
    let mut applied: Vec<u64> = Vec::new();
    for (i, view) in views(endpoints).await.into_iter().enumerate() {
        let view = view.ok_or_else(|| format!("node {} does not answer", i + 1))?;
        applied.push(view.applied_zxid);
    }
    match applied.iter().all(|zxid| *zxid == applied[0]) {
        true => Ok(applied[0]),
        false => Err(format!("the nodes have applied {applied:?}")),
    }
}

async fn read_tree(http: &mut Http, node: u64) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut parents = vec![ROOT.to_owned()];
    while let Some(parent) = parents.pop() {
        let mut after = String::new();
        loop {
            let target = format!("/v1/znodes{parent}?children=stat&limit=500&consistency=local{after}");
            let mut answer = http.send(node, Call::get(target)).await;
            if answer.is_problem("no-node") {
                break;
            }
            let page: Children = answer
                .read(Effect::Read)
                .ok_or_else(|| format!("node {node}: {parent}: {}", answer.error.clone().unwrap_or_default()))?;
            for child in page.stats.into_iter().flatten() {
                let path = format!("{parent}/{}", child.name);
                if child.stat.num_children > 0 {
                    parents.push(path.clone());
                }
                tree.insert(path, format!("{:?}", child.stat));
            }
            match page.next {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
    }
    Ok(tree)
}

fn difference(one: &Tree, other: &Tree) -> Option<String> {
    let differs = one.iter().find(|(path, stat)| other.get(*path) != Some(*stat));
    if let Some((path, stat)) = differs {
        return Some(format!("{path}: {stat} and {:?}", other.get(path)));
    }
    other.keys().find(|path| !one.contains_key(*path)).map(|path| format!("{path} is on one of them only"))
}

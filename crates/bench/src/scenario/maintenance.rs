//! Writes while an operator saves a backup of a large state, and while the operator adds a member.

use std::time::{Duration, Instant};

use super::snapshot::ranks;
use super::{Figure, Scale, million};
use crate::error::Error;
use crate::system::{Cluster, Kind};
use crate::workload::{self, Load, Workload};

const CLIENTS: usize = 64;
/// Time of writes before the operator's command, for comparison.
const BEFORE: Duration = Duration::from_secs(5);

pub(super) async fn run(cluster: &Cluster, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
    million::load_all(cluster, kind, 0..scale.of(million::ZNODES)).await?;
    let backup = cluster.data().join("backup").display().to_string();
    during(cluster, kind, "a backup is saved", &["backup", "save", &backup], figures).await?;
    let (_process, member) = cluster.start_joining().await?;
    during(cluster, kind, "a member is added", &["member", "add", &member, "--wait", "120s"], figures).await
}

/// Measures writes before and during a command of an operator.
async fn during(
    cluster: &Cluster,
    kind: Kind,
    what: &str,
    command: &[&str],
    figures: &mut Vec<Figure>,
) -> Result<(), Error> {
    let load = Load { workload: Workload::Write, clients: CLIENTS, length: BEFORE, first_node: 0 };
    let (round, span) = workload::round_while(cluster, kind, load, async {
        tokio::time::sleep(BEFORE).await;
        let began = Instant::now();
        cluster.operate(command).await.map(|()| (began, Instant::now()))
    })
    .await?;
    if let Some(error) = &round.first_error {
        return Err(Error::Answer(error.clone()));
    }
    let (start, end) = span?;
    let before = ranks(&round, |_, until| until < start);
    let during = ranks(&round, |began, until| until >= start && began < end);
    figures.extend([
        Figure::new(format!("time in which {what}"), "s", (end - start).as_secs_f64()),
        Figure::new(format!("p99 of writes before {what}"), "us", before.at_us(0.99)),
        Figure::new(format!("p99 of writes while {what}"), "us", during.at_us(0.99)),
        Figure::new(format!("max of writes before {what}"), "us", before.at_us(1.0)),
        Figure::new(format!("max of writes while {what}"), "us", during.at_us(1.0)),
    ]);
    Ok(())
}

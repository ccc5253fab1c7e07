//! Wall clocks jump far.

use serde_json::{Value, json};

use super::kind::{Doing, Kind, Scene};
use crate::cluster::Clock;

/// All wall clocks jump by up to an hour, forwards and backwards.
pub(super) struct Jumps;

impl Kind for Jumps {
    fn begin<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(async move {
            let mut offsets = Vec::new();
            for node in &mut scene.cluster.nodes {
                let offset_s = scene.rng.i64(-3_600..=3_600);
                node.set_clock(Clock::offset(offset_s * 1_000)).map_err(|error| error.to_string())?;
                offsets.push(offset_s);
            }
            Ok(json!({"offsets_s": offsets}))
        })
    }
}

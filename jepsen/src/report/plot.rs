//! Latency and rate over time, with the windows in which something was broken.

use super::svg::Svg;
use super::{Window, seconds};
use crate::history::{self, Entry, Kind, Operation};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 40.0;
/// Latencies are drawn from a tenth of a millisecond to a hundred seconds.
const DECADES: std::ops::RangeInclusive<i32> = -1..=5;

/// The colours that Jepsen uses.
pub(crate) fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Ok => "#5baf5b",
        Kind::Info | Kind::Invoke => "#f0a830",
        Kind::Fail => "#d9607f",
    }
}

const KINDS: [(Kind, &str); 3] = [(Kind::Ok, "ok"), (Kind::Info, "info"), (Kind::Fail, "fail")];

/// Where the values of a plot stand on the paper.
struct Frame {
    end_s: f64,
}

impl Frame {
    fn x(&self, at_s: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at_s / self.end_s
    }

    fn y(&self, part: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part.clamp(0.0, 1.0)
    }

    /// Title, windows, time axis and legend.
    fn draw(&self, svg: &mut Svg, title: &str, windows: &[Window]) {
        svg.text((LEFT, 18.0), "start", title);
        for (i, window) in windows.iter().enumerate() {
            let (from, to) = (self.x(window.from_s), self.x(window.to_s));
            let told = format!("{} from {:.1} s to {:.1} s", window.name, window.from_s, window.to_s);
            svg.rect((from, TOP), ((to - from).max(1.0), HEIGHT - TOP - BOTTOM), "rgba(90,110,200,0.16)", &told);
            if windows.len() <= 12 || i % (windows.len() / 12 + 1) == 0 {
                svg.text((from, TOP - 4.0 - 11.0 * (i % 2) as f64), "start", &window.name);
            }
        }
        svg.line((LEFT, self.y(0.0)), (WIDTH - RIGHT, self.y(0.0)), "#333");
        svg.line((LEFT, self.y(0.0)), (LEFT, self.y(1.0)), "#333");
        let step = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
        let step = step.into_iter().find(|step| self.end_s / step <= 15.0).unwrap_or(1_200.0);
        let mut at = 0.0;
        while at <= self.end_s {
            svg.text((self.x(at), HEIGHT - BOTTOM + 16.0), "middle", &format!("{at}"));
            at += step;
        }
        svg.text((WIDTH / 2.0, HEIGHT - 6.0), "middle", "seconds");
        for (i, (kind, name)) in KINDS.into_iter().enumerate() {
            let x = WIDTH - RIGHT - 150.0 + 50.0 * i as f64;
            svg.rect((x, 8.0), (10.0, 10.0), colour(kind), name);
            svg.text((x + 14.0, 17.0), "start", name);
        }
    }
}

fn operations(entries: &[Entry]) -> Vec<Operation> {
    history::operations(entries).unwrap_or_default()
}

fn frame(entries: &[Entry]) -> Frame {
    Frame { end_s: entries.last().map_or(1.0, |entry| seconds(entry.time)).max(1.0) }
}

/// Every operation as a point: when it began, and how long it took.
pub(crate) fn latency(entries: &[Entry], windows: &[Window]) -> String {
    let frame = frame(entries);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    frame.draw(&mut svg, "latency of each operation (ms)", windows);
    let (low, high) = (f64::from(*DECADES.start()), f64::from(*DECADES.end()));
    let part = |decade: f64| (decade - low) / (high - low);
    for decade in DECADES {
        let y = frame.y(part(f64::from(decade)));
        svg.line((LEFT, y), (WIDTH - RIGHT, y), "#ddd");
        svg.text((LEFT - 6.0, y + 4.0), "end", &format!("{}", 10f64.powi(decade)));
    }
    let operations = operations(entries);
    for (kind, _) in KINDS {
        let points = operations.iter().filter(|operation| operation.outcome == kind).map(|operation| {
            let ms = (operation.time.1 - operation.time.0) as f64 / 1e6;
            (frame.x(seconds(operation.time.0)), frame.y(part(ms.max(1e-3).log10())))
        });
        svg.points(&points.collect::<Vec<_>>(), colour(kind));
    }
    svg.finish()
}

/// Operations a second, by outcome.
pub(crate) fn rate(entries: &[Entry], windows: &[Window]) -> String {
    let frame = frame(entries);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    frame.draw(&mut svg, "operations ended in each second", windows);
    let operations = operations(entries);
    let mut counts = vec![[0u64; 3]; frame.end_s.ceil() as usize + 1];
    for operation in operations.iter().filter(|operation| operation.time.1 < u64::MAX) {
        let at = seconds(operation.time.1) as usize;
        let kind = KINDS.iter().position(|(kind, _)| *kind == operation.outcome).unwrap_or(1);
        if let Some(second) = counts.get_mut(at) {
            second[kind] += 1;
        }
    }
    let highest = counts.iter().flatten().copied().max().unwrap_or(0).max(1);
    for quarter in 0..=4u64 {
        let y = frame.y(quarter as f64 / 4.0);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), "#ddd");
        svg.text((LEFT - 6.0, y + 4.0), "end", &format!("{:.0}", highest as f64 * quarter as f64 / 4.0));
    }
    for (i, (kind, _)) in KINDS.into_iter().enumerate() {
        let points = counts.iter().enumerate().map(|(second, counts)| {
            (frame.x((second as f64 + 0.5).min(frame.end_s)), frame.y(counts[i] as f64 / highest as f64))
        });
        svg.polyline(&points.collect::<Vec<_>>(), colour(kind));
    }
    svg.finish()
}

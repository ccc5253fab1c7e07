//! Bars in SVG, by hand: groups along the bottom, a whisker from the lowest to the highest round.

use std::fmt::Write as _;

use crate::figures::Spread;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 40.0;
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [(&str, &str); 5] = [
    ("zlock-rest", "#0072b2"),
    ("zlock-zk", "#56b4e9"),
    ("zookeeper", "#e69f00"),
    ("etcd", "#009e73"),
    ("redis", "#cc79a7"),
];

/// Bars that stand together.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Bar>,
}

/// One bar.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) height: Spread,
}

/// The picture.
pub(crate) fn bars(title: &str, groups: &[Group]) -> String {
    let highest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.height.max).fold(1.0, f64::max);
    let top = nice(highest);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{WIDTH}\" stroke=\"#ddd\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let names: Vec<&(&str, &str)> = COLOURS
        .iter()
        .filter(|(name, _)| groups.iter().any(|group| group.bars.iter().any(|bar| bar.name == *name)))
        .collect();
    for (number, (name, colour)) in names.iter().enumerate() {
        let x = LEFT + 110.0 * number as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"31\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"40\">{name}</text>",
            x + 15.0
        );
    }
    let room = (WIDTH - LEFT) / groups.len().max(1) as f64;
    let width = (room * 0.8 / names.len().max(1) as f64).min(60.0);
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT + room * number as f64 + (room - width * group.bars.len() as f64) / 2.0;
        for (place, bar) in group.bars.iter().enumerate() {
            one_bar(&mut svg, bar, left + width * place as f64, width, y);
        }
        let middle = LEFT + room * (number as f64 + 0.5);
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 18.0,
            group.label
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn one_bar(svg: &mut String, bar: &Bar, x: f64, width: f64, y: impl Fn(f64) -> f64) {
    let colour = COLOURS.iter().find(|(name, _)| *name == bar.name).map_or("#999", |(_, colour)| colour);
    let (high, low, at) = (y(bar.height.max), y(bar.height.min), y(bar.height.median));
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/><path d=\"M{:.1} {high:.1}V{low:.1}\" stroke=\"#000\"/>",
        width - 2.0,
        HEIGHT - BOTTOM - at,
        x + width / 2.0 - 1.0
    );
}

/// The next 1, 2, 4 or 8 times a power of ten.
fn nice(highest: f64) -> f64 {
    let power = 10_f64.powf(highest.log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0].iter().map(|factor| factor * power).find(|top| *top >= highest).unwrap_or(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_fits() {
        assert_eq!(nice(1.0), 1.0);
        assert_eq!(nice(17_300.0), 20_000.0);
        assert_eq!(nice(85.0), 100.0);
        let height = Spread { median: 10.0, min: 5.0, max: 20.0 };
        let groups = [Group { label: "64".into(), bars: vec![Bar { name: "etcd", height }] }];
        let svg = bars("t", &groups);
        // Half of the room between 60 and 300.
        assert!(svg.contains("y=\"180.0\""), "{svg}");
        assert!(svg.contains("M412.5 60.0V240.0") || svg.contains(" 60.0V240.0"), "{svg}");
    }
}

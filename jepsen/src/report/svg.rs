//! A small writer of SVG.

use std::fmt::Write as _;

/// A picture in the making.
pub(crate) struct Svg {
    text: String,
}

/// Replaces what has a meaning in markup.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Svg {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        Svg { text }
    }

    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("writing to a string");
        self.text.push('\n');
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, title: &str) {
        let title = escape(title);
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"><title>{title}</title></rect>"
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: &str) {
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
        ));
    }

    /// Many small squares of one colour, as one path: a run has tens of thousands of points.
    pub(crate) fn points(&mut self, points: &[(f64, f64)], fill: &str) {
        let mut path = String::new();
        for (x, y) in points {
            write!(path, "M{x:.1} {y:.1}h3v3h-3z").expect("writing to a string");
        }
        self.push(format_args!("<path d=\"{path}\" fill=\"{fill}\" fill-opacity=\"0.7\"/>"));
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], stroke: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.push(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>"
        ));
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333\">{text}</text>"));
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

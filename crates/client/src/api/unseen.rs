//! Characters that are invisible or change the order of a text.

/// Format characters of Unicode (Cf) and its separators of lines and paragraphs (Zl, Zp), as of
/// Unicode 16.
const UNSEEN: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Tells whether a character is invisible or changes the direction of a text. Nodes refuse such a
/// character in labels and owners, and the program `zlock` escapes it. Returns false for control
/// characters.
pub fn is_unseen(c: char) -> bool {
    !c.is_ascii() && UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_hide_or_turn_a_text_are_told_from_others() {
        for c in "\u{ad}\u{200b}\u{200d}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}\u{e0041}".chars() {
            assert!(is_unseen(c), "{c:?}");
        }
        for c in "a \n\u{1b}\u{a0}üあ\u{2027}\u{202f}\u{2065}\u{fe0f}🔒".chars() {
            assert!(!is_unseen(c), "{c:?}");
        }
    }
}

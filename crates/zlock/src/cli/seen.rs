//! Escaping of texts of other clients, so that each printed character is visible.

use zlock_client::api::is_unseen;

/// Returns a text of another client as one line, with control characters and invisible characters
/// escaped. These could move the cursor, or hide or reverse text.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_unseen(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Escapes invisible characters in a JSON document. Such characters occur only in its strings.
pub(crate) fn seen_json(json: &str) -> String {
    let mut seen = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unseen(c) || c == '\u{7f}' || ('\u{80}'..'\u{a0}').contains(&c) {
            let units = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            seen.push_str(&units);
        } else {
            seen.push(c);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_is_seen() {
        assert_eq!(plain("a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(plain("pay\u{202e}gnp.\u{200b} ü\u{2028}"), "pay\\u{202e}gnp.\\u{200b} ü\\u{2028}");
        assert_eq!(seen_json("[\"\u{202e}ü\u{e0041}\"]"), "[\"\\u202eü\\udb40\\udc41\"]");
    }
}

//! Checks of texts that people read: labels and owners.

use zlock_client::api::is_unseen;

use crate::problem::Problem;

/// Refuses a text with a control character, an invisible character, or a character that changes the
/// direction of writing.
///
/// # Errors
/// 400 about the parameter `name`, with the first such character.
pub(crate) fn check_seen(name: &str, text: &str) -> Result<(), Problem> {
    match text.chars().find(|c| c.is_control() || is_unseen(*c)) {
        None => Ok(()),
        Some(c) => {
            let kind = if c.is_control() { "a control character" } else { "invisible or turns the text around" };
            let why = format!("the character U+{:04X} is {kind}, and not taken", c as u32);
            Err(Problem::bad(name, why))
        }
    }
}

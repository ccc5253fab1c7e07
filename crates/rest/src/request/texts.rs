//! Checks of texts that people read: labels and owners.

use zlock_client::api::is_unseen;

use crate::problem::Problem;

/// Refuses a text with an invisible character, or with a character that changes the direction of
/// writing.
///
/// # Errors
/// 400 about the parameter `name`, with the first such character.
pub(crate) fn check_seen(name: &str, text: &str) -> Result<(), Problem> {
    match text.chars().find(|c| is_unseen(*c)) {
        None => Ok(()),
        Some(c) => {
            let why = format!("the character U+{:04X} is invisible or turns the text around, and not taken", c as u32);
            Err(Problem::bad(name, why))
        }
    }
}

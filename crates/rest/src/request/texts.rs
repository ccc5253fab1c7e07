//! Checks of texts for people: labels and owners.

use zlock_client::api::is_unseen;

use crate::problem::Problem;

/// Refuses a text with a character that a reader would not see, or would see in another order.
///
/// # Errors
/// 400 for the parameter `name`, with the first such character.
pub(crate) fn check_seen(name: &str, text: &str) -> Result<(), Problem> {
    match text.chars().find(|c| is_unseen(*c)) {
        None => Ok(()),
        Some(c) => {
            let why = format!("the character U+{:04X} is invisible or turns the text around, and not taken", c as u32);
            Err(Problem::bad(name, why))
        }
    }
}

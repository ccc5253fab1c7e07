//! Plants the bug that `ZLOCK_PLANT` names, and says loudly what kind of program this is.

use std::io::Write as _;

use plant::Planted;

const VARIABLE: &str = "ZLOCK_PLANT";

/// Plants a bug if one is asked for. A name that it does not know is refused: who asks for a bug
/// must get it.
pub(crate) fn plant() -> Result<(), String> {
    let bug = match std::env::var_os(VARIABLE) {
        None => None,
        Some(name) => Some(named(&name.to_string_lossy())?),
    };
    let planted = bug.map_or("none so far", Planted::name);
    let line = format!("WARNING: this zlock was built to have bugs planted ({planted}). Never trust it with anything.");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(bug) = bug {
        plant::everywhere(bug);
    }
    Ok(())
}

fn named(name: &str) -> Result<Planted, String> {
    Planted::ALL.iter().copied().find(|bug| bug.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Planted::ALL.iter().map(|bug| bug.name()).collect();
        format!("{VARIABLE}: there is no bug `{name}`, only {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_and_no_other_name_is_taken() {
        for bug in Planted::ALL {
            assert_eq!(named(bug.name()), Ok(*bug));
        }
        let refused = named("ack-before-fsyncs").unwrap_err();
        assert!(refused.contains("ack-before-fsync,"), "{refused}");
    }
}

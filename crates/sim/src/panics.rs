//! Panics of simulated code, which tokio would catch and hide.

use std::cell::{Cell, RefCell};
use std::sync::Once;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins to record panics on this thread, for the run of this seed.
pub(crate) fn begin(seed: u64) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let Some(seed) = SEED.get() else { return next(panic) };
            // With `panic = "abort"` this is the last chance to print the seed.
            if cfg!(panic = "abort") {
                eprintln!("seed {seed}: {panic}");
                std::process::exit(1);
            }
            let words = panic.to_string();
            PANIC.with_borrow_mut(|kept| *kept = kept.take().or(Some(words)));
        }));
    });
    SEED.set(Some(seed));
    PANIC.set(None);
}

/// Ends the recording of panics: the previous panic hook handles later panics on this thread.
pub(crate) fn end() {
    SEED.set(None);
}

/// Takes the first panic since the last call, if there was one.
pub(crate) fn taken() -> Option<String> {
    PANIC.take()
}

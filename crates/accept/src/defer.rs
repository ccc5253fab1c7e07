//! Guard that runs a function when it is dropped.

/// Runs the function when it is dropped, also with the task that has it.
pub struct Defer<F: Fn()>(pub F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

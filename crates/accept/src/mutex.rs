//! Mutex whose lock cannot fail.

use std::sync::{MutexGuard, PoisonError};

/// [`std::sync::Mutex`] without poisoning: a panic ends the process, so nobody meets a value that a
/// panic has left half changed.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Waits until no other thread has the lock, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Counts the bytes that a piece of code allocates.

#![allow(unsafe_code, reason = "an allocator cannot be counted from outside")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// An allocator that counts the bytes that each thread allocates, and passes every request on to
/// the system's allocator.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the bytes that this thread allocates while the code runs, including bytes that it frees
/// meanwhile.
pub(crate) fn during(code: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    code();
    ALLOCATED.get() - before
}

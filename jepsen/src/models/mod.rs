//! What zlock's answers mean, written without zlock's code: a model must not be the code it judges.

pub mod lock;
pub mod reentrant;
pub mod register;
pub mod rw_lock;

pub use lock::{LockModel, LockOp};
pub use reentrant::{ReentrantModel, ReentrantOp};
pub use register::{RegisterModel, RegisterOp};
pub use rw_lock::{RwLockModel, RwLockOp};

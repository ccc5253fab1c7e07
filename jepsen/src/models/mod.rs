//! Meaning of zlock's answers, written without zlock's code: a model must not be the code it
//! judges.

pub mod lock;
pub mod register;

pub use lock::{LockModel, LockOp};
pub use register::{RegisterModel, RegisterOp};

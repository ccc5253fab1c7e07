//! Terms that all layers use: names, numbers and bounds.

pub(crate) mod acl;
pub(crate) mod client_info;
pub(crate) mod error;
pub(crate) mod founding;
pub(crate) mod ids;
pub(crate) mod level;
pub(crate) mod limits;
pub(crate) mod mode;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod stat;
pub(crate) mod ticket_name;
pub(crate) mod weight;

//! The plane: the only code that joins gates and routes. Read `Plane::live` from top to bottom to see the life of
//! a call.

mod absent;
mod admission;
pub mod approvals;
pub mod bus;
mod carry_out;
pub mod contexts;
pub mod explain;
mod heard;
pub mod meters;
pub mod operation;
pub mod pipeline;
mod record;
pub mod replay;
pub mod secrets;
pub mod servers;
mod settle;
mod unstoppable;

pub use admission::Admission;
pub use approvals::Approvals;
pub use bus::Bus;
pub use carry_out::Done;
pub use contexts::Contexts;
pub use meters::Meters;
pub use operation::{Operation, Wanted};
pub use pipeline::{Parts, Plane, Reply};
pub use secrets::Secrets;
pub use servers::Servers;

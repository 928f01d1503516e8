//! The plane: the only code that joins gates and routes. Read `Plane::live` from top to bottom to see the life of
//! a call.

mod admission;
pub mod bus;
pub mod meters;
pub mod pipeline;
mod record;

pub use admission::Admission;
pub use bus::Bus;
pub use meters::Meters;
pub use pipeline::{Parts, Plane, Reply};

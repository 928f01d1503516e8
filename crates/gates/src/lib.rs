//! Gates decide; they never act. Each one looks at a call and says pass or why not.

pub mod approval;
pub mod arguments;
pub mod identity;
pub mod policy;

pub use approval::ApprovalGate;
pub use arguments::ArgumentsGate;
pub use identity::IdentityGate;
pub use policy::PolicyGate;

//! The files route through its tools, on real files.

// Only what is marked as a test may unwrap, and what tests share is not inside one.
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod confinement;
#[cfg(test)]
mod deletes;
#[cfg(test)]
mod edits;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod node;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod renames;
#[cfg(test)]
mod searches;
#[cfg(test)]
mod volumes;
#[cfg(test)]
mod writers;
#[cfg(test)]
mod writes;

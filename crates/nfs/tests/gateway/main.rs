//! The gateway over real sockets, on real files.
#![cfg(test)]

mod client;
mod hostile;
mod libnfs;
mod operations;
mod random;
mod rights;
mod stage;

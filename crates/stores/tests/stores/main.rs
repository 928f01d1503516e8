//! The stores as their users see them, on real files and with real processes.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod audit_log;
#[cfg(test)]
mod common;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod data_dir;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod export;
#[cfg(test)]
mod first_start;
#[cfg(test)]
mod parked;
#[cfg(test)]
mod pins;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod read;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod tamper;
#[cfg(test)]
mod walk;

//! How far a call reaches by what its capabilities list.

use aegis_core::{config::Capability, domain::DomainPattern};

/// The servers that a call may be about which names none: those of every capability, and all where one has no list.
pub(super) fn servers_of(matching: &[(usize, &Capability)]) -> Option<Vec<String>> {
    let lists = matching.iter().map(|(_, capability)| capability.server_allowlist.as_deref());
    let lists: Option<Vec<&[String]>> = lists.collect();
    lists.map(|lists| lists.concat())
}

/// Whether a command reaches anything: for programs, silence grants no domain.
pub(super) fn opens_network(domains: Option<&[DomainPattern]>) -> bool {
    domains.is_some_and(|domains| !domains.is_empty())
}

//! Which addresses a connection may go to.

use std::{collections::HashSet, net::IpAddr};

use aegis_core::config::{IpNetwork, PrivateTarget};

use super::address::{AddressClass, class_of, is_metadata_name};

/// Public addresses, and what `egress.allow_private` opens.
#[derive(Debug, Clone, Default)]
pub struct AddressRules {
    hosts: HashSet<String>,
    networks: Vec<IpNetwork>,
}

impl AddressRules {
    pub fn new(allow_private: &[PrivateTarget]) -> Self {
        let mut rules = Self::default();
        for target in allow_private {
            match target {
                PrivateTarget::Host(host) => {
                    rules.hosts.insert(host.clone());
                }
                PrivateTarget::Network(network) => rules.networks.push(*network),
            }
        }
        rules
    }

    /// Before a name is resolved at all. `host` is in lower case without a trailing dot.
    pub fn check_name(&self, host: &str) -> Result<(), AddressClass> {
        if is_metadata_name(host) && !self.hosts.contains(host) {
            Err(AddressClass::Metadata)
        } else {
            Ok(())
        }
    }

    /// Whether `host` may be reached at `address`; the class of the address when not.
    ///
    /// A metadata service opens by its own name or address only: a network that happens to hold it was not meant,
    /// and a name that an operator opened could be pointed there by whoever runs its zone.
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressClass> {
        let address = address.to_canonical();
        let class = class_of(address);
        if class == AddressClass::Public {
            return Ok(());
        }
        let exactly = class == AddressClass::Metadata;
        let by_name = self.hosts.contains(host) && (!exactly || is_metadata_name(host));
        let by_address = self
            .networks
            .iter()
            .any(|network| network.contains(address) && (!exactly || network.is_single()));
        if by_name || by_address { Ok(()) } else { Err(class) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(targets: &[&str]) -> AddressRules {
        let targets: Vec<PrivateTarget> = targets.iter().map(|text| text.parse().unwrap()).collect();
        AddressRules::new(&targets)
    }

    #[track_caller]
    fn passes(rules: &AddressRules, host: &str, address: &str) -> bool {
        rules.check_name(host).and_then(|()| rules.check_address(host, address.parse().unwrap())).is_ok()
    }

    #[test]
    fn nothing_private_is_open_by_default() {
        let rules = rules(&[]);
        assert!(passes(&rules, "example.org", "93.184.215.14"));
        assert!(!passes(&rules, "example.org", "10.0.0.1"));
        assert!(!passes(&rules, "localhost", "127.0.0.1"));
        assert!(!passes(&rules, "localhost", "::1"));
        assert!(!passes(&rules, "metadata.google.internal", "93.184.215.14"));
    }

    #[test]
    fn a_name_opens_only_itself() {
        let rules = rules(&["Intranet.example"]);
        assert!(passes(&rules, "intranet.example", "10.0.0.1"));
        assert!(!passes(&rules, "sub.intranet.example", "10.0.0.1"));
        assert!(!passes(&rules, "10.0.0.1", "10.0.0.1"));
    }

    #[test]
    fn an_address_is_open_to_every_name() {
        let rules = rules(&["10.1.0.0/16", "::1"]);
        assert!(passes(&rules, "any.example", "10.1.2.3"));
        assert!(passes(&rules, "any.example", "::ffff:10.1.2.3"));
        assert!(passes(&rules, "localhost", "::1"));
        assert!(!passes(&rules, "any.example", "10.2.0.1"));
        assert!(!passes(&rules, "localhost", "127.0.0.1"));
    }

    #[test]
    fn metadata_opens_only_when_named_itself() {
        let wide = rules(&["169.254.0.0/16", "fd00::/8", "intranet.example", "0.0.0.0/0"]);
        assert!(passes(&wide, "printer.example", "169.254.7.7"));
        assert!(!passes(&wide, "printer.example", "169.254.169.254"));
        assert!(!passes(&wide, "intranet.example", "169.254.169.254"));
        assert!(!passes(&wide, "any.example", "fd00:ec2::254"));
        assert!(passes(&rules(&["169.254.169.254"]), "any.example", "169.254.169.254"));
        assert!(passes(&rules(&["metadata.google.internal"]), "metadata.google.internal", "169.254.169.254"));
    }
}

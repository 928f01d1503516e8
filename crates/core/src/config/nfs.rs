use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Volumes that agents elsewhere mount over NFS version 3. Off unless switched on; what is then mounted is made with
/// `aegis volume export`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NfsConfig {
    /// Whether the node speaks NFS at all.
    pub enabled: bool,
    /// Where it listens, for NFS and MOUNT alike. Port 0 takes a free one, which `aegis volume export` tells.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// NFS has no encryption, and a file handle is all that a client needs. Only with this set does the node listen
    /// where other machines can reach it; put it into a network that nobody else is in.
    pub allow_remote: bool,
    /// Whose the files look to clients, who are all the same to the node whatever they say of themselves.
    pub uid: u32,
    /// The group of the files, as for `uid`.
    pub gid: u32,
    /// Exports at one time.
    #[schemars(range(min = 1, max = 4096))]
    pub max_exports: u32,
    /// Connections at one time, of all exports together.
    #[schemars(range(min = 1, max = 4096))]
    pub max_connections: u32,
}

impl Default for NfsConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 2049)),
            allow_remote: false,
            uid: 1000,
            gid: 1000,
            max_exports: 256,
            max_connections: 256,
        }
    }
}

impl NfsConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        if self.listen.ip().is_loopback() || self.allow_remote {
            return Vec::new();
        }
        let message = "other machines can reach that address, and NFS has no encryption: listen on 127.0.0.1, or set \
                       `allow_remote` where only agents of this node can reach it";
        vec![("/spec/storage/nfs/listen".to_owned(), message.to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_let_in_only_on_purpose() {
        assert!(NfsConfig::default().check().is_empty());
        let open = NfsConfig { listen: SocketAddr::from(([0, 0, 0, 0], 2049)), ..NfsConfig::default() };
        assert_eq!(open.check().len(), 1);
        assert!(NfsConfig { allow_remote: true, ..open }.check().is_empty());
    }
}

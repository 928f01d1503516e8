//! What kind of place an address is. Only public ones may be reached without the operator's word.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    Public,
    Unspecified,
    Loopback,
    Private,
    Shared,
    LinkLocal,
    /// Where a cloud hands credentials to whoever asks from inside the machine.
    Metadata,
    Documentation,
    Benchmarking,
    Multicast,
    Broadcast,
    Reserved,
}

impl AddressClass {
    /// Follows "is" in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "a shared carrier address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud metadata service",
            Self::Documentation => "a documentation address",
            Self::Benchmarking => "a benchmarking address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Reserved => "a reserved address",
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names that clouds give their metadata services. Their addresses are refused too; the names come first, since a
/// resolver inside a cloud may answer them with anything.
const METADATA_NAMES: [&str; 6] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
];

/// `host` is in lower case without a trailing dot.
pub(super) fn is_metadata_name(host: &str) -> bool {
    METADATA_NAMES.contains(&host)
}

pub fn class_of(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => class_of_v4(v4),
        IpAddr::V6(v6) => class_of_v6(v6),
    }
}

fn class_of_v4(address: Ipv4Addr) -> AddressClass {
    use AddressClass::*;
    match address.octets() {
        // EC2, ECS, EKS and most others; Alibaba; Oracle's first; Azure's wire server, which is in a public range.
        [169, 254, 169, 254] | [169, 254, 170, 2 | 23] | [100, 100, 100, 200] | [192, 0, 0, 192] => Metadata,
        [168, 63, 129, 16] => Metadata,
        [0, 0, 0, 0] => Unspecified,
        [0, ..] => Reserved,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Private,
        [100, 64..=127, ..] => Shared,
        [127, ..] => Loopback,
        [169, 254, ..] => LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Documentation,
        [198, 18..=19, ..] => Benchmarking,
        // Protocol assignments, and the anycast of 6to4 relays.
        [192, 0, 0, _] | [192, 88, 99, _] => Reserved,
        [224..=239, ..] => Multicast,
        [255, 255, 255, 255] => Broadcast,
        [240..=255, ..] => Reserved,
        _ => Public,
    }
}

fn class_of_v6(address: Ipv6Addr) -> AddressClass {
    use AddressClass::*;
    let s = address.segments();
    let v4 = |high: u16, low: u16| class_of_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match s {
        // EC2 and EKS; Google.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23 | 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Metadata,
        [0, 0, 0, 0, 0, 0, 0, 0] => Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Loopback,
        // IPv4-mapped; then IPv4-compatible, IPv4-translated and NAT64, none of which may hide an inner address.
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            not_below(Reserved, v4(high, low))
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo names its server in the clear and its client inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            not_below(v4(server_high, server_low), v4(!high, !low))
        }
        [0x2001, 0x2, 0, ..] => Benchmarking,
        [0x2001, 0xdb8, ..] | [0x3fff, 0x0..=0xfff, ..] => Documentation,
        [0x2001, 0x0..=0x1ff, ..] => Reserved,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Private,
        [0xfe80..=0xfebf, ..] => LinkLocal,
        [0xff00..=0xffff, ..] => Multicast,
        // Only 2000::/3 is given out as global unicast.
        [0x2000..=0x3fff, ..] => Public,
        _ => Reserved,
    }
}

/// `inner` says more, unless it is public.
fn not_below(outer: AddressClass, inner: AddressClass) -> AddressClass {
    if inner == AddressClass::Public { outer } else { inner }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;

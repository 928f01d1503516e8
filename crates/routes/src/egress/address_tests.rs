use proptest::prelude::*;
use url::{Host, Url};

use super::{AddressClass::*, *};

/// One address for each edge of each range, and its neighbours outside.
const TABLE: &[(&str, AddressClass)] = &[
    ("0.0.0.0", Unspecified),
    ("0.0.0.1", Reserved),
    ("0.255.255.255", Reserved),
    ("1.0.0.0", Public),
    ("1.1.1.1", Public),
    ("8.8.8.8", Public),
    ("9.255.255.255", Public),
    ("10.0.0.0", Private),
    ("10.1.2.3", Private),
    ("10.255.255.255", Private),
    ("11.0.0.0", Public),
    ("93.184.215.14", Public),
    ("100.63.255.255", Public),
    ("100.64.0.0", Shared),
    ("100.100.100.199", Shared),
    ("100.100.100.200", Metadata),
    ("100.127.255.255", Shared),
    ("100.128.0.0", Public),
    ("126.255.255.255", Public),
    ("127.0.0.0", Loopback),
    ("127.0.0.1", Loopback),
    ("127.1.2.3", Loopback),
    ("127.255.255.255", Loopback),
    ("128.0.0.0", Public),
    ("168.63.129.15", Public),
    ("168.63.129.16", Metadata),
    ("168.63.129.17", Public),
    ("169.253.255.255", Public),
    ("169.254.0.0", LinkLocal),
    ("169.254.169.253", LinkLocal),
    ("169.254.169.254", Metadata),
    ("169.254.170.2", Metadata),
    ("169.254.170.23", Metadata),
    ("169.254.255.255", LinkLocal),
    ("169.255.0.0", Public),
    ("172.15.255.255", Public),
    ("172.16.0.0", Private),
    ("172.17.0.1", Private),
    ("172.31.255.255", Private),
    ("172.32.0.0", Public),
    ("191.255.255.255", Public),
    ("192.0.0.0", Reserved),
    ("192.0.0.192", Metadata),
    ("192.0.0.255", Reserved),
    ("192.0.1.0", Public),
    ("192.0.2.0", Documentation),
    ("192.0.2.255", Documentation),
    ("192.0.3.0", Public),
    ("192.88.98.255", Public),
    ("192.88.99.1", Reserved),
    ("192.88.100.0", Public),
    ("192.167.255.255", Public),
    ("192.168.0.0", Private),
    ("192.168.1.1", Private),
    ("192.168.255.255", Private),
    ("192.169.0.0", Public),
    ("198.17.255.255", Public),
    ("198.18.0.0", Benchmarking),
    ("198.19.255.255", Benchmarking),
    ("198.20.0.0", Public),
    ("198.51.99.255", Public),
    ("198.51.100.0", Documentation),
    ("198.51.100.255", Documentation),
    ("198.51.101.0", Public),
    ("203.0.112.255", Public),
    ("203.0.113.0", Documentation),
    ("203.0.113.255", Documentation),
    ("203.0.114.0", Public),
    ("223.255.255.255", Public),
    ("224.0.0.0", Multicast),
    ("224.0.0.251", Multicast),
    ("239.255.255.255", Multicast),
    ("240.0.0.0", Reserved),
    ("255.255.255.254", Reserved),
    ("255.255.255.255", Broadcast),
    ("::", Unspecified),
    ("::1", Loopback),
    ("::2", Reserved),
    ("::7f00:1", Loopback),
    ("::127.0.0.1", Loopback),
    ("::10.0.0.1", Private),
    ("::8.8.8.8", Reserved),
    ("::ffff:0.0.0.0", Unspecified),
    ("::ffff:127.0.0.1", Loopback),
    ("::ffff:10.0.0.1", Private),
    ("::ffff:192.168.1.1", Private),
    ("::ffff:169.254.169.254", Metadata),
    ("::ffff:100.64.0.1", Shared),
    ("::ffff:224.0.0.1", Multicast),
    ("::ffff:255.255.255.255", Broadcast),
    ("::ffff:8.8.8.8", Public),
    ("::ffff:0:127.0.0.1", Loopback),
    ("::ffff:0:8.8.8.8", Reserved),
    ("64:ff9b::127.0.0.1", Loopback),
    ("64:ff9b::10.0.0.1", Private),
    ("64:ff9b::169.254.169.254", Metadata),
    ("64:ff9b::8.8.8.8", Public),
    ("64:ff9b:1::8.8.8.8", Reserved),
    ("64:ff9b:1::a00:1", Reserved),
    ("100::1", Reserved),
    ("100:0:0:1::1", Reserved),
    ("1fff:ffff::1", Reserved),
    ("2000::1", Public),
    ("2001::1", Reserved),
    // A Teredo client 8.8.8.8 behind the server 65.54.227.120.
    ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", Public),
    // The same server with the client 10.0.0.1, then a private server.
    ("2001:0:4136:e378:8000:63bf:f5ff:fffe", Private),
    ("2001:0:a00:1:8000:63bf:f7f7:f7f7", Private),
    ("2001:1::1", Reserved),
    ("2001:2::1", Benchmarking),
    ("2001:2:0:ffff::1", Benchmarking),
    ("2001:3::1", Reserved),
    ("2001:10::1", Reserved),
    ("2001:20::1", Reserved),
    ("2001:1ff::1", Reserved),
    ("2001:200::1", Public),
    ("2001:db7::1", Public),
    ("2001:db8::1", Documentation),
    ("2001:db8:ffff::1", Documentation),
    ("2001:db9::1", Public),
    ("2001:4860:4860::8888", Public),
    ("2002:7f00:1::", Loopback),
    ("2002:a00:1::1", Private),
    ("2002:c0a8:101::1", Private),
    ("2002:a9fe:a9fe::1", Metadata),
    ("2002:808:808::1", Public),
    ("2606:4700:4700::1111", Public),
    ("3ffe::1", Public),
    ("3fff::1", Documentation),
    ("3fff:fff::1", Documentation),
    ("3fff:1000::1", Public),
    ("4000::1", Reserved),
    ("5f00::1", Reserved),
    ("fbff::1", Reserved),
    ("fc00::1", Private),
    ("fd00:ec2::23", Metadata),
    ("fd00:ec2::254", Metadata),
    ("fd00:ec2::255", Private),
    ("fd20:ce::254", Metadata),
    ("fdff:ffff::1", Private),
    ("fe00::1", Reserved),
    ("fe80::1", LinkLocal),
    ("febf::1", LinkLocal),
    ("fec0::1", Private),
    ("feff::1", Private),
    ("ff00::1", Multicast),
    ("ff02::1", Multicast),
    ("ffff::1", Multicast),
];

#[test]
fn every_range_has_its_class() {
    for (text, wanted) in TABLE {
        assert_eq!(class_of(text.parse().unwrap()), *wanted, "{text}");
    }
}

/// The class that a URL with this host ends at; `None` when the URL has no address, or is none.
fn class_in_url(host: &str) -> Option<AddressClass> {
    match Url::parse(&format!("http://{host}/")).ok()?.host()? {
        Host::Ipv4(v4) => Some(class_of(v4.into())),
        Host::Ipv6(v6) => Some(class_of(v6.into())),
        Host::Domain(_) => None,
    }
}

#[test]
fn odd_spellings_end_at_the_same_class() {
    for (host, wanted) in [
        ("127.1", Loopback),
        ("127.0.1", Loopback),
        ("0x7f.1", Loopback),
        ("0X7F.0.0.1", Loopback),
        ("0x7f000001", Loopback),
        ("017700000001", Loopback),
        ("0177.0.0.1", Loopback),
        ("2130706433", Loopback),
        ("127.0.0.1.", Loopback),
        ("%31%32%37.0.0.1", Loopback),
        ("１２７.0.0.1", Loopback),
        ("127。0。0。1", Loopback),
        ("user:pass@127.0.0.1", Loopback),
        ("example.org@127.0.0.1", Loopback),
        ("127.0.0.1:80", Loopback),
        ("[::1]", Loopback),
        ("[0:0:0:0:0:0:0:1]", Loopback),
        ("[::ffff:127.0.0.1]", Loopback),
        ("[::FFFF:7F00:1]", Loopback),
        ("[0:0:0:0:0:ffff:7f00:0001]", Loopback),
        ("0", Unspecified),
        ("0x0", Unspecified),
        ("[::]", Unspecified),
        ("10.1", Private),
        ("167772161", Private),
        ("192.168.257", Private),
        ("0xa9fea9fe", Metadata),
        ("2852039166", Metadata),
        ("169.254.43518", Metadata),
        ("[fd00:0ec2:0::254]", Metadata),
    ] {
        assert_eq!(class_in_url(host), Some(wanted), "{host}");
    }
}

#[test]
fn overflowing_spellings_are_no_url() {
    for host in
        ["256.256.256.256", "127.0.0.0x100", "4294967296", "0x1ffffffff", "1.2.3.4.5", "127.0.0.1e0.5"]
    {
        assert!(Url::parse(&format!("http://{host}/")).is_err(), "{host}");
    }
}

fn number(value: u32, radix: u8) -> String {
    match radix {
        0 => format!("{value}"),
        1 => format!("0{value:o}"),
        2 => format!("0x{value:x}"),
        _ => format!("0X{value:08X}"),
    }
}

/// An IPv4 address in one to four parts, each in any radix, perhaps with a trailing dot.
fn spelled(address: u32, parts: usize, radixes: [u8; 4], dot: bool) -> String {
    let octets = address.to_be_bytes();
    let mut pieces: Vec<String> =
        (0..parts - 1).map(|index| number(u32::from(octets[index]), radixes[index])).collect();
    let rest = address & u32::MAX.checked_shr(8 * (parts as u32 - 1)).unwrap_or(0);
    pieces.push(number(rest, radixes[parts - 1]));
    pieces.join(".") + if dot { "." } else { "" }
}

fn not_public() -> impl Strategy<Value = u32> {
    let within = |base: u32, bits: u32| any::<u32>().prop_map(move |low| base | (low & ((1 << bits) - 1)));
    prop_oneof![
        within(0x0000_0000, 24),
        within(0x0a00_0000, 24),
        within(0x6440_0000, 22),
        within(0x7f00_0000, 24),
        within(0xa9fe_0000, 16),
        within(0xac10_0000, 20),
        within(0xc000_0000, 8),
        within(0xc000_0200, 8),
        within(0xc0a8_0000, 16),
        within(0xc612_0000, 17),
        within(0xc633_6400, 8),
        within(0xcb00_7100, 8),
        within(0xe000_0000, 29),
        Just(0xa9fe_a9fe),
    ]
}

proptest! {
    #[test]
    fn no_spelling_of_a_closed_address_is_public(
        address in not_public(),
        parts in 1..=4_usize,
        radixes in any::<[u8; 4]>().prop_map(|all| all.map(|radix| radix % 4)),
        dot in any::<bool>(),
        user in any::<bool>(),
    ) {
        let wanted = class_of(IpAddr::V4(address.into()));
        prop_assert_ne!(wanted, Public);
        let host = spelled(address, parts, radixes, dot);
        let host = if user { format!("example.org@{host}") } else { host };
        prop_assert_eq!(class_in_url(&host), Some(wanted), "{}", host);
    }

    #[test]
    fn no_ipv6_clothes_make_a_closed_address_public(address in not_public(), low in any::<u64>(), upper in any::<bool>()) {
        let v4 = Ipv4Addr::from(address);
        let [a, b, c, d] = v4.octets();
        let (high16, low16) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        for text in [
            format!("::ffff:{v4}"),
            format!("::ffff:{high16:x}:{low16:x}"),
            format!("::ffff:0:{v4}"),
            format!("::{v4}"),
            format!("64:ff9b::{v4}"),
            format!("2002:{high16:x}:{low16:x}::{:x}", low as u16),
            format!("2001:0:{high16:x}:{low16:x}:0:0:f7f7:f7f7"),
            format!("2001:0:4136:e378:{:x}:0:{:x}:{:x}", low as u16, !high16, !low16),
        ] {
            let text = if upper { text.to_uppercase() } else { text };
            let class = class_in_url(&format!("[{text}]"));
            prop_assert!(class.is_some_and(|class| class != Public), "{} is {:?}", text, class);
        }
    }
}

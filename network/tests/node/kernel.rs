//! Netlink and nftables against the kernel, verified with the ip and nft commands.

use std::process::Command;

use network::netlink::{Forwarding, Neighbour, Route, Rtnl, Veth, Vxlan};
use network::nft::{Batch, Data, Element, Expression, Family, Field, Hook, Kind, Nft, Register, Set};

use crate::support::{NetNamespace, on_host, ruleset};

fn shown(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output().expect("the command is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn links_addresses_routes_and_neighbours() {
    on_host(|_| {
        let space = NetNamespace::new();
        let mut rtnl = Rtnl::open().unwrap();
        assert_eq!(rtnl.link("absent").unwrap(), None);
        assert_eq!(rtnl.link("a-name-that-is-too-long").unwrap(), None);
        let veth = Veth {
            name: "v0",
            peer: "eth0",
            peer_netns: &space.netns,
            peer_mac: Some([2, 0, 0, 0, 0, 9]),
            master: None,
            mtu: Some(1400),
        };
        rtnl.add_veth(&veth).unwrap();
        let error = rtnl.add_veth(&veth).unwrap_err();
        assert!(error.is(rustix::io::Errno::EXIST), "{error}");
        let link = rtnl.link("v0").unwrap().unwrap();
        assert_eq!((link.up, link.mtu, link.kind.as_deref()), (true, 1400, Some("veth")));
        let mut inside = Rtnl::open_in(&space.netns).unwrap();
        let peer = inside.link("eth0").unwrap().unwrap();
        assert_eq!((peer.mac, peer.peer, peer.mtu), ([2, 0, 0, 0, 0, 9], Some(link.index), 1400));

        inside.set_up(peer.index).unwrap();
        for net in ["10.0.0.1/24", "fd00::1/64"] {
            rtnl.add_address(link.index, net.parse().unwrap()).unwrap();
        }
        let found: Vec<_> =
            rtnl.addresses(link.index).unwrap().into_iter().filter(|address| !address.link_local).collect();
        assert_eq!(
            found.iter().map(|address| address.net.to_string()).collect::<Vec<_>>(),
            ["10.0.0.1/24", "fd00::1/64"]
        );
        assert_eq!(rtnl.addresses(1).unwrap().len(), 2);

        let far = Route {
            mtu: Some(1300),
            priority: Some(7),
            ..Route::new("10.7.0.0/16".parse().unwrap(), "10.0.0.9".parse().ok(), link.index)
        };
        let far6 = Route::new("fd07::/32".parse().unwrap(), "fd00::9".parse().ok(), link.index);
        let table = Route { table: Some(1000), ..Route::new("10.8.0.0/16".parse().unwrap(), None, link.index) };
        for route in [&far, &far6, &table] {
            rtnl.add_route(route).unwrap();
        }
        let routes = shown("ip", &["route"]);
        assert!(routes.contains("10.7.0.0/16 via 10.0.0.9 dev v0 metric 7 mtu 1300"), "{routes}");
        assert!(shown("ip", &["-6", "route"]).contains("fd07::/32 via fd00::9 dev v0"));
        assert!(shown("ip", &["route", "show", "table", "1000"]).contains("10.8.0.0/16 dev v0 scope link"));
        let routes = rtnl.routes(link.index).unwrap();
        assert!(
            routes.iter().any(|route| route.to == far.to && route.gateway == far.gateway && route.mtu == Some(1300))
        );
        assert_eq!(rtnl.device_to("10.7.1.1".parse().unwrap()).unwrap(), Some(link.index));
        rtnl.delete_route(&far).unwrap();
        assert!(!shown("ip", &["route"]).contains("10.7.0.0/16"));

        let neighbour = Neighbour { device: link.index, address: "10.0.0.9".parse().unwrap(), mac: [2, 0, 0, 0, 0, 7] };
        rtnl.set_neighbour(&neighbour).unwrap();
        assert!(rtnl.neighbours(link.index).unwrap().contains(&neighbour));
        assert!(shown("ip", &["neigh"]).contains("10.0.0.9 dev v0 lladdr 02:00:00:00:00:07 PERMANENT"));
        rtnl.delete_neighbour(link.index, neighbour.address).unwrap();

        assert!(rtnl.has_link("v0").unwrap() && !rtnl.has_link("absent").unwrap());
        assert!(rtnl.delete_link("v0").unwrap());
        assert!(!rtnl.delete_link("v0").unwrap());
    });
}

#[test]
fn vxlan_devices_have_forwarding_entries() {
    on_host(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        let space = NetNamespace::new();
        let veth =
            Veth { name: "v0", peer: "eth0", peer_netns: &space.netns, peer_mac: None, master: None, mtu: Some(1500) };
        rtnl.add_veth(&veth).unwrap();
        let under = rtnl.link("v0").unwrap().unwrap();
        rtnl.add_address(under.index, "192.0.2.1/24".parse().unwrap()).unwrap();
        let vxlan = Vxlan { vni: 7, port: 8472, local: "192.0.2.1".parse().unwrap(), device: under.index };
        rtnl.add_vxlan("x0", &vxlan, [2, 0, 0, 0, 0, 1], 1450).unwrap();
        let link = rtnl.link("x0").unwrap().unwrap();
        assert_eq!((link.up, link.mtu, link.mac), (true, 1450, [2, 0, 0, 0, 0, 1]));
        assert_eq!(rtnl.vxlan("x0").unwrap(), Some(vxlan));
        assert_eq!((rtnl.vxlan("v0").unwrap(), rtnl.vxlan("absent").unwrap()), (None, None));
        let again = rtnl.add_vxlan("x1", &vxlan, [2, 0, 0, 0, 0, 2], 1450).unwrap_err();
        assert!(again.is(rustix::io::Errno::EXIST), "{again}");

        let mac = [2, 0, 0, 0, 0, 9];
        let mut entry = Forwarding { mac, host: "192.0.2.9".parse().unwrap() };
        rtnl.set_forwarding(link.index, &entry).unwrap();
        entry.host = "192.0.2.8".parse().unwrap();
        rtnl.set_forwarding(link.index, &entry).unwrap();
        assert_eq!(rtnl.forwardings(link.index).unwrap(), [entry]);
        let shown = shown("bridge", &["fdb", "show", "dev", "x0"]);
        assert!(shown.contains("02:00:00:00:00:09 dst 192.0.2.8 self permanent"), "{shown}");
        rtnl.delete_forwarding(link.index, &entry).unwrap();
        assert_eq!(rtnl.forwardings(link.index).unwrap(), []);

        let far = Route {
            onlink: true,
            protocol: Some(84),
            ..Route::new("10.7.0.0/24".parse().unwrap(), "10.7.0.0".parse().ok(), link.index)
        };
        rtnl.add_route(&far).unwrap();
        let found = rtnl.routes(link.index).unwrap();
        assert!(
            found.iter().any(|route| route.to == far.to && route.onlink && route.protocol == Some(84)),
            "{found:?}"
        );
        rtnl.delete_link("x0").unwrap();
        rtnl.delete_link("v0").unwrap();
    });
}

#[test]
fn errors_contain_the_kernels_explanation() {
    on_host(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        let error = rtnl.add_link("nosuchkind", "x0", None).unwrap_err();
        assert_eq!(error.to_string(), "create the nosuchkind x0 (Unknown device type)");
        assert!(error.is(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn transactions_are_atomic() {
    on_host(|_| {
        let mut nft = Nft::open().unwrap();
        let mut batch = Batch::new(Family::Inet, "t");
        batch.create_table();
        batch.create_set(&Set::map("ports", &[Kind::Protocol, Kind::Port], &[Kind::Ipv4, Kind::Port]));
        batch.create_set(&Set::intervals("nets", &[Kind::Ipv4]));
        batch.create_chain("c", Some(Hook::nat(Hook::PREROUTING, -100)));
        let r = Register;
        batch.rule(
            "c",
            &[
                Expression::Load(Field::NetworkProtocol, r(0)),
                Expression::Equal(r(0), &[2]),
                Expression::Load(Field::Ipv4Source, r(0)),
                Expression::In(r(0), "nets"),
                Expression::Load(Field::TransportProtocol, r(0)),
                Expression::Load(Field::DestinationPort, r(1)),
                Expression::Map(r(0), "ports", r(0)),
                Expression::DestinationNat { family: 2, address: r(0), port: r(1) },
            ],
        );
        let end = Element { interval_end: true, ..Element::new(vec![10, 1, 0, 0], Data::None, "") };
        batch.add_elements("nets", &[Element::new(vec![10, 0, 0, 0], Data::None, ""), end]);
        batch.commit(&mut nft, "make a table").unwrap();
        let rules = ruleset();
        assert!(rules.contains("type inet_proto . inet_service : ipv4_addr . inet_service"), "{rules}");
        assert!(rules.contains("ip saddr @nets dnat ip to meta l4proto . th dport map @ports"), "{rules}");
        assert!(rules.contains("10.0.0.0/16"), "{rules}");

        // Many elements need more than one message, but are still one transaction.
        let element = |number: u16| {
            let key = Element::join(&[&[6], &number.to_be_bytes()]);
            Element::new(key, Data::Value(Element::join(&[&[10, 0, 0, 1], &[0, 80]])), &format!("number {number}"))
        };
        let many: Vec<Element> = (1..=5000).map(element).collect();
        let mut batch = Batch::new(Family::Inet, "t");
        batch.add_elements("ports", &many);
        batch.commit(&mut nft, "add many").unwrap();
        let mut found = nft.elements(Family::Inet, "t", "ports").unwrap();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(found, many);

        // If one element does not exist, none is deleted.
        let mut batch = Batch::new(Family::Inet, "t");
        batch.delete_elements("ports", &[many[..300].to_vec(), vec![element(9999)]].concat());
        assert!(batch.commit(&mut nft, "delete too many").unwrap_err().is(rustix::io::Errno::NOENT));
        assert_eq!(nft.elements(Family::Inet, "t", "ports").unwrap().len(), 5000);
        assert!(nft.has_table(Family::Inet, "t").unwrap() && nft.has_chain(Family::Inet, "t", "c").unwrap());
        assert!(!nft.has_chain(Family::Inet, "t", "d").unwrap());
        let mut batch = Batch::new(Family::Inet, "t");
        batch.delete_table();
        batch.commit(&mut nft, "delete a table").unwrap();
        assert!(!nft.has_table(Family::Inet, "t").unwrap());
        assert_eq!(nft.elements(Family::Inet, "t", "ports").unwrap(), []);
    });
}

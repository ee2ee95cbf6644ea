use super::*;

fn topologies(nodes: &[(&str, Option<i64>)]) -> NodeTopologies {
    let of = |(at, (zone, cpu)): (usize, &(&str, Option<i64>))| {
        (Key::from(format!("node-{at}")), NodeTopology::new(zone, *cpu))
    };
    nodes.iter().enumerate().map(of).collect()
}

fn zones(cpus: &[i64]) -> ZoneShares {
    let nodes: Vec<(String, i64)> = cpus.iter().enumerate().map(|(at, cpu)| (format!("z{}", at + 1), *cpu)).collect();
    let nodes: Vec<(&str, Option<i64>)> = nodes.iter().map(|(zone, cpu)| (zone.as_str(), Some(*cpu))).collect();
    shares(&topologies(&nodes)).expect("there are shares")
}

/// A slice with an endpoint for each `ZONE`, or `ZONE>ZONE` with the zone of its hint; `-` stands for one that is not
/// ready.
fn slice(name: &str, endpoints: &str) -> Tree {
    let endpoint = |text: &str| {
        let (zone, hint) = text.split_once('>').unwrap_or((text, ""));
        let mut endpoint = tree! { "conditions" => tree! { "ready" => zone != "-" }, "zone" => zone };
        if !hint.is_empty() {
            set_hint(&mut endpoint, hint);
        }
        endpoint
    };
    let endpoints: Vec<Tree> = endpoints.split_whitespace().map(endpoint).collect();
    tree! { "metadata" => tree! { "name" => name }, "endpoints" => endpoints }
}

fn text(slice: &Tree) -> String {
    let endpoint = |endpoint: &Tree| {
        let zone = endpoint.str("zone");
        match endpoint.list("hints.forZones").first() {
            Some(hint) => format!("{zone}>{}", hint.str("name")),
            None => zone.to_string(),
        }
    };
    slice.list("endpoints").iter().map(endpoint).collect::<Vec<String>>().join(" ")
}

#[test]
fn only_ready_workers_count() {
    let check = |ready: &str, label: &str, cpu: &str, want: NodeTopology| {
        let node = tree! {
            "metadata" => tree! { "labels" => tree! { ZONE => "z", label => "" } },
            "status" => tree! {
                "allocatable" => tree! { "cpu" => cpu },
                "conditions" => list![tree! { "type" => "Ready", "status" => ready }],
            },
        };
        assert_eq!(NodeTopology::of(&node), want, "{ready} {label} {cpu}");
    };
    check("True", "x", "1500m", NodeTopology::new("z", Some(1500)));
    check("True", "x", "2", NodeTopology::new("z", Some(2000)));
    check("True", "x", "", NodeTopology::new("z", Some(0)));
    check("Unknown", "x", "2", NodeTopology::new("z", None));
    check("True", "node-role.kubernetes.io/control-plane", "2", NodeTopology::new("z", None));
    check("True", "node-role.kubernetes.io/master", "2", NodeTopology::new("z", None));
}

#[test]
fn shares_need_zone_and_cpu_of_all_nodes() {
    let check = |nodes: &[(&str, Option<i64>)], want: Option<&[(&str, f64)]>| {
        let want: Option<ZoneShares> =
            want.map(|want| want.iter().map(|(zone, share)| (Str::from(*zone), *share)).collect());
        assert_eq!(shares(&topologies(nodes)), want, "{nodes:?}");
    };
    check(&[], None);
    check(&[("a", Some(1000)), ("a", Some(1000))], None);
    check(&[("a", Some(1000)), ("b", Some(3000))], Some(&[("a", 0.25), ("b", 0.75)]));
    check(&[("a", Some(1000)), ("b", Some(1000)), ("", Some(1000))], None);
    check(&[("a", Some(1000)), ("b", Some(1000)), ("c", Some(0))], None);
    check(&[("a", Some(1000)), ("b", Some(1000)), ("", None)], Some(&[("a", 0.5), ("b", 0.5)]));
}

/// Expects the hints of new and unchanged slices, and which slices are written.
fn check(cpus: &[i64], create: &str, unchanged: &[&str], want: (&str, &[&str]), counts: &[usize]) {
    let there: Vec<Arc<Tree>> = unchanged.iter().map(|text| Arc::new(slice("s", text))).collect();
    let mut changes = Changes { create: vec![slice("", create)], ..Changes::default() };
    let hinted = hint(&mut changes, &there, Some(&zones(cpus)));
    assert_eq!(text(&changes.create[0]), want.0, "{cpus:?} {create}");
    assert_eq!(changes.update.iter().map(text).collect::<Vec<_>>(), want.1, "{cpus:?} {create}");
    let counts = counts.iter().enumerate().map(|(at, count)| (Str::from(format!("z{}", at + 1)), *count));
    assert_eq!(hinted, HintResult::Yes(counts.collect()), "{cpus:?} {create}");
}

#[test]
fn zones_get_their_share() {
    check(&[1000, 1000], "z1 z1 z2 z2", &[], ("z1>z1 z1>z1 z2>z2 z2>z2", &[]), &[2, 2]);
    check(&[1000, 1000], "z1 z1 z1 z2", &[], ("z1>z2 z1>z1 z1>z1 z2>z2", &[]), &[2, 2]);
    check(&[1000, 1000], "z1 - z1 z2 z2", &[], ("z1>z1 - z1>z1 z2>z2 z2>z2", &[]), &[2, 2]);
    check(&[1000, 3000], "z1 z1 z2 z2", &[], ("z1>z2 z1>z1 z2>z2 z2>z2", &[]), &[1, 3]);
    check(&[1000, 1000, 1000], "z1 z1 z1", &[], ("z1>z2 z1>z3 z1>z1", &[]), &[1, 1, 1]);
}

#[test]
fn keeps_slices_with_valid_hints() {
    check(&[1000, 1000], "z1 z1", &["z2>z2 z2>z2"], ("z1>z1 z1>z1", &[]), &[2, 2]);
    check(&[1000, 1000], "z1", &["z2>z2 z2>z2 z2>z1"], ("z1>z1", &[]), &[2, 2]);
    check(&[1000, 1000], "z1", &["z1 z2 z2>z2"], ("z1>z1", &["z1>z1 z2>z2 z2>z2"]), &[2, 2]);
    check(&[1000, 1000], "z1 z2 z2", &["z1>z9"], ("z1>z1 z2>z2 z2>z2", &["z1>z1"]), &[2, 2]);
    check(&[1000, 1000], "", &["z1>z1 z1>z1", "z1>z1 z2>z1"], ("", &["z1>z2 z2>z2"]), &[2, 2]);
}

#[test]
fn removes_hints_with_too_few_endpoints() {
    let check = |shares: Option<ZoneShares>, create: &str, want: &str| {
        let mut changes = Changes { create: vec![slice("", create)], ..Changes::default() };
        let there = [Arc::new(slice("s", "-")), Arc::new(slice("s", "z1>z1"))];
        let HintResult::No(why) = hint(&mut changes, &there, shares.as_ref()) else { panic!("{create}") };
        assert_eq!(why.to_string(), want, "{create}");
        assert!(!text(&changes.create[0]).contains('>'), "{create}");
        assert_eq!(changes.update.iter().map(text).collect::<Vec<_>>(), ["z1"], "what had none is not written");
    };
    let insufficient = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    check(None, "z1>z2", insufficient);
    check(Some(zones(&[1000, 1000])), "", "Insufficient number of endpoints (1 endpoints, 2 zones)");
    let overload = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
    check(Some(zones(&[1000, 3000])), "z2", &format!("{overload} (2 endpoints, 2 zones)"));
}

#[test]
fn removes_hints_if_an_endpoint_has_no_zone() {
    let mut made = slice("", "z1>z1 z2>z2");
    made.list_mut("endpoints")[1].remove("zone");
    let mut changes = Changes { create: vec![made], ..Changes::default() };
    let hinted = hint(&mut changes, &[], Some(&zones(&[1, 1])));
    assert_eq!(hinted, HintResult::No(HintError::NoZone));
    assert!(changes.create[0].list("endpoints").iter().all(|endpoint| !endpoint.has("hints")));
}

#[test]
fn zone_changes_outdate_hints() {
    let check = |counts: &[usize], cpus: &[i64], want: bool| {
        let counts = counts.iter().enumerate().map(|(at, count)| (Str::from(format!("z{}", at + 1)), *count));
        assert_eq!(HintResult::Yes(counts.collect()).is_outdated(Some(&zones(cpus))), want, "{cpus:?}");
    };
    check(&[2, 2], &[1000, 1000], false);
    check(&[5, 5], &[1000, 1300], false);
    check(&[5, 5], &[1000, 3000], true);
    check(&[5, 5], &[1000, 1000, 1000], true);
    assert!(HintResult::Yes(Counts::new()).is_outdated(None));
    assert!(HintResult::No(HintError::NoZone).is_outdated(Some(&zones(&[1, 1]))));
    assert!(!HintResult::No(HintError::NoZone).is_outdated(None));
}

//! Configuration files with Debian's plugins and with the built-in ones give the same result.

use network::cni::{Attachment, Cni, CniOptions, PortMapping};
use serde_json::{Value, json};

use crate::support::{DEBIAN, Host, Pod, on_host, talk};

/// The configuration names its lease directory, so that tests do not share one.
fn sample(host: &Host) -> String {
    json!({
        "cniVersion": "0.3.1",
        "name": "bridge",
        "type": "bridge",
        "bridge": "cnio0",
        "isGateway": true,
        "ipMasq": true,
        "ipam": {
            "type": "host-local",
            "dataDir": host.path("networks"),
            "ranges": [[{ "subnet": "10.200.1.0/24" }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    })
    .to_string()
}

fn debian(host: &Host) -> CniOptions {
    CniOptions { builtin: false, bin_dirs: vec![DEBIAN.into()], ..host.options() }
}

/// The built-in plugins as executables.
fn executables(host: &Host) -> CniOptions {
    let directory = host.path("bin");
    std::fs::create_dir_all(&directory).expect("a directory");
    for name in ["bridge", "host-local", "loopback", "portmap", "bandwidth"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tiphys-cni"), directory.join(name)).expect("a link");
    }
    CniOptions { builtin: false, bin_dirs: vec![directory], ..host.options() }
}

/// A result without random values: MAC addresses, the name of the host's end, the namespace.
fn essence(attached: &Value) -> Value {
    let mut essence = attached.clone();
    for interface in essence["interfaces"].as_array_mut().expect("interfaces") {
        assert_eq!(interface["mac"].as_str().expect("a text").len(), 17);
        let sandbox = interface.get("sandbox").is_some();
        let bridge = interface["name"] == "cnio0";
        *interface =
            if sandbox || bridge { json!({ "name": interface["name"], "sandbox": sandbox }) } else { json!("port") };
    }
    essence
}

fn talk_to_all(host: &Host, cni: &Cni, one: &Pod, two: &Pod) -> Vec<Value> {
    let outside = host.outside();
    let results = [one, two].map(|pod| cni.add(&pod.attachment()).expect("ADD"));
    let server = two.space.listen("0.0.0.0:80");
    let address = format!("{}:80", results[1].ips[0]);
    assert_eq!(talk(one.space.connect(&address), &server), results[0].ips[0]);
    let server = outside.listen("192.0.2.2:80");
    assert_eq!(talk(one.space.connect("192.0.2.2:80"), &server).to_string(), "192.0.2.1");
    for pod in [one, two] {
        cni.del(&pod.attachment()).expect("DEL");
        cni.del(&pod.attachment()).expect("DEL");
    }
    host.take_away_outside();
    results.iter().map(|attached| essence(&attached.raw)).collect()
}

#[test]
fn a_sample_behaves_the_same_with_debians_and_built_in_plugins() {
    type Options = fn(&Host) -> CniOptions;
    let ways: [(&str, Options); 3] =
        [("Debian's", debian), ("in process", Host::options), ("executables", executables)];
    let mut results = Vec::new();
    for (way, options) in ways {
        let mut of_way = Vec::new();
        on_host(|host| {
            let cni = host.configured("10-bridge.conf", &sample(host), options(host));
            of_way = talk_to_all(host, &cni, &host.pod("one"), &host.pod("two"));
        });
        results.push((way, of_way));
    }
    let (_, expected) = &results[0];
    assert_eq!(expected[0]["ips"][0]["address"], "10.200.1.2/24");
    for (way, found) in &results {
        assert_eq!(found, expected, "{way}");
    }
}

#[test]
fn shares_leases_with_debians_plugin() {
    on_host(|host| {
        // Debian's bridge only removes masquerading that it has added itself.
        let conf = sample(host).replace("\"ipMasq\":true", "\"ipMasq\":false");
        let theirs = host.configured("10-bridge.conf", &conf, debian(host));
        let ours = Cni::open(host.options()).unwrap();
        let pods: Vec<_> = (0..4).map(|number| host.pod(&format!("p{number}"))).collect();
        let address = |cni: &Cni, pod: &Pod| cni.add(&pod.attachment()).unwrap().ips[0].to_string();
        assert_eq!(address(&theirs, &pods[0]), "10.200.1.2");
        assert_eq!(address(&ours, &pods[1]), "10.200.1.3");
        assert_eq!(address(&theirs, &pods[2]), "10.200.1.4");
        assert_eq!(host.count().leases, 3);
        // Either one deletes what the other has created.
        ours.del(&pods[2].attachment()).unwrap();
        theirs.del(&pods[1].attachment()).unwrap();
        assert_eq!(address(&ours, &pods[3]), "10.200.1.5");
        ours.del(&pods[3].attachment()).unwrap();
        theirs.del(&pods[0].attachment()).unwrap();
    });
}

#[test]
fn detaches_with_the_configuration_of_the_attachment() {
    on_host(|host| {
        let cni = host.configured("10-bridge.conf", &sample(host), host.options());
        let (one, two) = (host.pod("one"), host.pod("two"));
        cni.add(&one.attachment()).unwrap();
        cni.add(&two.attachment()).unwrap();
        let other =
            sample(host).replace("\"bridge\":\"cnio0\"", "\"bridge\":\"tiphys0\"").replace("10.200.1", "10.200.2");
        let other = other.replace("\"name\":\"bridge\"", "\"name\":\"other\"");
        std::fs::write(host.path("net.d/10-bridge.conf"), other).unwrap();
        cni.del(&one.attachment()).unwrap();
        let three = host.pod("three");
        assert_eq!(cni.add(&three.attachment()).unwrap().ips[0].to_string(), "10.200.2.2");
        std::fs::remove_file(host.path("net.d/10-bridge.conf")).unwrap();
        assert!(cni.status().is_err());
        cni.del(&two.attachment()).unwrap();
        cni.del(&three.attachment()).unwrap();
    });
}

/// A chain with host ports, run with each version, with CHECK if the version has it.
fn chain(host: &Host, version: &str) -> String {
    let mut bridge: Value = serde_json::from_str(&sample(host)).expect("JSON");
    bridge["hairpinMode"] = true.into();
    let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    json!({ "cniVersion": version, "name": "chain", "plugins": [bridge, portmap] }).to_string()
}

#[test]
fn runs_chains_of_all_versions() {
    // Debian's plugins support versions up to 1.0.
    type Options = fn(&Host) -> CniOptions;
    let ways: [(bool, &[&str], Options); 3] = [
        (false, &["0.3.1", "0.4.0", "1.0.0"], debian),
        (true, &["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"], Host::options),
        (true, &["0.3.1", "1.1.0"], executables),
    ];
    for (ours, versions, options) in ways {
        for version in versions {
            on_host(|host| {
                let outside = host.outside();
                let cni = host.configured("10-chain.conflist", &chain(host, version), options(host));
                cni.status().unwrap();
                let pod = host.pod("web");
                let mapping = PortMapping { host_port: 8080, container_port: 80, ..PortMapping::default() };
                let attachment = Attachment { port_mappings: vec![mapping], ..pod.attachment() };
                cni.add(&attachment).unwrap();
                let checked = cni.check(&attachment).map_err(|error| error.to_string());
                match version.starts_with("0.3") {
                    true => assert!(checked.unwrap_err().ends_with("does not support CHECK command")),
                    // Debian's portmap looks for IPv6 chains that a pod without IPv6 does not have.
                    false if !ours => assert!(checked.unwrap_err().contains("could not check ipv6 dnat")),
                    false => checked.unwrap_or_else(|error| panic!("{version}: {error}")),
                }
                let server = pod.space.listen("0.0.0.0:80");
                assert_eq!(talk(outside.connect("192.0.2.1:8080"), &server).to_string(), "192.0.2.2");
                talk(pod.space.connect("192.0.2.1:8080"), &server);
                cni.gc(&[(attachment.container_id.clone(), "eth0".to_string())]).unwrap();
                cni.del(&attachment).unwrap();
                host.take_away_outside();
            });
        }
    }
}

#[test]
fn unsupported_configurations_are_left_to_binaries_or_refused() {
    on_host(|host| {
        let mut conf: Value = serde_json::from_str(&sample(host)).unwrap();
        conf["vlan"] = 100.into();
        let cni = host.configured("10-bridge.conf", &conf.to_string(), host.options());
        let pod = host.pod("vlan");
        let error = cni.add(&pod.attachment()).unwrap_err().to_string();
        assert_eq!(error, "plugin type=\"bridge\" failed (add): vlan: is not supported by the built-in bridge plugin");
        let with_binaries = Cni::open(CniOptions { bin_dirs: vec![DEBIAN.into()], ..host.options() }).unwrap();
        let outcome = with_binaries.add(&pod.attachment());
        // Debian's bridge runs; whether it succeeds depends on the kernel's VLAN support.
        if let Err(error) = &outcome {
            assert!(!error.to_string().contains("built-in"), "{error}");
        }
        with_binaries.del(&pod.attachment()).unwrap();
    });
}

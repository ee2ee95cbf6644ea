use super::*;
use crate::zone::PodMode;

/// The Corefile of kubeadm's ConfigMap.
const KUBEADM: &str = "
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
";

fn parse(text: &str) -> Result<Corefile, Vec<String>> {
    Corefile::parse(text, &|_| None).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

#[test]
fn accepts_the_corefile_of_kubeadm() {
    let corefile = parse(KUBEADM).expect("a Corefile");
    let [block] = corefile.blocks.as_slice() else { panic!("{corefile:?}") };
    assert_eq!((block.zones.as_slice(), block.port), (&[Name::root()][..], 53));
    assert!(block.errors && block.detects_loops && block.shuffles && block.reload.is_some());
    assert_eq!(block.health.as_ref().map(|health| health.lameduck), Some(Duration::from_secs(5)));
    assert_eq!(block.prometheus.map(|address| address.port()), Some(9153));
    assert_eq!(block.ready.map(|address| address.port()), Some(8181));
    let kubernetes = block.kubernetes.as_ref().expect("the plugin");
    assert_eq!((kubernetes.zone.pods, kubernetes.zone.ttl), (PodMode::Insecure, 30));
    assert_eq!(kubernetes.zone.origins, ["cluster.local", "in-addr.arpa", "ip6.arpa"].map(name));
    assert_eq!(kubernetes.fallthrough, Some(Fallthrough(["in-addr.arpa", "ip6.arpa"].map(name).into())));
    let [forward] = block.forwards.as_slice() else { panic!("{block:?}") };
    assert_eq!((forward.max_concurrent, forward.from.is_root()), (1000, true));
    assert_eq!(forward.to, [Upstream::File("/etc/resolv.conf".into())]);
    let cache = block.cache.as_ref().expect("the plugin");
    assert_eq!((cache.success.max_ttl, cache.denial.max_ttl), (Duration::from_secs(30), Duration::from_secs(30)));
    assert_eq!(cache.success_except, [name("cluster.local")]);
}

#[test]
#[allow(clippy::too_many_lines)] // A table.
fn accepts_stub_domains_and_options() {
    let text = "
        consul.local:53, example.org {
            errors
            cache 30
            forward . 10.150.0.1 dns://[fd00::1]:5353 {
                policy sequential
                except internal.example.org
                health_check 5s no_rec domain example.org
                max_fails 3
                force_tcp
                failover SERVFAIL REFUSED
                read_timeout 1s
            }
            log . \"{remote} {name}\" {
                class denial error
            }
            log
        }
        dns://.:1053 {
            bind 127.0.0.1 ::1
            hosts /etc/my.hosts example.com {
                10.0.0.1 Example.com www.example.com
                ttl 60
                no_reverse
                reload 10s
                fallthrough
            }
            rewrite name suffix .schmoogle.com. .google.com. answer auto
            rewrite continue {
                ttl regex (.*)\\.coredns\\.rocks 30-300
            }
            rewrite type ANY HINFO
            rewrite rcode regex .* SERVFAIL NXDOMAIN
            autopath @kubernetes
            cache 100 {
                success 5000 3600 1
                denial 2000
                prefetch 10 1m 20%
                serve_stale 1h verify
                servfail 1s
                keepttl
            }
            kubernetes cluster.local 10.96.0.0/12 {
                pods verified
                endpoint_pod_names
                namespaces a b
                labels app in (x, y)
                ignore empty_service
                noendpoints
            }
        }";
    let corefile = parse(text).expect("a Corefile");
    assert_eq!(corefile.ports(), [53, 1053].into());
    let [stub, rest] = corefile.blocks.as_slice() else { panic!("{corefile:?}") };
    assert_eq!(stub.zones, ["consul.local", "example.org"].map(name));
    let [forward] = stub.forwards.as_slice() else { panic!("{stub:?}") };
    assert_eq!(forward.to[0], Upstream::Address("10.150.0.1:53".parse().expect("an address")));
    assert_eq!(forward.to[1], Upstream::Address("[fd00::1]:5353".parse().expect("an address")));
    assert_eq!((forward.policy, forward.max_fails, forward.force_tcp), (Policy::Sequential, 3, true));
    assert!(forward.covers(&name("a.example.org")) && !forward.covers(&name("x.internal.example.org")));
    assert_eq!(stub.log.len(), 2);
    assert_eq!(stub.log[0].classes, [LogClass::Denial, LogClass::Error]);
    let hosts = rest.hosts.as_ref().expect("the plugin");
    assert_eq!(hosts.inline[0].1, ["example.com", "www.example.com"].map(name));
    assert_eq!((hosts.ttl, hosts.with_reverse, hosts.reload), (60, false, Duration::from_secs(10)));
    let cache = rest.cache.as_ref().expect("the plugin");
    assert_eq!((cache.success.capacity, cache.success.min_ttl), (5000, Duration::from_secs(1)));
    assert_eq!(cache.stale, Some(Stale { duration: Duration::from_secs(3600), verifies: true }));
    let kubernetes = rest.kubernetes.as_ref().expect("the plugin");
    assert_eq!(kubernetes.zone.origins.len(), 1 + 16);
    assert_eq!(kubernetes.labels.as_deref(), Some("app in (x,y)"));
    assert_eq!((rest.bind.len(), rest.rewrites.len()), (2, 4));
}

#[test]
fn reports_problems_by_line() {
    let check = |directives: &str, want: &str| {
        let text = format!(". {{\n{directives}\n}}\n");
        assert_eq!(parse(&text), Err(vec![want.to_string()]), "{text}");
    };
    check("errors\nfile db.example.org", "Corefile:3: unknown plugin \"file\"");
    check("import conf.d/*", "Corefile:2: unknown plugin \"import\"");
    check("kubernetes x {\npods insecure\nnonsense\n}", "Corefile:4: unknown option \"nonsense\" of plugin kubernetes");
    check("kubernetes x {\nzonal\n}", "Corefile:3: unknown option \"zonal\" of plugin kubernetes");
    check("cache\ncache", "Corefile:3: plugin cache can be used once in a server block");
    check(
        "kubernetes x {\npods sometimes\n}",
        "Corefile:3: pods of plugin kubernetes: disabled, insecure or verified is expected",
    );
    check("kubernetes x {\nttl 4000\n}", "Corefile:3: ttl of plugin kubernetes: ttl must be in range [0, 3600]");
    check("kubernetes in-addr.arpa", "Corefile:2: plugin kubernetes: a zone that is no reverse zone is expected");
    check(
        "kubernetes x {\nkubeconfig a\n}",
        "Corefile:3: kubeconfig of plugin kubernetes: set the API server by --kubeconfig",
    );
    check("forward . tls://9.9.9.9", "Corefile:2: plugin forward: tls:// is not supported");
    check("forward .", "Corefile:2: plugin forward: between 1 and 15 upstreams are expected");
    check("forward . x", "Corefile:2: plugin forward: \"x\" is neither an address nor a file");
    check("forward . 1.1.1.1 {\nnext NXDOMAIN\n}", "Corefile:3: unknown option \"next\" of plugin forward");
    check("forward . 1.1.1.1 {\npolicy x\n}", "Corefile:3: policy of plugin forward: unknown policy \"x\"");
    check("health {\nlameduck x\n}", "Corefile:3: lameduck of plugin health: time: invalid duration \"x\"");
    check("errors x", "Corefile:2: plugin errors: no argument is expected");
    check("errors {\nconsolidate 5m x\n}", "Corefile:3: unknown option \"consolidate\" of plugin errors");
    check("rewrite edns0 local set 1 2", "Corefile:2: plugin rewrite: the field edns0 is not supported");
    check("rewrite name regex ( x", "Corefile:2: plugin rewrite: \"(\" is not a regular expression");
    check(
        "rewrite name exact a b answer",
        "Corefile:2: plugin rewrite: auto, or name or value with FROM and TO is expected after answer",
    );
    check("hosts {\nx example.org\n}", "Corefile:3: unknown option \"x\" of plugin hosts");
    check("loadbalance weighted x", "Corefile:2: plugin loadbalance: only round_robin is supported");
    check("cache 0", "Corefile:2: plugin cache: the TTL cannot be 0");
    check(
        "cache {\nprefetch 1 1m 5%\n}",
        "Corefile:3: prefetch of plugin cache: the percentage must be between 10% and 90%",
    );
    check("reload 1s", "Corefile:2: plugin reload: an interval of at least 2s and a jitter are expected");
    check("log {\nclass x\n}", "Corefile:3: class of plugin log: unknown class \"x\"");
    check("autopath /etc/resolv.conf", "Corefile:2: plugin autopath: only @kubernetes is supported");
}

#[test]
fn reports_broken_structure() {
    let check = |text: &str, want: &str| assert_eq!(parse(text), Err(vec![want.to_string()]), "{text}");
    check("", "Corefile:1: there is no server block");
    check("# nothing", "Corefile:1: there is no server block");
    check(". {\nerrors", "Corefile:1: a brace is not closed");
    check(". {\nhealth {\n}", "Corefile:1: a brace is not closed");
    check(".\nerrors", "Corefile:1: a server block needs braces");
    check("}", "Corefile:1: a brace is not expected here");
    check("(snip) {\n}", "Corefile:1: snippets are not supported");
    check("tls://. {\n}", "Corefile:1: invalid zone \"tls://.\": tls:// is not supported");
    check("a..b {\n}", "Corefile:1: invalid zone \"a..b\": invalid name \"a..b\": a label is empty");
    check("a {\n}\nb a {\n}", "Corefile:3: zone a. on port 53 is served by another server block");
    let two = parse(". {\nx\ny\n}");
    assert_eq!(two.map_err(|errors| errors.len()), Err(2), "all problems are reported");
}

#[test]
fn rewrites_names() {
    let check = |rule: &str, text: &str, want: Option<&str>| {
        let corefile = parse(&format!(". {{\nrewrite name {rule}\n}}")).expect("a Corefile");
        let Field::Name { from, to, .. } = &corefile.blocks[0].rewrites[0].field else { panic!("a name rule") };
        assert_eq!(from.replace(text, to).as_deref(), want, "{rule} {text}");
    };
    check("a.org b.org", "a.org.", Some("b.org."));
    check("exact a.org b.org", "x.a.org.", None);
    check("prefix Old- new-", "old-web.org.", Some("new-web.org."));
    check("suffix .schmoogle.com .google.com", "www.schmoogle.com.", Some("www.google.com."));
    check("substring .us. .eu.", "a.us.org.", Some("a.eu.org."));
    check(
        "regex (.*)-(us-west-1)\\.example\\.org\\. {1}.service.{2}.consul.",
        "ftp-us-west-1.example.org.",
        Some("ftp.service.us-west-1.consul."),
    );
    check("regex ^x x", "y.", None);
}

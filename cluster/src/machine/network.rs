//! The network of a cluster on its machine: the ranges of pods and services, and the names of what the node creates on
//! the host. They are chosen at the first start, so that they collide neither with another cluster nor with a route of
//! the machine, and are kept in the data directory.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::{Tree, tree};
use network::cidr::IpNet;
use network::cni::builtin::Names;
use network::netlink::{Error as NetlinkError, Rtnl};

use crate::error::{Error, Result};
use crate::machine::files::write_durable;
use crate::machine::lock::{self, Lock};

const FILE: &str = "network.json";
/// The number of clusters that a machine can run at the same time.
const MAX_CLUSTERS: u32 = 100;

/// The network of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNetwork {
    /// Makes the names on the host unique: 0 for the first cluster of a machine.
    pub index: u32,
    /// The range of the pods of all nodes: one, or one of each family.
    pub pod_cidrs: Vec<IpNet>,
    /// The range of service addresses: one, or one of each family.
    pub service_cidrs: Vec<IpNet>,
}

/// The ranges that flags request; empty ones are chosen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requested {
    pub pod_cidrs: Vec<IpNet>,
    pub service_cidrs: Vec<IpNet>,
}

impl Requested {
    /// Checks the flags: one network of each family, large enough for a node's pods or for the first services, and no
    /// network in both flags.
    fn check(&self) -> Result<()> {
        // The range of a node is a /24 or a /64; the address of the DNS is the tenth.
        let pods = check_flag("--cluster-cidr", &self.pod_cidrs, (24, 64));
        let services = check_flag("--service-cidr", &self.service_cidrs, (28, 124));
        let overlaps = |pods: &&IpNet| self.service_cidrs.iter().any(|services| services.overlaps(pods));
        let both = self.pod_cidrs.iter().find(overlaps);
        let both = both.map(|range| format!("--cluster-cidr: {range} overlaps --service-cidr"));
        let errors: Vec<String> = pods.into_iter().chain(services).chain(both).collect();
        if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
    }
}

/// The error of a flag; `longest` are the longest prefixes of IPv4 and IPv6.
fn check_flag(flag: &str, cidrs: &[IpNet], longest: (u8, u8)) -> Option<String> {
    let longest = |cidr: &IpNet| if cidr.is_ipv4() { longest.0 } else { longest.1 };
    if let Some(cidr) = cidrs.iter().find(|cidr| **cidr != cidr.network()) {
        return Some(format!("{flag}: {cidr} has host bits set: write {}", cidr.network()));
    }
    if let Some(cidr) = cidrs.iter().find(|cidr| cidr.prefix() > longest(cidr)) {
        return Some(format!("{flag}: {cidr} is too small: its prefix may have {} bits at most", longest(cidr)));
    }
    let is_valid = match cidrs {
        [] | [_] => true,
        [one, other] => one.is_ipv4() != other.is_ipv4(),
        _ => false,
    };
    (!is_valid).then(|| format!("{flag}: only one range, or one of each family, is supported"))
}

/// A network that this process uses; no other process of the machine gets it until the claim is dropped.
pub struct Claim {
    pub network: ClusterNetwork,
    /// Routes of the machine that a range of this cluster overlaps.
    pub collisions: Vec<String>,
    lock: Lock,
}

impl Claim {
    /// Ends the claim of this process, but keeps the network reserved for the pods that run on.
    pub fn keep_for_pods(self) {
        self.lock.keep_file();
    }
}

impl ClusterNetwork {
    /// The network of a cluster that is alone on its machine.
    pub fn default_names() -> ClusterNetwork {
        let first = |candidates: fn() -> Candidates| candidates().next().into_iter().collect();
        ClusterNetwork { index: 0, pod_cidrs: first(pod_candidates), service_cidrs: first(service_candidates) }
    }

    /// The names of the bridge and the nftables table of the pods.
    pub fn names(&self) -> Names {
        let usual = Names::default();
        match self.index {
            0 => usual,
            index => Names { bridge: format!("tiphys{index}"), table: format!("{}{index}", usual.table) },
        }
    }

    /// The cgroup that holds the cgroups of all pods, unless a flag names another.
    pub fn cgroup_root(&self) -> String {
        match self.index {
            0 => "/".to_string(),
            index => format!("/tiphys{index}"),
        }
    }

    /// The address at which pods reach an API server that listens on the loopback interface: the last one of the range
    /// of pods. A cluster that listens there has one node, whose own range is another part of it.
    pub fn api_server_address(&self) -> Option<IpAddr> {
        let last = self.pod_cidrs.first()?.last();
        match last {
            // The very last address is the broadcast address.
            IpAddr::V4(v4) => Some(std::net::Ipv4Addr::from_bits(v4.to_bits() - 1).into()),
            IpAddr::V6(_) => Some(last),
        }
    }

    fn ranges(&self) -> impl Iterator<Item = &IpNet> {
        self.pod_cidrs.iter().chain(&self.service_cidrs)
    }

    fn to_json(&self) -> String {
        let texts = |cidrs: &[IpNet]| cidrs.iter().map(|cidr| Tree::from(cidr.to_string())).collect::<Vec<Tree>>();
        let object = tree! {
            "index" => i64::from(self.index),
            "podCIDRs" => texts(&self.pod_cidrs),
            "serviceCIDRs" => texts(&self.service_cidrs),
        };
        String::from_utf8_lossy(&api::json::encode(&object, None)).into_owned()
    }

    fn parse(text: &str) -> Option<ClusterNetwork> {
        let object: Tree = api::json::decode(text.as_bytes()).ok()?;
        let cidrs =
            |field: &str| object.list(field).iter().map(|cidr| cidr.as_str()?.parse().ok()).collect::<Option<_>>();
        Some(ClusterNetwork {
            index: object.int("index").and_then(|index| u32::try_from(index).ok()).filter(|i| *i < MAX_CLUSTERS)?,
            pod_cidrs: cidrs("podCIDRs")?,
            service_cidrs: cidrs("serviceCIDRs")?,
        })
    }

    /// The network that a data directory keeps.
    fn read(data_dir: &Path) -> Result<Option<ClusterNetwork>> {
        let path = data_dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => match ClusterNetwork::parse(&text) {
                Some(network) => Ok(Some(network)),
                None => Err(Error::Flags(vec![format!("{}: is not the network of a cluster", path.display())])),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(&path)(error)),
        }
    }

    fn write(&self, data_dir: &Path) -> Result<()> {
        write_durable(&data_dir.join(FILE), &self.to_json())
    }
}

/// The network of a cluster without pods on this machine. It collides with nothing.
pub(crate) fn open(data_dir: &Path, requested: &Requested) -> Result<ClusterNetwork> {
    requested.check()?;
    let network = match ClusterNetwork::read(data_dir)? {
        Some(kept) => check_kept(kept, requested)?,
        None => with_requested(ClusterNetwork::default_names(), requested),
    };
    network.write(data_dir)?;
    Ok(network)
}

/// The network of a cluster with pods on this machine, for this process alone. `states` is the machine's directory for
/// state that does not survive a reboot.
pub(crate) fn claim(data_dir: &Path, states: &Path, requested: &Requested) -> Result<Claim> {
    requested.check()?;
    fs::create_dir_all(states).map_err(Error::file(states))?;
    let _guard = lock::lock_waiting(&claim_path(states, None)?)?;
    let others = other_claims(data_dir, states)?;
    let routes = routes().unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to list the machine's routes; collisions with them are not noticed");
        Vec::new()
    });
    let network = match ClusterNetwork::read(data_dir)? {
        Some(kept) => check_claims(check_kept(kept, requested)?, &others)?,
        // A cluster of an earlier version.
        None if data_dir.join("store").exists() => check_claims(ClusterNetwork::default_names(), &others)?,
        None => choose(requested, &others, &routes)?,
    };
    network.write(data_dir)?;
    let collisions = collisions(&network, &routes);
    let lock = lock::lock_claim(&claim_path(states, Some(network.index))?, data_dir, &network.to_json())?;
    Ok(Claim { network, collisions, lock })
}

/// Names on the host for a machine that joins a cluster, which has the ranges.
pub(crate) fn claim_names(data_dir: &Path, states: &Path) -> Result<Claim> {
    fs::create_dir_all(states).map_err(Error::file(states))?;
    let _guard = lock::lock_waiting(&claim_path(states, None)?)?;
    let others = other_claims(data_dir, states)?;
    let kept = ClusterNetwork::read(data_dir)?.map_or(0, |kept| kept.index);
    let index = free_index(kept, &others)?;
    let network = ClusterNetwork { index, pod_cidrs: Vec::new(), service_cidrs: Vec::new() };
    network.write(data_dir)?;
    let lock = lock::lock_claim(&claim_path(states, Some(index))?, data_dir, &network.to_json())?;
    Ok(Claim { network, collisions: Vec::new(), lock })
}

/// Whether another cluster of this machine has a network by now.
pub(crate) fn is_claimed_by_other(data_dir: &Path, states: &Path, names: &Names) -> bool {
    let others = other_claims(data_dir, states).unwrap_or_default();
    others.iter().any(|other| other.network.names().bridge == names.bridge)
}

/// Ends the claim that a killed process of this data directory has left, after its pods were removed.
pub(crate) fn release(data_dir: &Path, states: &Path) {
    let claims = (0..MAX_CLUSTERS).filter_map(|index| claim_path(states, Some(index)).ok());
    for path in claims {
        let is_own = |claim: &lock::ClaimFile| !claim.is_locked && Path::new(&claim.data_dir) == data_dir;
        if lock::read_claim(&path).is_some_and(|claim| is_own(&claim)) {
            let _ = fs::remove_file(&path);
        }
    }
    let _ = fs::remove_dir(states);
}

/// The claim of another cluster.
#[derive(Debug, Clone)]
struct OtherClaim {
    pid: String,
    data_dir: String,
    network: ClusterNetwork,
}

/// The file of a claim, or of the guard of all claims, for this network namespace.
fn claim_path(states: &Path, index: Option<u32>) -> Result<PathBuf> {
    let namespace = fs::metadata("/proc/self/ns/net").map_err(Error::file("/proc/self/ns/net"))?.ino();
    Ok(states.join(match index {
        Some(index) => format!("pod-network-{namespace}-{index}.lock"),
        None => format!("pod-network-{namespace}.lock"),
    }))
}

/// Claims of processes that run, and of processes that have left pods.
fn other_claims(data_dir: &Path, states: &Path) -> Result<Vec<OtherClaim>> {
    let mut others = Vec::new();
    for index in 0..MAX_CLUSTERS {
        let path = claim_path(states, Some(index))?;
        let Some(holder) = lock::read_claim(&path) else { continue };
        let Some(network) = ClusterNetwork::parse(&holder.text) else { continue };
        let is_own = Path::new(&holder.data_dir) == data_dir;
        if !is_own && (holder.is_locked || has_pods(&network)) {
            others.push(OtherClaim { pid: holder.pid, data_dir: holder.data_dir, network });
        }
    }
    Ok(others)
}

fn has_pods(network: &ClusterNetwork) -> bool {
    let bridge = Rtnl::open().and_then(|mut rtnl| rtnl.has_link(&network.names().bridge));
    bridge.unwrap_or(true)
}

/// The destinations of the machine's routes, without the default route.
pub(crate) fn routes() -> std::result::Result<Vec<(IpNet, String)>, NetlinkError> {
    let mut rtnl = Rtnl::open()?;
    let mut routes = Vec::new();
    for link in rtnl.links()? {
        let of_link = rtnl.routes(link.index)?.into_iter().filter(|route| route.to.prefix() > 0);
        routes.extend(of_link.map(|route| (route.to, link.name.clone())));
    }
    Ok(routes)
}

/// The routes that a range of the cluster overlaps, without those of its own devices.
fn collisions(network: &ClusterNetwork, routes: &[(IpNet, String)]) -> Vec<String> {
    let bridge = network.names().bridge;
    let foreign = || routes.iter().filter(|(_, device)| *device != bridge && device != "lo");
    let describe = |range: &IpNet, (to, device): &(IpNet, String)| {
        format!("{range} overlaps the route of this machine to {to} through {device}")
    };
    let overlapping =
        |range: IpNet| foreign().filter(move |(to, _)| to.overlaps(&range)).map(move |route| describe(&range, route));
    network.ranges().flat_map(|range| overlapping(*range).collect::<Vec<_>>()).collect()
}

fn with_requested(network: ClusterNetwork, requested: &Requested) -> ClusterNetwork {
    let or = |requested: &Vec<IpNet>, usual: Vec<IpNet>| if requested.is_empty() { usual } else { requested.clone() };
    ClusterNetwork {
        pod_cidrs: or(&requested.pod_cidrs, network.pod_cidrs),
        service_cidrs: or(&requested.service_cidrs, network.service_cidrs),
        ..network
    }
}

/// The ranges of a cluster stay: its services and nodes have addresses from them.
fn check_kept(kept: ClusterNetwork, requested: &Requested) -> Result<ClusterNetwork> {
    // A machine that had joined another cluster has no ranges.
    let kept = match kept.pod_cidrs.is_empty() {
        true => ClusterNetwork { index: kept.index, ..with_requested(ClusterNetwork::default_names(), requested) },
        false => kept,
    };
    for (flag, requested, kept) in [
        ("--cluster-cidr", &requested.pod_cidrs, &kept.pod_cidrs),
        ("--service-cidr", &requested.service_cidrs, &kept.service_cidrs),
    ] {
        if !requested.is_empty() && requested != kept {
            let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
            let why = format!("{flag}: the cluster of this data directory has {}, which cannot change", kept.join(","));
            return Err(Error::Flags(vec![why]));
        }
    }
    Ok(kept)
}

/// The kept network, if no other cluster uses its ranges. Its names may change, since it has no pods.
fn check_claims(kept: ClusterNetwork, others: &[OtherClaim]) -> Result<ClusterNetwork> {
    refuse_taken(&kept, others)?;
    Ok(ClusterNetwork { index: free_index(kept.index, others)?, ..kept })
}

fn refuse_taken(network: &ClusterNetwork, others: &[OtherClaim]) -> Result<()> {
    for other in others {
        let taken = |range: &&IpNet| other.network.ranges().any(|taken| taken.overlaps(range));
        if let Some(range) = network.ranges().find(taken) {
            let (pid, data_dir) = (other.pid.clone(), other.data_dir.clone());
            return Err(Error::RangeInUse { range: range.to_string(), pid, data_dir });
        }
    }
    Ok(())
}

fn free_index(preferred: u32, others: &[OtherClaim]) -> Result<u32> {
    let is_free = |index: &u32| others.iter().all(|other| other.network.index != *index);
    let free = std::iter::once(preferred).chain(0..MAX_CLUSTERS).find(is_free);
    free.ok_or_else(|| Error::Node(format!("{MAX_CLUSTERS} clusters run on this machine already")))
}

type Candidates = Box<dyn Iterator<Item = IpNet>>;

fn pod_candidates() -> Candidates {
    candidates(&[(10, 42..=94), (10, 160..=239), (172, 16..=31)])
}

fn service_candidates() -> Candidates {
    candidates(&[(10, 96..=159), (172, 16..=31)])
}

fn candidates(parts: &[(u8, std::ops::RangeInclusive<u8>)]) -> Candidates {
    let parts = parts.to_vec();
    let networks = parts.into_iter().flat_map(|(first, seconds)| seconds.map(move |second| (first, second)));
    Box::new(networks.filter_map(|(first, second)| IpNet::new(IpAddr::from([first, second, 0, 0]), 16)))
}

/// The first ranges that neither another cluster nor a route of the machine has. Requested ranges may overlap routes:
/// the user chose them.
fn choose(requested: &Requested, others: &[OtherClaim], routes: &[(IpNet, String)]) -> Result<ClusterNetwork> {
    let mut taken: Vec<IpNet> = others.iter().flat_map(|other| other.network.ranges().copied()).collect();
    taken.extend(routes.iter().map(|(to, _)| *to));
    taken.extend(requested.pod_cidrs.iter().chain(&requested.service_cidrs).copied());
    let mut first_free = |candidates: Candidates| {
        let mut candidates = candidates;
        let range = candidates.find(|range| taken.iter().all(|other| !other.overlaps(range)));
        taken.extend(range);
        range.into_iter().collect::<Vec<_>>()
    };
    let chosen = ClusterNetwork {
        index: free_index(0, others)?,
        pod_cidrs: first_free(pod_candidates()),
        service_cidrs: first_free(service_candidates()),
    };
    let network = with_requested(chosen, requested);
    if network.pod_cidrs.is_empty() || network.service_cidrs.is_empty() {
        let why = "every range overlaps a route of this machine: choose ranges by --cluster-cidr and --service-cidr";
        return Err(Error::Node(why.to_string()));
    }
    refuse_taken(&network, others)?;
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidrs(text: &str) -> Vec<IpNet> {
        text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().expect("a CIDR")).collect()
    }

    fn other(index: u32, pods: &str, services: &str) -> OtherClaim {
        let network = ClusterNetwork { index, pod_cidrs: cidrs(pods), service_cidrs: cidrs(services) };
        OtherClaim { pid: "7".to_string(), data_dir: "/other".to_string(), network }
    }

    fn show(network: Result<ClusterNetwork>) -> String {
        let texts = |cidrs: &[IpNet]| cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match network {
            Ok(network) => {
                format!("{} {} {}", network.index, texts(&network.pod_cidrs), texts(&network.service_cidrs))
            }
            Err(error) => error.describe(),
        }
    }

    #[test]
    fn chooses_free_ranges() {
        let check = |requested: [&str; 2], others: &[OtherClaim], routes: &[&str], expected: &str| {
            let requested = Requested { pod_cidrs: cidrs(requested[0]), service_cidrs: cidrs(requested[1]) };
            let routes: Vec<_> = routes.iter().map(|to| (to.parse().expect("a CIDR"), "eth0".to_string())).collect();
            let shown = show(choose(&requested, others, &routes));
            assert!(shown.starts_with(expected), "{shown} is not {expected}");
        };
        check(["", ""], &[], &[], "0 10.42.0.0/16 10.96.0.0/16");
        let first = other(0, "10.42.0.0/16", "10.96.0.0/16");
        check(["", ""], std::slice::from_ref(&first), &[], "1 10.43.0.0/16 10.97.0.0/16");
        let second = other(1, "10.43.0.0/16", "10.97.0.0/16");
        check(["", ""], &[first.clone(), second], &[], "2 10.44.0.0/16 10.98.0.0/16");
        check(["", ""], &[other(1, "", "")], &[], "0 10.42.0.0/16 10.96.0.0/16");
        check(["", ""], &[], &["10.42.3.0/24", "10.96.0.0/12"], "0 10.43.0.0/16 10.112.0.0/16");
        check(["", ""], &[], &["10.0.0.0/8"], "0 172.16.0.0/16 172.17.0.0/16");
        check(["", ""], &[], &["10.0.0.0/8", "172.16.0.0/12"], "this machine cannot be a node: every range overlaps");
        check(["10.1.0.0/16", "10.2.0.0/16"], &[], &["10.0.0.0/8"], "0 10.1.0.0/16 10.2.0.0/16");
        check(["10.42.0.0/16,fd00::/56", ""], &[], &[], "0 10.42.0.0/16,fd00::/56 10.96.0.0/16");
        check(["10.96.0.0/16", ""], &[], &[], "0 10.96.0.0/16 10.97.0.0/16");
        check(["10.42.0.0/20", ""], &[first], &[], "the range 10.42.0.0/20");
    }

    #[test]
    fn rejects_invalid_ranges() {
        let check = |pods: &str, services: &str, expected: &str| {
            let requested = Requested { pod_cidrs: cidrs(pods), service_cidrs: cidrs(services) };
            let shown = requested.check().map_or_else(|error| error.describe(), |()| String::new());
            assert_eq!(shown, expected, "{pods} {services}");
        };
        check("", "", "");
        check("10.1.0.0/16,fd00:1::/56", "10.2.0.0/16,fd00:2::/112", "");
        check("10.1.0.0/16", "10.1.4.0/24", "--cluster-cidr: 10.1.0.0/16 overlaps --service-cidr");
        check("10.1.2.3/16", "", "--cluster-cidr: 10.1.2.3/16 has host bits set: write 10.1.0.0/16");
        check("", "10.9.0.0/31", "--service-cidr: 10.9.0.0/31 is too small: its prefix may have 28 bits at most");
        check("10.1.0.0/16,10.2.0.0/16", "", "--cluster-cidr: only one range, or one of each family, is supported");
    }

    #[test]
    fn keeps_ranges() {
        let kept = || ClusterNetwork { index: 1, ..ClusterNetwork::default_names() };
        let requested = |pods: &str| Requested { pod_cidrs: cidrs(pods), service_cidrs: Vec::new() };
        assert_eq!(show(check_kept(kept(), &requested(""))), "1 10.42.0.0/16 10.96.0.0/16");
        assert_eq!(show(check_kept(kept(), &requested("10.42.0.0/16"))), "1 10.42.0.0/16 10.96.0.0/16");
        let refused = show(check_kept(kept(), &requested("10.43.0.0/16")));
        assert!(refused.contains("--cluster-cidr") && refused.contains("10.42.0.0/16"), "{refused}");
        let joined = ClusterNetwork { index: 2, pod_cidrs: Vec::new(), service_cidrs: Vec::new() };
        assert_eq!(show(check_kept(joined, &requested(""))), "2 10.42.0.0/16 10.96.0.0/16");
        let same_ranges = other(0, "10.42.0.0/16", "10.97.0.0/16");
        let refused = show(check_claims(kept(), &[same_ranges]));
        assert!(refused.contains("/other") && refused.contains("pid 7"), "{refused}");
        let same_index = other(1, "10.43.0.0/16", "10.97.0.0/16");
        assert_eq!(show(check_claims(kept(), &[same_index])), "0 10.42.0.0/16 10.96.0.0/16");
    }

    #[test]
    fn claims_are_exclusive() {
        let dir = tempfile::tempdir().expect("a directory");
        let states = dir.path().join("run");
        let open = |name: &str| {
            let data_dir = dir.path().join(name);
            fs::create_dir_all(&data_dir).expect("a directory");
            claim(&data_dir, &states, &Requested::default()).expect("a claim")
        };
        let (first, second) = (open("a"), open("b"));
        assert_ne!(first.network.index, second.network.index);
        assert!(first.network.ranges().all(|one| second.network.ranges().all(|other| !one.overlaps(other))));
        let kept = second.network.clone();
        drop((first, second));
        assert!(!states.exists(), "nothing is left");
        assert_eq!(open("b").network, kept, "the data directory keeps it");
    }

    #[test]
    fn names_are_unique() {
        let network = |index| ClusterNetwork { index, ..ClusterNetwork::default_names() };
        assert_eq!(network(0).names(), Names::default());
        let names = network(3).names();
        assert_eq!((names.bridge.as_str(), names.table.as_str()), ("tiphys3", "tiphys-cni3"));
        assert_eq!((network(0).cgroup_root(), network(3).cgroup_root()), ("/".to_string(), "/tiphys3".to_string()));
        assert_eq!(network(0).api_server_address(), Some(IpAddr::from([10, 42, 255, 254])));
    }
}

//! `tiphys agent`: joins a machine to a cluster with only a token and the hash of the cluster CA's public key. The CA
//! certificate is read from the API server without verification and trusted only if its key has that hash, like kubeadm
//! does; then the machine gets its own certificate with the token, for later starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::proxy::config::{Configuration, Mode};
use api::{Tree, base64, list, tree};
use client::https::Https;
use client::{Client, Resource};
use kubelet::config::Settings;
use network::cni::builtin::Names;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use server::outbound::callout::Url;
use stdx::backoff::Backoff;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::container_runtime::{BuiltinRuntime, RuntimeChoice};
use super::flags::{self, Flags};
use super::options::{self, Options};
use super::pod_network::PodNetwork;
use super::preflight;
use super::servers::list::ServerAddress;
use super::servers::{self, NodeServers};
use super::services::{self, Component, Dns};
use crate::error::{Error, Result};
use crate::logs::{Format, Level};
use crate::machine::files::write_private;
use crate::machine::identity;
use crate::machine::lock::{Lock, lock_data_dir};
use crate::machine::preflight::{self as machine, Role};

const MAPS: Resource = Resource::core("configmaps");
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(7);
/// How long a signature is waited for while there is none at all: the controllers of a new cluster may not run yet.
const LONGEST_UNSIGNED: Duration = Duration::from_secs(60);
/// The same where other tokens have signatures: the controllers run, and sign a new token within a second.
const LONGEST_UNSIGNED_AMONG_OTHERS: Duration = Duration::from_secs(5);

/// What is done with a node besides running it.
#[derive(clap::Subcommand)]
pub enum AgentCommand {
    /// Removes the node's pods and everything that they left on this machine, and its data
    Reset {
        /// Do not ask for confirmation
        #[arg(long)]
        force: bool,
    },
}

/// The arguments of `tiphys agent`.
#[derive(clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// The API server: https://HOST:PORT
    #[arg(long, value_name = "URL", required = true)]
    server: Option<String>,
    /// The token to join with; not needed again once the machine has joined
    #[arg(long, default_value = "")]
    token: String,
    /// A file with the token, which other users of the machine cannot read as they can read arguments
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The hash of the cluster CA's public key: `sha256:` and hexadecimal digits
    #[arg(long, value_name = "HASH", default_value = "")]
    discovery_token_ca_cert_hash: String,
    /// Directory of the node's data
    #[arg(long, default_value = "/var/lib/tiphys/agent", global = true)]
    pub data_dir: PathBuf,
    /// The node's name [default: the machine's name]
    #[arg(long, default_value = "")]
    node_name: String,
    /// The node's IP address, or one per IP family [default: that of the default route]
    #[arg(long, default_value = "")]
    node_ip: String,
    /// Labels to register with: `a=b,c=d`
    #[arg(long, default_value = "")]
    node_labels: String,
    /// Taints to register with: `key=value:NoSchedule`
    #[arg(long, default_value = "")]
    register_with_taints: String,
    /// The socket of a CRI runtime such as containerd, instead of the built-in runtime
    #[arg(long, value_name = "SOCKET", default_value = "")]
    container_runtime_endpoint: String,
    /// Stop a deleted pod only after the service proxies that confirm have removed it from their endpoints, or after
    /// half of its grace period
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    drain_by_proxies: bool,
    /// Stop the pods when this command stops; otherwise they keep running, and the next start takes them over
    #[arg(long)]
    pub stop_pods: bool,
    /// Do not run a part of the node; can be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    disable: Vec<Component>,
    /// How Services are forwarded: nftables, iptables or userspace [default: the first that the kernel supports]
    #[arg(long, value_name = "MODE", value_parser = services::parse_proxy_mode)]
    proxy_mode: Option<Mode>,
    /// A KubeletConfiguration for this machine's node
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// A file with settings: the names of flags, and their values; `tiphys config explain agent` lists them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The format of the log on standard error
    #[arg(long, value_enum, default_value_t)]
    pub log_format: Format,
    /// The level of the log
    #[arg(long, value_enum, default_value_t = Level::Info)]
    pub log_level: Level,
}

/// Locks the node's data directory.
pub fn lock(arguments: &Arguments) -> Result<Lock> {
    let data_dir = machine::open_data_dir(&arguments.data_dir, Role::Agent)?;
    let lock = lock_data_dir(&data_dir)?;
    machine::log_warnings(&data_dir);
    machine::check_kernel()?;
    Ok(lock)
}

/// A machine that has joined: the flags and options of its kubelet, and the servers of the cluster.
pub struct JoinedNode {
    pub(crate) flags: Flags,
    pub(crate) options: Options,
    pub(crate) servers: NodeServers,
}

/// The files of a node that joins, in its data directory.
struct NodeFiles {
    dir: PathBuf,
    kubeconfig: PathBuf,
    bootstrap: PathBuf,
    ca: PathBuf,
}

impl NodeFiles {
    fn of(dir: &Path) -> NodeFiles {
        NodeFiles {
            dir: dir.to_path_buf(),
            kubeconfig: dir.join("kubelet.conf"),
            bootstrap: dir.join("bootstrap-kubelet.conf"),
            ca: dir.join("pki/ca.crt"),
        }
    }

    /// Whether the directory belongs to a node of the cluster whose CA has this hash; any cluster's if it is empty.
    fn has_joined(&self, hash: &str) -> bool {
        let known = std::fs::read_to_string(&self.ca).ok().and_then(|pem| fingerprints(&pem)).unwrap_or_default();
        let is_same = hash.is_empty() || known.iter().any(|known| known.eq_ignore_ascii_case(hash));
        self.kubeconfig.exists() && is_same
    }

    /// Writes the CA and the token of a cluster. A certificate of another cluster is not used any more.
    fn write_bootstrap(&self, server: &str, ca: &str, token: &str) -> Result<()> {
        let pki = self.dir.join("pki");
        std::fs::create_dir_all(&pki).map_err(Error::file(&self.dir))?;
        let is_other = std::fs::read_to_string(&self.ca).is_ok_and(|known| known != ca);
        for old in [self.kubeconfig.clone(), self.dir.join("kubelet/pki")].iter().filter(|_| is_other) {
            tracing::warn!(path = %old.display(), "removing credentials of another cluster");
            let removed = if old.is_dir() { std::fs::remove_dir_all(old) } else { std::fs::remove_file(old) };
            if let Err(error) = removed
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(Error::file(old)(error));
            }
        }
        write_private(&self.ca, ca)?;
        let text = api::yaml::encode(&bootstrap_config(server, ca, token));
        write_private(&self.bootstrap, &String::from_utf8_lossy(&text))
    }
}

/// The flags of a kubelet that has joined.
pub async fn join(arguments: &Arguments) -> Result<JoinedNode> {
    let dir = identity::open_data_dir(&arguments.data_dir)?;
    let files = NodeFiles::of(&dir);
    let token = match &arguments.token_file {
        Some(file) => std::fs::read_to_string(file).map_err(Error::file(file))?.trim().to_string(),
        None => arguments.token.clone(),
    };
    let (hash, url) = (&arguments.discovery_token_ca_cert_hash, arguments.server.as_deref().unwrap_or_default());
    // A node that has joined needs neither the token nor the server of its first start.
    if !token.is_empty() && !files.has_joined(hash) {
        let pem = discover(url, &token, hash).await?;
        files.write_bootstrap(url, &pem, &token)?;
    } else if !files.kubeconfig.exists() {
        return Err(Error::Flags(vec!["--token: this machine has not joined yet; a token is required".to_string()]));
    }
    let mut flags = flags(arguments, &dir)?;
    let NodeFiles { kubeconfig, bootstrap, ca, .. } = files;
    let mut settings = super::settings::read(&flags)?;
    let known = vec![kubeconfig.clone(), bootstrap.clone()];
    let servers = NodeServers::start(&dir, url, &settings.config.node_name, known).await?;
    let server = ServerAddress::of_url(url)?;
    preflight::check(&server, &servers, &settings.config.node_name, bootstrap.exists().then_some(&*bootstrap)).await?;
    for file in [&kubeconfig, &bootstrap].into_iter().filter(|file| file.exists()) {
        servers::use_listener(file, &servers.url)?;
    }
    flags.kubeconfig = Some(kubeconfig);
    flags.bootstrap_kubeconfig = bootstrap.exists().then_some(bootstrap);
    settings.config.serving.client_ca_file = Some(ca).filter(|file| file.exists());
    settings.config.certificates.rotate = true;
    // The API server of `up` verifies and signs serving certificates of kubelets; others get a self-signed one.
    settings.config.certificates.server_bootstrap |= settings.config.certificates.tls_cert_file.is_none();
    let runtime = match settings.config.runtime_endpoint.clone() {
        Some(socket) => RuntimeChoice::Socket(socket),
        None => {
            let cgroup_root = settings.config.cgroup_root.clone();
            RuntimeChoice::Builtin(BuiltinRuntime {
                data_dir: dir,
                cgroup_root,
                names: Names::default(),
                cluster: Default::default(),
            })
        }
    };
    let is_on = |component: Component| !arguments.disable.contains(&component);
    let services = services::Options {
        dns: if is_on(Component::Dns) { Dns::OfCluster } else { Dns::Disabled },
        proxy: is_on(Component::KubeProxy)
            .then(|| Configuration { mode: arguments.proxy_mode, ..Configuration::default() }),
        // Named by the claimed network.
        policy_table: is_on(Component::NetworkPolicy).then(String::new),
        pod_network: if is_on(Component::Network) { PodNetwork::OfCluster } else { PodNetwork::Disabled },
    };
    let Settings { config, shown } = settings;
    let options = Options {
        config,
        shown: Some(shown),
        configuration: Default::default(),
        runtime,
        is_shared: false,
        claim: None,
        services,
    };
    Ok(JoinedNode { flags, options, servers })
}

/// Rewords an error for users of `tiphys agent`, who have no bootstrap kubeconfig.
pub(crate) fn explained(error: Error) -> Error {
    match error {
        Error::BootstrapRejected(why) => Error::Flags(vec![format!(
            "--token: the API server rejected it ({why}): it may have expired or been deleted; `tiphys token create \
             --print-join-command` on a machine of the cluster creates another"
        )]),
        other => other,
    }
}

/// The kubelet's flags, with defaults for a machine that no administrator has prepared.
fn flags(arguments: &Arguments, dir: &Path) -> Result<Flags> {
    let root = format!("--root-dir={}", dir.join("kubelet").display());
    let drains = format!("--drain-by-proxies={}", arguments.drain_by_proxies);
    let mut words = vec![root, "--fail-swap-on=false".to_string(), drains];
    if arguments.kubelet_config.is_none() {
        words.extend(options::SHARED_MACHINE.map(str::to_string));
    }
    let given = [
        ("hostname-override", &arguments.node_name),
        ("node-ip", &arguments.node_ip),
        ("node-labels", &arguments.node_labels),
        ("register-with-taints", &arguments.register_with_taints),
        ("container-runtime-endpoint", &arguments.container_runtime_endpoint),
    ];
    words.extend(given.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("--{name}={value}")));
    words.extend(arguments.kubelet_config.iter().map(|file| format!("--config={}", file.display())));
    flags::parse(&words)
}

/// The bootstrap kubeconfig of a machine that joins with a token.
pub fn bootstrap_config(server: &str, ca: &str, token: &str) -> Tree {
    let cluster = tree! { "server" => server, "certificate-authority-data" => base64::encode(ca.as_bytes()) };
    let context = tree! { "cluster" => "tiphys", "user" => "tls-bootstrap-token-user" };
    tree! {
        "apiVersion" => "v1",
        "kind" => "Config",
        "current-context" => "bootstrap",
        "clusters" => list![tree! { "name" => "tiphys", "cluster" => cluster }],
        "contexts" => list![tree! { "name" => "bootstrap", "context" => context }],
        "users" => list![tree! { "name" => "tls-bootstrap-token-user", "user" => tree! { "token" => token } }],
    }
}

/// The cluster's CA certificates with the expected key, in PEM. Waits until the API server is reachable, and until the
/// controllers have signed cluster-info with a new token.
pub async fn discover(server: &str, token: &str, wanted: &str) -> Result<String> {
    if !wanted.starts_with("sha256:") {
        let why = "a hash such as sha256:… is required to verify the cluster; `tiphys token create \
                   --print-join-command` prints it";
        return Err(Error::Flags(vec![format!("--discovery-token-ca-cert-hash: {why}")]));
    }
    super::token::checked(token).map_err(|error| {
        let hint = "`tiphys token create --print-join-command` prints one";
        Error::Flags(vec![format!("--token: {}; {hint}", error.describe())])
    })?;
    let client = unverified_client(server)?;
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut unsigned_since = None;
    loop {
        match client.get(MAPS, "kube-public", "cluster-info").await {
            Ok(info) => match trusted(&info, token, wanted)? {
                Some(pem) => return Ok(pem),
                None if unsigned_since.get_or_insert_with(Instant::now).elapsed() > longest_unsigned(&info) => {
                    return Err(Error::Response(unsigned(token)));
                }
                None => tracing::warn!(server, "{}; retrying", unsigned(token)),
            },
            Err(error) if error.code().is_some() => {
                return Err(Error::Response(format!("{server}: {error}")));
            }
            Err(error) => tracing::warn!(
                %error,
                server,
                "API server unreachable, retrying: check the address of --server, the network and the firewall"
            ),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// How long the signature for a token may be missing in cluster-info.
fn longest_unsigned(info: &Tree) -> Duration {
    if controllers::has_cluster_info_signature(info) { LONGEST_UNSIGNED_AMONG_OTHERS } else { LONGEST_UNSIGNED }
}

fn unsigned(token: &str) -> String {
    let id = token.split_once('.').map_or(token, |(id, _)| id);
    format!(
        "kube-public/cluster-info is not signed for the token id {id:?}: the token is unknown or has expired; `tiphys token \
         create --print-join-command` on a machine of the cluster creates another"
    )
}

/// A client that does not verify the server, for public data that is verified afterwards.
fn unverified_client(server: &str) -> Result<Client> {
    let wrong = |why: &dyn std::fmt::Display| Error::Flags(vec![format!("--server: {server:?}: {why}")]);
    let url = Url::parse(server).map_err(|why| wrong(&why))?;
    if !url.tls || !matches!(url.path.as_str(), "" | "/") {
        return Err(wrong(&"it must be https://HOST:PORT"));
    }
    let tls = Arc::new(http_client::tls::config(&http_client::Trust::InsecureSkipVerify, None, &[])?);
    let https = Https::new(&url.host, url.port, None, tls).map_err(|why| wrong(&why))?;
    Ok(Client::new(Arc::new(https), super::NAME))
}

/// The CA certificates of cluster-info that have the expected key, in PEM. cluster-info must be signed with the token;
/// None if there is no signature yet.
fn trusted(info: &Tree, token: &str, wanted: &str) -> Result<Option<String>> {
    let wrong = |why: &str| Error::Response(format!("kube-public/cluster-info: {why}"));
    let (id, secret) = token.split_once('.').unwrap_or((token, ""));
    match controllers::is_signed_cluster_info(info, id, secret) {
        None => return Ok(None),
        Some(false) => return Err(wrong("invalid signature for this token: the connection may be intercepted")),
        Some(true) => {}
    }
    let config = api::yaml::decode(info.map("data").str("kubeconfig").as_bytes())
        .map_err(|_| wrong("it is not a kubeconfig"))?;
    let data = config.list("clusters").first().map_or("", |cluster| cluster.str("cluster.certificate-authority-data"));
    let pem = base64::decode(data).map_err(|_| wrong("it contains no CA certificate"))?;
    let found = keyed(&String::from_utf8_lossy(&pem)).ok_or_else(|| wrong("its CA certificate is invalid"))?;
    let pinned: String =
        found.iter().filter(|(hash, _)| hash.eq_ignore_ascii_case(wanted)).map(|(_, der)| pem_of(der)).collect();
    if !pinned.is_empty() {
        return Ok(Some(pinned));
    }
    let hashes: Vec<&str> = found.iter().map(|(hash, _)| hash.as_str()).collect();
    Err(Error::Response(format!(
        "this is another cluster, or the connection is intercepted: its CA has {}, not {wanted}",
        hashes.join(", ")
    )))
}

/// Each certificate of a bundle with the hash of its key; None if one cannot be read, or if the bundle is empty.
fn keyed(pem: &str) -> Option<Vec<(String, CertificateDer<'static>)>> {
    let with_hash = |certificate: CertificateDer<'static>| {
        let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
        let hash = http_client::tls::fingerprint(&CertificateDer::from(parsed.public_key().raw));
        Some((hash, certificate))
    };
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|one| one.ok().and_then(with_hash));
    all.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let text = base64::encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

/// The hashes of the public keys of CA certificates, as kubeadm computes them.
pub fn fingerprints(pem: &str) -> Option<Vec<String>> {
    Some(keyed(pem)?.into_iter().map(|(hash, _)| hash).collect())
}

/// The command that joins a machine to the cluster of a kubeconfig. `public` is the cluster-info ConfigMap.
pub fn command(kubeconfig: &Path, public: &Tree, token: &str) -> Result<String> {
    let bytes = std::fs::read(kubeconfig).map_err(Error::file(kubeconfig))?;
    let wrong = |why: &str| Error::Flags(vec![format!("--kubeconfig: {}: {why}", kubeconfig.display())]);
    let config = api::yaml::decode(&bytes).map_err(|error| wrong(&error.to_string()))?;
    let context = config.list("contexts").iter().find(|one| one.str("name") == config.str("current-context"));
    let name = context.map_or("", |context| context.str("context.cluster"));
    let cluster = config.list("clusters").iter().find(|one| one.str("name") == name).map(|one| one.at("cluster"));
    let cluster = cluster.ok_or_else(|| wrong("the current context names no cluster"))?;
    let pem = match cluster.str("certificate-authority") {
        "" => base64::decode(cluster.str("certificate-authority-data"))
            .map_err(|_| wrong("it contains no CA certificate"))?,
        file => std::fs::read(kubeconfig.parent().unwrap_or(Path::new("")).join(file)).map_err(Error::file(file))?,
    };
    let found = fingerprints(&String::from_utf8_lossy(&pem)).ok_or_else(|| wrong("it contains no CA certificate"))?;
    let hash = found.first().map_or("", String::as_str);
    let server = reachable_server(cluster.str("server"), public)?;
    Ok(format!("tiphys agent --server {server} --token {token} --discovery-token-ca-cert-hash {hash}\n"))
}

/// The URL at which other machines reach the API server: that of the kubeconfig, or the published one.
fn reachable_server(server: &str, public: &Tree) -> Result<String> {
    let config = api::yaml::decode(public.map("data").str("kubeconfig").as_bytes()).unwrap_or_default();
    let published = config.list("clusters").first().map_or("", |cluster| cluster.str("cluster.server"));
    let found = [server, published].into_iter().find(|url| !url.is_empty() && !is_loopback(url));
    found.map(str::to_string).ok_or_else(|| {
        let why = "the API server listens on the loopback interface only, where other machines cannot reach it: start \
                   `tiphys up` with --bind-address 0.0.0.0, or with an address of this machine";
        Error::Flags(vec![why.to_string()])
    })
}

/// Whether a URL leads to the machine itself.
pub fn is_loopback(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let host = url.host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;

    fn info(pem: &str) -> Tree {
        let config = bootstrap_config("https://a:1", pem, "");
        let text = String::from_utf8(api::yaml::encode(&config)).expect("text");
        tree! { "data" => tree! { "kubeconfig" => text } }
    }

    fn arguments(words: &[&str]) -> Arguments {
        use clap::{Args, FromArgMatches};
        let command = Arguments::augment_args(clap::Command::new("agent"));
        let words = ["agent", "--server", "https://a:1"].iter().chain(words);
        let matches = command.try_get_matches_from(words).expect("arguments");
        Arguments::from_arg_matches(&matches).expect("arguments")
    }

    #[test]
    fn an_agent_in_use_is_not_reset() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("pki")).expect("a directory");
        let arguments = arguments(&["--data-dir", dir.path().to_str().expect("text")]);
        let held = lock(&arguments).expect("a lock");
        let error = crate::cli::reset::open(dir.path()).err().expect("refused");
        assert!(matches!(error, Error::DataDirInUse { .. }), "{}", error.describe());
        assert!(lock(&arguments).is_err(), "nor is another agent started there");
        drop(held);
        crate::cli::reset::open(dir.path()).expect("it is free again");
    }

    #[test]
    fn passes_drain_by_proxies_on() {
        for (words, waits) in [(&[][..], true), (&["--drain-by-proxies=false"][..], false)] {
            let arguments = arguments(words);
            let flags = flags(&arguments, Path::new("/a")).expect("flags");
            assert_eq!(!flags.ignores_proxies, waits);
        }
    }

    const TOKEN: &str = "abcdef.0123456789abcdef";

    /// The cluster-info of a cluster with these CA certificates, signed with a token.
    fn signed_info(pem: &str, token: &str) -> Tree {
        let (id, secret) = token.split_once('.').expect("a token");
        let info = info(pem);
        let signature = controllers::sign_cluster_info(info.map("data").str("kubeconfig"), id, secret);
        let mut data = info.map("data").clone();
        data.insert(format!("jws-kubeconfig-{id}"), signature);
        tree! { "data" => data }
    }

    #[test]
    fn rejected_tokens_are_explained() {
        let why = explained(Error::BootstrapRejected("401 Unauthorized".to_string())).describe();
        assert!(why.starts_with("--token: ") && why.contains("401") && !why.contains("kubeconfig"), "{why}");
        let other = explained(Error::Response("x".to_string())).describe();
        assert_eq!(other, "x");
    }

    #[test]
    fn trusts_only_the_pinned_cluster() {
        let dir = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(dir.path().join("pki")).expect("a directory");
        let (ours, theirs) = (pki.ensure_ca("ca", "a").expect("one"), pki.ensure_ca("other", "b").expect("one"));
        let (ours, theirs) = (ours.certificate, theirs.certificate);
        let hash = fingerprints(&ours).expect("a fingerprint").remove(0);
        assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64, "{hash}");
        let check = |info: &Tree, want: std::result::Result<Option<&str>, &str>| match (
            trusted(info, TOKEN, &hash).map_err(|error| error.describe()),
            want,
        ) {
            (Ok(found), Ok(want)) => assert_eq!(found.as_deref(), want),
            (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
            (found, want) => panic!("{found:?} is not {want:?}"),
        };
        check(&signed_info(&ours, TOKEN), Ok(Some(&ours)));
        check(&signed_info(&theirs, TOKEN), Err("this is another cluster"));
        // One trusted certificate does not make the rest of its bundle trusted.
        check(&signed_info(&format!("{theirs}{ours}"), TOKEN), Ok(Some(&ours)));
        check(&info(&ours), Ok(None));
        check(&signed_info(&ours, "fedcba.0123456789abcdef"), Ok(None));
        check(&signed_info(&ours, "abcdef.fedcba9876543210"), Err("invalid signature for this token"));
        let mut data = signed_info(&ours, TOKEN).map("data").clone();
        data.insert("kubeconfig", info(&theirs).map("data").str("kubeconfig").to_string());
        check(&tree! { "data" => data }, Err("invalid signature for this token"));
        check(&tree! {}, Ok(None));
    }

    #[test]
    fn an_unknown_token_is_not_waited_for_while_others_are_signed() {
        assert_eq!(longest_unsigned(&info("x")), LONGEST_UNSIGNED);
        assert_eq!(longest_unsigned(&signed_info("x", TOKEN)), LONGEST_UNSIGNED_AMONG_OTHERS);
    }

    #[test]
    fn join_command_has_a_reachable_address() {
        let dir = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(dir.path().join("pki")).expect("a directory");
        let ca = pki.ensure_ca("ca", "a").expect("a CA").certificate;
        let hash = fingerprints(&ca).expect("a fingerprint").remove(0);
        let file = dir.path().join("kubeconfig");
        let check = |own: &str, public: &str, want: std::result::Result<&str, &str>| {
            std::fs::write(&file, api::yaml::encode(&bootstrap_config(own, &ca, "x"))).expect("a file");
            let text = String::from_utf8(api::yaml::encode(&bootstrap_config(public, &ca, ""))).expect("text");
            let printed = command(&file, &tree! { "data" => tree! { "kubeconfig" => text } }, "t");
            match (printed.map_err(|error| error.describe()), want) {
                (Ok(printed), Ok(server)) => assert_eq!(
                    printed,
                    format!("tiphys agent --server {server} --token t --discovery-token-ca-cert-hash {hash}\n")
                ),
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (printed, want) => panic!("{printed:?} is not {want:?}"),
            }
        };
        check("https://a:1", "https://10.0.0.1:6443", Ok("https://a:1"));
        check("https://127.0.0.1:6443", "https://10.0.0.1:6443", Ok("https://10.0.0.1:6443"));
        check("https://localhost:6443", "https://[fd00::1]:6443", Ok("https://[fd00::1]:6443"));
        check("https://127.0.0.1:6443", "https://127.0.0.1:6443", Err("--bind-address 0.0.0.0"));
        check("https://[::1]:6443", "", Err("--bind-address 0.0.0.0"));
    }
}

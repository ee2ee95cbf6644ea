//! `tiphys token`: the tokens by which machines join, as Secrets of kube-system, with kubeadm's texts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::time::{Timestamp, format_seconds, parse};
use api::{Map, Tree, base64, tree};
use client::{Client, DeleteOptions, Resource};
use stdx::clock::{Clock, SystemClock};

use super::join_server::SealedCertificates;
use super::{join, join_server};
use crate::component::remote::{Remote, find_kubeconfig};
use crate::error::{Error, Result};

const MAPS: Resource = Resource::core("configmaps");
const SECRETS: Resource = Resource::core("secrets");
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group whose certificate requests are approved.
pub const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
const USAGES: [&str; 2] = ["authentication", "signing"];

/// The arguments of `tiphys token`.
#[derive(clap::Args)]
pub struct Arguments {
    /// [default: $KUBECONFIG, ./data/kubeconfig or ~/.kube/config]
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Creates a token and prints it
    Create(Create),
    /// Lists the tokens
    List,
    /// Deletes tokens, given in full or by id
    Delete {
        #[arg(required = true, value_name = "TOKEN")]
        tokens: Vec<String>,
    },
    /// Prints a new token without creating it in the cluster
    Generate,
}

#[derive(clap::Args)]
struct Create {
    /// The token, of the form `[a-z0-9]{6}.[a-z0-9]{16}` [default: a generated one]
    token: Option<String>,
    /// Lifetime of the token; 0 for no expiration
    #[arg(long, default_value = "24h0m0s")]
    ttl: String,
    /// What the token may be used for
    #[arg(long, value_delimiter = ',', default_values = ["signing", "authentication"])]
    usages: Vec<String>,
    /// Groups that the token authenticates as
    #[arg(long, value_delimiter = ',', default_values = [GROUP])]
    groups: Vec<String>,
    #[arg(long, default_value = "")]
    description: String,
    /// Print the command that joins a machine
    #[arg(long)]
    print_join_command: bool,
    /// The token lets a server join the control plane: the cluster stores its certificates for it, encrypted with a key
    /// that only the printed command contains. Run it on a server of the cluster
    #[arg(long)]
    control_plane: bool,
    /// The data directory of this server, with --control-plane [default: the directory of the kubeconfig]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Runs the command, and returns its output.
pub async fn run(arguments: Arguments) -> Result<String> {
    let now = SystemClock.now();
    let file = || find_kubeconfig(arguments.kubeconfig.as_deref());
    let client = || Ok::<_, Error>(Remote::read("tiphys", "kubeconfig", &file()?)?.client());
    match arguments.command {
        Command::Generate => Ok(format!("{}\n", generate()?)),
        Command::List => list(&client()?, now).await,
        Command::Delete { tokens } => delete(&client()?, &tokens).await,
        Command::Create(create) => {
            let token = create.token.clone().map_or_else(generate, |token| checked(&token).map(|()| token))?;
            let (secret, client) = (secret(&token, &create, now)?, client()?);
            // Before the token is created: a failure must not leave one.
            let certificates = match create.control_plane {
                true => Some(SealedCertificates::read(&server_data_dir(&create, &file()?))?),
                false => None,
            };
            let command = match create.print_join_command || create.control_plane {
                true => {
                    let public = client.get(MAPS, "kube-public", "cluster-info").await.unwrap_or_default();
                    let command = join::command(&file()?, &public, &token)?;
                    Some(match &certificates {
                        Some(certificates) => join_server::command(&command, &certificates.key),
                        None => command,
                    })
                }
                false => None,
            };
            let created = client.create(SECRETS, NAMESPACE, &secret).await.map_err(answered)?;
            if let Some(certificates) = certificates {
                certificates.publish(&client, &token, &created).await.map_err(answered)?;
            }
            Ok(command.unwrap_or_else(|| format!("{token}\n")))
        }
    }
}

/// The data directory of the server, whose kubeconfig is in it.
fn server_data_dir(create: &Create, kubeconfig: &Path) -> PathBuf {
    let beside = || kubeconfig.parent().map(Path::to_path_buf).unwrap_or_default();
    create.data_dir.clone().unwrap_or_else(beside)
}

/// A token for the simulated hosts of one start, and its Secret.
pub(crate) fn for_simulated_hosts(now: Timestamp) -> Result<(String, Tree)> {
    let create = Create {
        token: None,
        ttl: "10m".to_string(),
        usages: USAGES.map(str::to_string).to_vec(),
        groups: vec![GROUP.to_string()],
        description: "for the nodes of `tiphys up --nodes`".to_string(),
        print_join_command: false,
        control_plane: false,
        data_dir: None,
    };
    let token = generate()?;
    let secret = secret(&token, &create, now)?;
    Ok((token, secret))
}

fn answered(error: client::Error) -> Error {
    Error::Response(error.message())
}

/// Random letters and digits, from the kernel.
fn generate() -> Result<String> {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = String::new();
    while text.len() < 22 {
        let mut bytes = [0u8; 64];
        let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let count = count.map_err(|error| Error::Runtime(error.into()))?;
        // Only bytes below a multiple of the alphabet's size, so that all characters are equally likely.
        let fair = bytes[..count].iter().filter(|byte| **byte < 252);
        text.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte % 36)])));
    }
    Ok(format!("{}.{}", &text[..6], &text[6..22]))
}

fn is_part(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Checks the form of a token.
pub fn checked(token: &str) -> Result<()> {
    let fits = token.split_once('.').is_some_and(|(id, secret)| is_part(id, 6) && is_part(secret, 16));
    let why = || {
        format!("the bootstrap token {token:?} was not of the form \"\\\\A([a-z0-9]{{6}})\\\\.([a-z0-9]{{16}})\\\\z\"")
    };
    if fits { Ok(()) } else { Err(Error::Flags(vec![why()])) }
}

fn secret(token: &str, create: &Create, now: Timestamp) -> Result<Tree> {
    let (id, secret) = token.split_once('.').unwrap_or((token, ""));
    let mut data = Map::new();
    let mut set = |key: &str, value: &str| drop(data.insert(key, base64::encode(value.as_bytes())));
    set("token-id", id);
    set("token-secret", secret);
    if !create.description.is_empty() {
        set("description", &create.description);
    }
    let wrong = |flag: &str, why: String| Error::Flags(vec![format!("--{flag}: {why}")]);
    let lifetime = api::time::parse_duration(&create.ttl).map_err(|why| wrong("ttl", why.to_string()))?;
    let lifetime = u64::try_from(lifetime).map_err(|_| wrong("ttl", "it must not be negative".to_string()))?;
    if lifetime > 0 {
        let seconds = Duration::from_nanos(lifetime).as_secs() as i64;
        set("expiration", &format_seconds(now.seconds + seconds));
    }
    for usage in &create.usages {
        if !USAGES.contains(&usage.as_str()) {
            return Err(wrong("usages", format!("unknown usage {usage:?}; supported: signing, authentication")));
        }
        set(&format!("usage-bootstrap-{usage}"), "true");
    }
    if let Some(strange) = create.groups.iter().find(|group| !group.starts_with("system:bootstrappers:")) {
        return Err(wrong("groups", format!("{strange:?} must begin with system:bootstrappers:")));
    }
    if !create.groups.is_empty() {
        set("auth-extra-groups", &create.groups.join(","));
    }
    Ok(tree! {
        "apiVersion" => "v1",
        "kind" => "Secret",
        "metadata" => tree! { "name" => format!("bootstrap-token-{id}"), "namespace" => NAMESPACE },
        "type" => TYPE,
        "data" => data,
    })
}

async fn delete(client: &Client, tokens: &[String]) -> Result<String> {
    let mut output = String::new();
    for token in tokens {
        let id = token.split_once('.').map_or(token.as_str(), |(id, _)| id);
        if !is_part(id, 6) || token.contains('.') && checked(token).is_err() {
            return Err(Error::Flags(vec![format!(
                "given token {token:?} didn't match pattern \"\\\\A([a-z0-9]{{6}})\\\\z\" or \
                 \"\\\\A([a-z0-9]{{6}})\\\\.([a-z0-9]{{16}})\\\\z\""
            )]));
        }
        let name = format!("bootstrap-token-{id}");
        let gone = client.delete(SECRETS, NAMESPACE, &name, DeleteOptions::default()).await;
        gone.map_err(|error| Error::Response(format!("failed to delete bootstrap token {id:?}: {}", error.message())))?;
        output.push_str(&format!("bootstrap token {id:?} deleted\n"));
    }
    Ok(output)
}

async fn list(client: &Client, now: Timestamp) -> Result<String> {
    let found = client.list(SECRETS, NAMESPACE, &format!("fieldSelector=type%3D{}", TYPE.replace('/', "%2F"))).await;
    let found = found.map_err(answered)?;
    let mut rows = vec![["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"].map(str::to_string)];
    rows.extend(found.list("items").iter().map(|secret| row(secret, now.seconds)));
    // Without tokens, the header is omitted too, as with kubeadm.
    Ok(if rows.len() > 1 { table(&rows) } else { String::new() })
}

fn row(secret: &Tree, now: i64) -> [String; 6] {
    let data = |key: &str| {
        let bytes = base64::decode(secret.map("data").str(key)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let or_none = |text: String| if text.is_empty() { "<none>".to_string() } else { text };
    let expiration = data("expiration");
    let (ttl, expires) = match parse(&expiration) {
        Ok(end) => (short(end.seconds - now), expiration),
        Err(_) => ("<forever>".to_string(), "<never>".to_string()),
    };
    let usages: Vec<&str> =
        USAGES.into_iter().filter(|usage| data(&format!("usage-bootstrap-{usage}")) == "true").collect();
    [
        format!("{}.{}", data("token-id"), data("token-secret")),
        format!("{ttl:<9}"),
        expires,
        format!("{:<22}", or_none(usages.join(","))),
        format!("{:<56}", or_none(data("description"))),
        or_none(data("auth-extra-groups")),
    ]
}

/// One unit is enough.
fn short(seconds: i64) -> String {
    match seconds {
        ..=-2 => "<invalid>".to_string(),
        -1 => "0s".to_string(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..31_536_000 => format!("{}d", seconds / 86_400),
        _ => format!("{}y", seconds / 31_536_000),
    }
}

/// Columns are three spaces apart; the last one is not padded.
fn table(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(7) + 3;
    let widths: Vec<usize> = (0..5).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = (0..5).map(|column| format!("{:<1$}", row[column], widths[column]));
        format!("{}{}\n", cells.collect::<String>(), row[5])
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000, nanos: 0 };

    fn create() -> Create {
        Create {
            token: None,
            ttl: "24h0m0s".to_string(),
            usages: vec!["signing".to_string(), "authentication".to_string()],
            groups: vec![GROUP.to_string()],
            description: String::new(),
            print_join_command: false,
            control_plane: false,
            data_dir: None,
        }
    }

    #[test]
    fn generates_tokens_like_kubeadm() {
        for _ in 0..20 {
            let token = generate().expect("a token");
            assert!(checked(&token).is_ok(), "{token}");
        }
        for bad in ["", "abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdefx"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secret_and_list_have_all_options() {
        let made = secret("abcdef.0123456789abcdef", &create(), NOW).expect("a secret");
        assert_eq!(made.str("metadata.name"), "bootstrap-token-abcdef");
        let forever = Create { ttl: "0".to_string(), usages: vec!["signing".to_string()], ..create() };
        let second = secret("fedcba.0123456789abcdef", &forever, NOW).expect("a secret");
        let mut rows = vec![["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"].map(str::to_string)];
        rows.extend([&made, &second].map(|secret| row(secret, NOW.seconds + 10)));
        let group = GROUP;
        let want = format!(
            "TOKEN                     TTL         EXPIRES                USAGES                   DESCRIPTION                                                EXTRA GROUPS\n\
             abcdef.0123456789abcdef   23h         1970-01-13T13:46:40Z   authentication,signing   <none>                                                     {group}\n\
             fedcba.0123456789abcdef   <forever>   <never>                signing                  <none>                                                     {group}\n"
        );
        assert_eq!(table(&rows), want);
        let wrong = |create: Create| secret("a.b", &create, NOW).expect_err("refused").describe();
        assert!(wrong(Create { ttl: "x".to_string(), ..create() }).contains("--ttl"));
        assert!(wrong(Create { usages: vec!["x".to_string()], ..create() }).contains("--usages"));
        assert!(wrong(Create { groups: vec!["x".to_string()], ..create() }).contains("--groups"));
    }

    #[test]
    fn prints_short_durations() {
        let cases = [(-5, "<invalid>"), (5, "5s"), (60, "1m"), (86_399, "23h"), (86_400, "1d"), (40_000_000, "1y")];
        for (seconds, want) in cases {
            assert_eq!(short(seconds), want);
        }
    }
}

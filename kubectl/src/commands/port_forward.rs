//! `port-forward`.

use std::net::IpAddr;
use std::sync::Arc;

use api::Tree;
use streaming::port_forward::{Forwarder, SPDY_PREFERRED, TUNNEL_PREFERRED};
use tokio::net::{TcpListener, TcpStream};

use super::pods::pod_of;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, typed};
use crate::objects::{Info, Select};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    typed("address", '\0', Kind::Slice, "localhost", "Addresses to listen on, separated by commas."),
    typed("pod-running-timeout", '\0', Kind::Duration, "1m0s", "How long to wait until a pod runs."),
];

pub(crate) static PORT_FORWARD: Command = Command {
    name: "port-forward",
    usage: "TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    short: "Forward one or more local ports to a pod",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// Connections that are forwarded at the same time.
const MAX_CONNECTIONS: usize = 1024;

/// `8080:80`, `:80`, `80`, and names of ports instead of the remote number.
fn parse(text: &str, pod: &Tree, service: Option<&Tree>) -> Result<(u16, u16)> {
    let invalid = |what: &str, port: &str| {
        Error::new(format!(
            "error parsing {what} port '{port}': strconv.ParseUint: parsing {}: invalid syntax",
            api::field::go_quote(port)
        ))
    };
    let (local, remote) = match text.split_once(':') {
        Some((local, remote)) if !remote.contains(':') => (local, remote),
        Some(_) => return message(format!("invalid port format '{text}'")),
        None => (text, text),
    };
    let is_large = |port: &str| port.parse::<u64>().is_ok_and(|number| number > u64::from(u16::MAX));
    for (what, port) in [("local", local), ("remote", remote)] {
        if is_large(port) {
            return message(format!(
                "error parsing {what} port '{port}': strconv.ParseUint: parsing {}: value out of range",
                api::field::go_quote(port)
            ));
        }
    }
    let target = remote_port(remote, pod, service)?;
    if target == 0 {
        return message("remote port must be > 0");
    }
    let local = match (local, text.contains(':')) {
        ("", _) => 0,
        (local, true) => local.parse().map_err(|_| invalid("local", local))?,
        (local, false) => local.parse().unwrap_or(target),
    };
    Ok((local, target))
}

/// The port of a pod behind a number or name, which may be those of a service.
fn remote_port(text: &str, pod: &Tree, service: Option<&Tree>) -> Result<u16> {
    let containers = pod.list("spec.containers");
    let named = |name: &str| {
        let ports = containers.iter().flat_map(|container| container.list("ports"));
        ports.filter(|port| port.str("name") == name).find_map(|port| port.int("containerPort"))
    };
    let as_port = |number: i64| u16::try_from(number).map_err(|_| Error::new(format!("invalid port {number}")));
    let missing = |kind: &str| Error::new(format!("{kind} does not have a named port '{text}'"));
    let Some(service) = service else {
        return match text.parse::<u16>() {
            Ok(number) => Ok(number),
            Err(_) => as_port(named(text).ok_or_else(|| missing(&format!("Pod '{}'", pod.str("metadata.name"))))?),
        };
    };
    let number = text.parse::<i64>().ok();
    let port = service
        .list("spec.ports")
        .iter()
        .find(|port| port.str("name") == text || (number.is_some() && port.int("port") == number));
    let Some(port) = port else {
        return match number {
            Some(number) => {
                message(format!("Service {} does not have a service port {number}", service.str("metadata.name")))
            }
            None => Err(missing(&format!("Service '{}'", service.str("metadata.name")))),
        };
    };
    match port.at("targetPort") {
        Tree::Int(number) => as_port(*number),
        Tree::Str(name) => as_port(named(name).ok_or_else(|| missing("Pod"))?),
        _ => as_port(port.int("port").unwrap_or(0)),
    }
}

async fn run(context: &Context) -> Result<()> {
    let [target, ports @ ..] = context.args.as_slice() else {
        return context.usage_error("TYPE/NAME and list of ports are required for port-forward");
    };
    if ports.is_empty() {
        return context.usage_error("TYPE/NAME and list of ports are required for port-forward");
    }
    let service = service_of(context, target).await?;
    let pod = pod_of(context, Some(target)).await?;
    if pod.object.str("status.phase") != "Running" {
        return message(format!(
            "unable to forward port because pod is not running. Current status={}",
            pod.object.str("status.phase")
        ));
    }
    let pairs: Vec<(u16, u16)> =
        ports.iter().map(|text| parse(text, &pod.object, service.as_ref())).collect::<Result<_>>()?;
    let request = Request { is_long: true, ..Request::get(format!("{}/portforward", pod.path())) };
    let upgraded = context.client().await?.upgrade(&request, TUNNEL_PREFERRED, SPDY_PREFERRED).await?;
    let forwarder = Arc::new(Forwarder::new(upgraded.io, upgraded.transport));
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    let mut listens = false;
    for (local, remote) in pairs {
        for listener in listen(context, local, remote).await? {
            listens = true;
            tokio::spawn(accept(listener, local, remote, forwarder.clone(), slots.clone()));
        }
    }
    if !listens {
        return message("unable to listen on any of the requested ports");
    }
    context.flush()?;
    tokio::select! {
        () = forwarder.over() => message("lost connection to pod"),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn service_of(context: &Context, target: &str) -> Result<Option<Tree>> {
    if !target.contains('/') {
        return Ok(None);
    }
    let select = Select { args: vec![target.to_string()], ..Select::of(context) };
    let infos = select.find(context).await?.infos()?;
    Ok(infos.into_iter().find(|info: &Info| info.resource.kind == "Service").map(|info| info.object))
}

/// `localhost` means both loopback addresses, of which one is enough.
async fn listen(context: &Context, local: u16, remote: u16) -> Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut port = local;
    for address in context.flags.list("address") {
        let addresses: Vec<IpAddr> = match address.as_str() {
            "localhost" => vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
            text => vec![text.parse().map_err(|_| Error::new(format!("{text} is not a valid IP")))?],
        };
        let is_any_enough = addresses.len() > 1;
        for address in addresses {
            match TcpListener::bind((address, port)).await {
                Ok(listener) => {
                    port = listener.local_addr()?.port();
                    let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
                    context.print(&format!("Forwarding from {host}:{port} -> {remote}\n"))?;
                    listeners.push(listener);
                }
                Err(error) if is_any_enough && address.is_ipv6() && !listeners.is_empty() => drop(error),
                Err(error) => {
                    return message(format!(
                        "unable to listen on port {port}: Listeners failed to create with the following errors: [unable to \
                         create listener: Error listen tcp {address}:{port}: bind: {}]",
                        crate::error::io_text(&error)
                    ));
                }
            }
        }
    }
    Ok(listeners)
}

async fn accept(
    listener: TcpListener,
    local: u16,
    remote: u16,
    forwarder: Arc<Forwarder>,
    slots: Arc<tokio::sync::Semaphore>,
) {
    let local = listener.local_addr().map_or(local, |address| address.port());
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        println!("Handling connection for {local}");
        let forwarder = forwarder.clone();
        tokio::spawn(async move {
            if let Err(error) = forward(stream, remote, &forwarder).await {
                eprintln!("an error occurred forwarding {local} -> {remote}: {error}");
            }
            drop(slot);
        });
    }
}

async fn forward(mut stream: TcpStream, remote: u16, forwarder: &Forwarder) -> Result<()> {
    let (mut data, outcome) = forwarder.connect(remote).await?.split();
    let copied = tokio::io::copy_bidirectional(&mut stream, &mut data).await;
    drop(data);
    outcome.await.map_err(|error| Error::new(error.to_string()))?;
    copied.map(drop).map_err(Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn parses_ports() {
        let port = tree! { "name" => "http", "containerPort" => 8080 };
        let pod = tree! { "metadata" => tree! { "name" => "p" }, "spec" => tree! { "containers" => list![tree! { "ports" => list![port] }] } };
        let service = tree! { "spec" => tree! { "ports" => list![tree! { "name" => "web", "port" => 80, "targetPort" => "http" }] } };
        let check = |text: &str, service: Option<&Tree>, want: (u16, u16)| {
            assert_eq!(parse(text, &pod, service).expect(text), want, "{text}");
        };
        check("80", None, (80, 80));
        check("5000:80", None, (5000, 80));
        check(":80", None, (0, 80));
        check("5000:http", None, (5000, 8080));
        check("80", Some(&service), (80, 8080));
        check("web", Some(&service), (8080, 8080));
        assert!(parse("1:2:3", &pod, None).is_err());
        assert!(parse("x", &pod, None).is_err());
        assert!(parse("81", &pod, Some(&service)).is_err());
    }
}

//! The components as commands of their own, with upstream's flags.

use super::{interrupted, run_node, runtime};
use crate::control_plane::ControlPlane;
use crate::error::Result;
use crate::{apiserver, component, controller_manager, dns, kube_proxy, kube_scheduler, logs, node};

pub(super) fn run_apiserver(arguments: &[String]) -> Result<()> {
    if asks_for_version(arguments) {
        println!("Kubernetes {}", api::version::git_version());
        return Ok(());
    }
    if asks_for_help(arguments) {
        print!("{}", apiserver::flags::help());
        return Ok(());
    }
    let flags = apiserver::flags::parse(arguments)?;
    logs::init(flags.log_format, flags.log_level);
    runtime()?.block_on(async {
        let running = apiserver::run(flags).await?;
        stop_on_signal(running).await;
        Ok(())
    })
}

pub(super) fn run_manager(arguments: &[String]) -> Result<()> {
    if asks_for_version(arguments) {
        println!("Kubernetes {}", api::version::git_version());
        return Ok(());
    }
    if asks_for_help(arguments) {
        print!("{}", controller_manager::flags::help());
        return Ok(());
    }
    let flags = controller_manager::flags::parse(arguments)?;
    logs::init(flags.common.log_format, flags.common.log_level);
    run_component(controller_manager::run(flags))
}

pub(super) fn run_scheduler(arguments: &[String]) -> Result<()> {
    if asks_for_version(arguments) {
        println!("Kubernetes {}", api::version::git_version());
        return Ok(());
    }
    if asks_for_help(arguments) {
        print!("{}", kube_scheduler::flags::help());
        return Ok(());
    }
    let mut flags = kube_scheduler::flags::parse(arguments)?;
    logs::init(flags.common.log_format, flags.common.log_level);
    if kube_scheduler::write_config(&mut flags)? {
        return Ok(());
    }
    run_component(kube_scheduler::run(flags))
}

pub(super) fn run_dns(arguments: &[String]) -> Result<()> {
    let arguments = dns::flags::with_two_dashes(arguments);
    if asks_for_version(&arguments) {
        println!("tiphys dns {} (DNS specification 1.1.0)", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if asks_for_help(&arguments) {
        print!("{}", dns::flags::help());
        return Ok(());
    }
    let flags = dns::flags::parse(&arguments)?;
    logs::init(flags.log_format, flags.log_level);
    runtime()?.block_on(async {
        let running = dns::run(flags).await?;
        interrupted().await;
        tracing::info!("stopping");
        tokio::select! {
            () = running.stop() => {}
            () = interrupted() => {}
        }
        Ok(())
    })
}

pub(super) fn run_proxy(arguments: &[String]) -> Result<()> {
    if asks_for_version(arguments) {
        println!("Kubernetes {}", api::version::git_version());
        return Ok(());
    }
    if asks_for_help(arguments) {
        print!("{}", kube_proxy::flags::help());
        return Ok(());
    }
    let flags = kube_proxy::flags::parse(arguments)?;
    logs::init(flags.log_format, flags.log_level);
    if kube_proxy::cleanup(&flags)? {
        return Ok(());
    }
    runtime()?.block_on(async {
        let mut running = kube_proxy::run(flags).await?;
        tokio::select! {
            biased;
            () = interrupted() => running.stop().await,
            ended = running.ended() => ended,
        }
    })
}

pub(super) fn run_kubelet(arguments: &[String]) -> Result<()> {
    if asks_for_version(arguments) {
        println!("Kubernetes {}", api::version::git_version());
        return Ok(());
    }
    if asks_for_help(arguments) {
        print!("{}", node::flags::help());
        return Ok(());
    }
    let flags = node::flags::parse(arguments)?;
    let (options, format, level) = node::read(&flags)?;
    logs::init(format, level);
    runtime()?.block_on(run_node(node::run(&flags, options), false))
}

/// Whether the arguments request the version, in the form of upstream's components.
fn asks_for_version(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| matches!(argument.as_str(), "--version" | "--version=true"))
}

fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h"))
}

/// Runs until a signal, or until it stops by itself.
fn run_component(start: impl Future<Output = Result<component::ComponentHandle>>) -> Result<()> {
    runtime()?.block_on(async {
        let mut running = start.await?;
        tokio::select! {
            biased;
            () = interrupted() => running.stop().await,
            ended = running.ended() => ended,
        }
    })
}

/// Waits for ctrl-c or a polite kill, then stops; a second one does not wait for the drain.
async fn stop_on_signal(running: ControlPlane) {
    interrupted().await;
    tracing::info!("stopping");
    tokio::select! {
        () = running.stop() => {}
        () = interrupted() => tracing::warn!("stopped without draining open requests"),
    }
}

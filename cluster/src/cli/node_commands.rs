//! `tiphys node`: the simulated nodes of a running `tiphys up --nodes N`.

use super::instance::InstanceArguments;
use super::table::aligned;
use super::{runtime, say};
use crate::error::Result;
use crate::up::nodes::{NodeCommand, send};

#[derive(clap::Args)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    instance: InstanceArguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists the hosts of this machine: name, state, address and role
    List,
    /// Adds nodes, and waits until they are ready
    Add {
        /// How many
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Stops nodes, deletes their Node objects and their data
    Remove {
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Stops nodes and their pods; their data stays
    Stop {
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        /// End all processes at once, as a power failure does
        #[arg(long)]
        power_off: bool,
    },
    /// Starts stopped nodes, and waits until they are ready
    Start {
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
}

pub(super) fn run(arguments: NodeArguments) -> Result<()> {
    let NodeArguments { instance, command } = arguments;
    let data_dir = instance.data_dir()?;
    let runtime = runtime()?;
    for command in commands(command) {
        let is_list = command == NodeCommand::List;
        let lines = runtime.block_on(send(&data_dir, &command))?;
        let lines = if is_list { table(&lines) } else { lines };
        lines.iter().for_each(|line| say(line));
    }
    Ok(())
}

fn commands(command: Command) -> Vec<NodeCommand> {
    match command {
        Command::List => vec![NodeCommand::List],
        Command::Add { count } => vec![NodeCommand::Add(count)],
        Command::Remove { nodes } => nodes.into_iter().map(NodeCommand::Remove).collect(),
        Command::Stop { nodes, power_off } => {
            nodes.into_iter().map(|node| NodeCommand::Stop(node, power_off)).collect()
        }
        Command::Start { nodes } => nodes.into_iter().map(NodeCommand::Start).collect(),
    }
}

/// Columns of tabs, aligned.
fn table(lines: &[String]) -> Vec<String> {
    let rows = std::iter::once("NAME\tSTATE\tADDRESS\tROLE").chain(lines.iter().map(String::as_str));
    aligned(rows.map(|line| line.split('\t').map(str::to_string).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_aligned() {
        let lines = ["a\trunning\t10.0.0.1\tserver".to_string(), "node-2\tstopped\t10.0.0.2\tnode".to_string()];
        let want = [
            "NAME     STATE     ADDRESS    ROLE",
            "a        running   10.0.0.1   server",
            "node-2   stopped   10.0.0.2   node",
        ];
        assert_eq!(table(&lines), want);
    }
}

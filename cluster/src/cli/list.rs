//! `tiphys list`: the clusters of this machine that run, and the named ones that do not.

use std::collections::BTreeSet;

use super::table::aligned;
use super::{Output, say};
use crate::machine::instance::Directories;
use crate::machine::run_state::RunState;
use api::{Tree, tree};

/// The arguments of `tiphys list`.
#[derive(clap::Args)]
pub(super) struct ListArguments {
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// A cluster in the list.
struct Row {
    name: String,
    data_dir: String,
    state: Option<RunState>,
    is_running: bool,
}

impl Row {
    fn status(&self) -> &'static str {
        match (&self.state, self.is_running) {
            (Some(_), _) => "running",
            (None, true) => "starting",
            (None, false) => "stopped",
        }
    }

    fn server(&self) -> String {
        self.state.as_ref().map_or_else(|| "-".to_string(), |state| format!("https://{}", state.address))
    }

    fn tree(&self) -> Tree {
        tree! {
            "name" => self.name.as_str(),
            "status" => self.status(),
            "server" => self.state.as_ref().map(|state| format!("https://{}", state.address)).unwrap_or_default(),
            "pid" => i64::from(self.state.as_ref().map_or(0, |state| state.pid)),
            "dataDir" => self.data_dir.as_str(),
        }
    }
}

pub(super) fn run(arguments: &ListArguments) {
    let rows = rows(&Directories::of_user());
    match arguments.output {
        Output::Json => {
            let all: Tree = rows.iter().map(Row::tree).collect::<Vec<Tree>>().into();
            say(&String::from_utf8_lossy(&api::json::encode(&all, None)));
        }
        Output::Text if rows.is_empty() => say("no clusters; `tiphys up` starts one"),
        Output::Text => {
            let head = ["NAME", "STATUS", "SERVER", "DATA DIRECTORY"].map(str::to_string).to_vec();
            let cells =
                |row: &Row| vec![row.name.clone(), row.status().to_string(), row.server(), row.data_dir.clone()];
            aligned(std::iter::once(head).chain(rows.iter().map(cells))).iter().for_each(|line| say(line));
        }
    }
}

fn rows(directories: &Directories) -> Vec<Row> {
    let running = directories.running();
    let known: BTreeSet<_> = running.iter().map(|instance| instance.data_dir.clone()).collect();
    let running = running.into_iter().map(|instance| Row {
        state: RunState::read(&instance.data_dir),
        name: instance.name,
        data_dir: instance.data_dir.display().to_string(),
        is_running: true,
    });
    let stopped = directories.named().into_iter().filter(|(_, path)| {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        !known.contains(&path)
    });
    let stopped =
        stopped.map(|(name, path)| Row { name, data_dir: path.display().to_string(), state: None, is_running: false });
    running.chain(stopped).collect()
}

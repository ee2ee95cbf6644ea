//! `options`.

use crate::command::Command;
use crate::globals::GLOBALS;

pub(crate) static OPTIONS: Command = Command {
    name: "options",
    short: "Print the list of flags inherited by all commands",
    run: Some(|context| {
        Box::pin(async move {
            let text = crate::help::flags(&[GLOBALS]);
            let list = text.strip_prefix("Options:\n").unwrap_or(&text);
            context.print(&format!("The following options can be passed to any command:\n\n{list}"))
        })
    }),
    ..Command::EMPTY
};

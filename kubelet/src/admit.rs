//! Whether a node takes a pod that was bound to it: one list of handlers, each with its reason to refuse.

use api::Tree;

use crate::agent::Agent;
use crate::status::Problem;

type Handler = fn(&Agent, &Tree) -> Result<(), Problem>;

/// In the order in which they are asked.
const HANDLERS: [(&str, Handler); 1] = [("operating system", operating_system)];

pub fn admit(agent: &Agent, pod: &Tree) -> Result<(), Problem> {
    HANDLERS.iter().try_for_each(|(_, handler)| handler(agent, pod))
}

fn operating_system(_: &Agent, pod: &Tree) -> Result<(), Problem> {
    match pod.str("spec.os.name") {
        "" | "linux" => Ok(()),
        _ => Err(Problem {
            reason: "PodOSNotSupported",
            message: "Failed to admit pod as the OS field doesn't match node OS".to_string(),
        }),
    }
}

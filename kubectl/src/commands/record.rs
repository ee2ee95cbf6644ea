//! `--record`: the command line in an annotation of the changed object.

use api::{Tree, tree};

use super::common::{DryRun, MERGE, patch};
use crate::context::Context;
use crate::error::Result;
use crate::flags::{Flag, switch};
use crate::objects::Info;

/// `--record`.
pub(crate) const RECORD: &[Flag] =
    &[switch("record", '\0', "Keep this command in an annotation.")
        .deprecated("--record will be removed in the future")];

/// The annotation that `rollout history` shows.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Flags whose values the readers of the object must not learn.
const SECRETS: [&str; 2] = ["token", "password"];

/// The cause of a change, if it has to be recorded.
pub(crate) fn change_cause(context: &Context) -> Option<String> {
    context.flags.bool("record").then(|| cause(&context.path, &context.args, context.flags.command_line()))
}

/// The command with its arguments first, then its flags.
fn cause(path: &str, args: &[String], flags: &[(&str, String)]) -> String {
    let mut words = vec![path.to_string()];
    words.extend(args.iter().cloned());
    words.extend(flags.iter().map(|(name, value)| {
        let value = if SECRETS.contains(name) { "CLASSIFIED" } else { value };
        format!("--{name}={value}")
    }));
    words.join(" ")
}

/// Records the command in an object that is going to be sent.
pub(crate) fn record(context: &Context, object: &mut Tree) {
    if let Some(cause) = change_cause(context) {
        object.child("metadata").child("annotations").set(CHANGE_CAUSE, cause);
    }
}

/// Records the command in a stored object, for requests that do not send the object.
pub(crate) async fn record_stored(
    context: &Context,
    info: &Info,
    stored: &Tree,
    dry_run: DryRun,
) -> Result<Option<Tree>> {
    let Some(cause) = change_cause(context) else { return Ok(None) };
    let mut body = tree! {};
    if stored.at("metadata.annotations").get(CHANGE_CAUSE).and_then(Tree::as_str) != Some(&cause) {
        body = tree! { "metadata" => tree! { "annotations" => tree! { CHANGE_CAUSE => cause } } };
    }
    patch(context, info, MERGE, api::json::encode(&body, None), dry_run).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn secrets_are_not_recorded() {
        let args = ["deployment".to_string(), "a".to_string()];
        let flags = [("replicas", "3".to_string()), ("token", "x".to_string()), ("record", "true".to_string())];
        let want = "kubectl scale deployment a --replicas=3 --token=CLASSIFIED --record=true";
        assert_eq!(cause("kubectl scale", &args, &flags), want);
    }
}

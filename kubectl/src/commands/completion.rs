//! `completion`: scripts for shells, which ask `__complete` for words.

use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, switch};
use crate::globals::GLOBALS;
use crate::kubeconfig::Section;
use crate::objects::{ListQuery, list_pages};

const FLAGS: &[Flag] = &[switch("no-descriptions", '\0', "").hidden()];

pub(crate) static COMPLETION: Command = Command {
    name: "completion",
    usage: "SHELL",
    short: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    examples: "# In bash\nsource <(kubectl completion bash)\n# In zsh\nsource <(kubectl completion zsh)\n# In fish\nkubectl completion fish | source",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(async move { completion(context) })),
    group: "Settings Commands",
    ..Command::EMPTY
};

pub(crate) static COMPLETE: Command = Command {
    name: "__complete",
    short: "Print the words that may come next",
    run: Some(|context| Box::pin(complete(context))),
    stops_at_arguments: true,
    ..Command::EMPTY
};

const BASH: &str = r#"# bash completion of kubectl
__kubectl_complete() {
    local words
    words=$("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    local word
    while IFS= read -r word; do
        [[ "$word" == "${COMP_WORDS[COMP_CWORD]}"* ]] && COMPREPLY+=("$word")
    done <<<"$words"
}
complete -o default -F __kubectl_complete kubectl
"#;

const ZSH: &str = r#"#compdef kubectl
_kubectl() {
    local -a words_found
    words_found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a words_found
}
compdef _kubectl kubectl
"#;

const FISH: &str = r#"# fish completion of kubectl
function __kubectl_complete
    set -l words (commandline -opc) (commandline -ct)
    kubectl __complete -- $words[2..-1] 2>/dev/null
end
complete -c kubectl -f -a '(__kubectl_complete)'
"#;

const POWERSHELL: &str = r#"# PowerShell completion of kubectl
Register-ArgumentCompleter -Native -CommandName kubectl -ScriptBlock {
    param($word, $ast, $position)
    $words = @($ast.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
    if ($word -eq '') { $words += '' }
    kubectl __complete -- @words 2>$null | Where-Object { $_ -like "$word*" } | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
"#;

fn completion(context: &Context) -> Result<()> {
    match context.args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bash"] => context.print(BASH),
        ["zsh"] => context.print(ZSH),
        ["fish"] => context.print(FISH),
        ["powershell"] => context.print(POWERSHELL),
        [] => context.usage_error("Shell not specified."),
        [shell] => context.usage_error(&format!("Unsupported shell type {}.", api::field::go_quote(shell))),
        _ => context.usage_error("Too many arguments. Expected only the shell type."),
    }
}

/// The command that words name, and the words behind it.
fn find<'a>(root: &'static Command, words: &'a [String]) -> (&'static Command, &'a [String]) {
    let (mut command, mut rest) = (root, words);
    while let Some((first, after)) = rest.split_first() {
        let Some(child) = command.child(first) else { break };
        (command, rest) = (child, after);
    }
    (command, rest)
}

async fn complete(context: &Context) -> Result<()> {
    let Some((last, before)) = context.args.split_last() else { return message("no words to complete") };
    let (command, rest) = find(&super::ROOT, before);
    let words = candidates(context, command, rest, last).await;
    for word in words.iter().filter(|word| word.starts_with(last.as_str())) {
        context.print(&format!("{word}\n"))?;
    }
    Ok(())
}

async fn candidates(context: &Context, command: &'static Command, rest: &[String], last: &str) -> Vec<String> {
    let flag = rest.last().map_or("", String::as_str);
    match flag {
        "-n" | "--namespace" => return names(context, "namespaces").await,
        "--context" => return entries(context, Section::Contexts),
        "--cluster" => return entries(context, Section::Clusters),
        "--user" => return entries(context, Section::Users),
        _ => {}
    }
    if last.starts_with('-') {
        let groups = command.flags.iter().copied().chain([GLOBALS]);
        let visible = groups.flat_map(|group| group.iter()).filter(|flag| !flag.is_hidden);
        return visible.map(|flag| format!("--{}", flag.name)).collect();
    }
    if !command.children.is_empty() {
        let shown = command.children.iter().filter(|child| !child.name.starts_with('_'));
        return shown.map(|child| child.name.to_string()).collect();
    }
    let arguments: Vec<&String> = rest.iter().filter(|word| !word.starts_with('-')).collect();
    match (command.name, arguments.as_slice()) {
        ("use-context" | "delete-context" | "rename-context" | "set-context", _) => entries(context, Section::Contexts),
        ("set-cluster" | "delete-cluster", _) => entries(context, Section::Clusters),
        ("set-credentials" | "delete-user", _) => entries(context, Section::Users),
        ("logs" | "exec" | "attach" | "port-forward", []) => names(context, "pods").await,
        ("cordon" | "uncordon" | "drain", _) => names(context, "nodes").await,
        (_, [kind, ..]) => names(context, kind).await,
        (_, []) => match last.split_once('/') {
            Some((kind, _)) => names(context, kind).await.into_iter().map(|name| format!("{kind}/{name}")).collect(),
            None => types(context).await,
        },
    }
}

fn entries(context: &Context, section: Section) -> Vec<String> {
    context.config().map(|config| config.names(section).map(str::to_string).collect()).unwrap_or_default()
}

async fn types(context: &Context) -> Vec<String> {
    let Ok(mapper) = context.mapper().await else { return Vec::new() };
    mapper.preferred().into_iter().filter(|one| one.has_verb("get")).map(|one| one.qualified()).collect()
}

/// The names of a type's objects. Without a server there are none, and no error.
async fn names(context: &Context, kind: &str) -> Vec<String> {
    let (Ok(resource), Ok((namespace, _))) = (context.resolve(kind).await, context.namespace()) else {
        return Vec::new();
    };
    let namespace = if resource.is_namespaced { namespace } else { String::new() };
    let mut names = Vec::new();
    let query = ListQuery::default();
    let read = list_pages(context, &resource, &namespace, &query, async |page| {
        names.extend(page.list("items").iter().map(|item| item.str("metadata.name").to_string()));
        Ok(())
    });
    match read.await {
        Ok(()) => names,
        Err(_) => Vec::new(),
    }
}

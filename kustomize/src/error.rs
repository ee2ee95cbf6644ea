//! Errors with kustomize's texts.

use std::path::PathBuf;

/// Why a directory cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{context}: {source}")]
    Context {
        context: String,
        #[source]
        source: Box<Error>,
    },
    #[error("unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'", .0.display())]
    MissingKustomization(PathBuf),
    #[error("Found multiple kustomization files under: {}\n", .0.display())]
    MultipleKustomizations(PathBuf),
    #[error("kustomization.yaml is empty")]
    EmptyKustomization,
    #[error("Failed to read kustomization file under {}:\n{problems}", .directory.display())]
    WrongKind { directory: PathBuf, problems: String },
    #[error("json: unknown field {}", api::quote::go_quote(.0))]
    UnknownField(String),
    #[error("json: cannot unmarshal {actual} into Go struct field {field} of type {expected}")]
    FieldType { field: String, actual: &'static str, expected: &'static str },
    #[error("evalsymlink failure on '{path}' : lstat {path}: no such file or directory")]
    Missing { path: String },
    #[error("'{0}' must resolve to a file")]
    NotAFile(String),
    #[error("not a valid directory: {0}")]
    InvalidDirectory(String),
    #[error("'{0}': file is not directory")]
    NotADirectory(String),
    #[error("security; file '{path}' is not in or below '{root}'")]
    Restricted { path: String, root: String },
    #[error("cycle detected: candidate root '{candidate}' contains visited root '{root}'")]
    Cycle { candidate: String, root: String },
    #[error("new root cannot be empty")]
    EmptyRoot,
    #[error("new root '{0}' cannot be absolute")]
    AbsoluteRoot(String),
    #[error("remote resources are not supported: download '{0}' and name the local copy instead")]
    Remote(String),
    #[error(
        "Helm charts are not supported: render the chart with 'helm template' and list the result under resources (chart '{0}')"
    )]
    HelmChart(String),
    #[error("cannot read {path}: {source}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("kustomizations are nested too deeply at '{0}'")]
    TooDeep(String),
    #[error("'{path}' is larger than {limit} bytes")]
    TooLarge { path: String, limit: u64 },
    #[error("there are more than {0} resources")]
    TooManyResources(usize),
    #[error("MalformedYAMLError: {source} in File: {path}")]
    MalformedYaml {
        path: String,
        #[source]
        source: api::yaml::Error,
    },
    #[error("{0}")]
    Yaml(#[from] api::yaml::Error),
    #[error("invalid document separator: {0}")]
    Separator(String),
    #[error("missing Resource metadata")]
    MissingMetadata,
    #[error("missing metadata.name in object {0}")]
    MissingName(String),
    #[error("missing kind in object {0}")]
    MissingObjectKind(String),
    #[error("empty item at {path} in object {object}")]
    NullItem { path: String, object: String },
    #[error("may not add resource with an already registered id: {0}")]
    DuplicateId(String),
    #[error("id {0} does not exist; cannot merge or replace")]
    NothingToMerge(String),
    #[error("id {id} exists; behavior must be merge or replace")]
    Exists { id: String },
    #[error("found multiple objects {found} that could accept merge of {id}")]
    SeveralToMerge { found: String, id: String },
    #[error("expected kind '{expected}' for path '{path}' but got '{actual}'")]
    NotAComponent { expected: &'static str, path: String, actual: String },
    #[error("expected kind != '{kind}' for path '{path}'")]
    UnexpectedComponent { kind: &'static str, path: String },
    #[error("loader.New {}", api::quote::go_quote(&.0.to_string()))]
    ComponentLoader(Box<Error>),
    #[error("accumulateDirectory: {}", api::quote::go_quote(&.0.to_string()))]
    ComponentDirectory(Box<Error>),
    #[error("a configmap must have a name")]
    NamelessGenerator,
    #[error("configmap {name} illegally repeats the key `{key}`")]
    RepeatedKey { name: String, key: String },
    #[error("invalid literal source {0}, expected key=value")]
    Literal(String),
    #[error("missing key name for file path {path} in source {source_text}")]
    MissingKey { path: String, source_text: String },
    #[error("missing file path for key name {key} in source {source_text}")]
    MissingPath { key: String, source_text: String },
    #[error("source {0} key name or file path contains '='")]
    AmbiguousSource(String),
    #[error("line {0} has invalid utf8 bytes")]
    EnvironmentUtf8(usize),
    #[error("expected sequence or mapping node")]
    NotTraversable,
    #[error("cannot set or create an empty field name")]
    EmptyFieldName,
    #[error("wrong node kind: expected {expected} but got {actual}: node contents:\n{contents}")]
    NodeKind { expected: &'static str, actual: &'static str, contents: String },
    #[error("conflicting fieldspecs")]
    ConflictingFieldSpecs,
    #[error("label name '{0}' exists in both commonLabels and labels")]
    RepeatedLabel(String),
    #[error("namespace transformation produces ID conflict: {0}")]
    NamespaceConflict(String),
    #[error("invalid value {} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \"allServiceAccounts\"", api::quote::go_quote(.0))]
    RoleBindingSubjects(String),
    #[error("resource with name {name} does not match a config with the following GVK [{kinds}]")]
    NoReplicas { name: String, kinds: String },
    #[error("must specify one of patch and path in\n{0}")]
    NoPatch(String),
    #[error("patch and path can't be set at the same time\n{0}")]
    TwoPatches(String),
    #[error("failed to get the patch file from path({path}): {source}")]
    PatchFile {
        path: String,
        #[source]
        source: Box<Error>,
    },
    #[error("unable to parse SM or JSON patch from {0}")]
    UnreadablePatch(String),
    #[error("must specify a target for JSON patch {0}")]
    NoPatchTarget(String),
    #[error("must specify the target name")]
    NoTargetName,
    #[error("patch appears to be empty; files=[{files}], Patch={patch}")]
    EmptyPatch { files: String, patch: String },
    #[error(
        "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {0}"
    )]
    SeveralPatches(String),
    #[error("no resource matches strategic merge patch {}: {source}", api::quote::go_quote(.patch))]
    UnmatchedPatch {
        patch: String,
        #[source]
        source: Box<Error>,
    },
    #[error("no matches for Id {id}; failed to find unique target for patch {id}")]
    NoMatch { id: String },
    #[error("multiple matches for Id {id}; failed to find unique target for patch {id}")]
    SeveralMatches { id: String },
    #[error("{0}")]
    Json(#[from] api::json::Error),
    #[error("{0}")]
    JsonPatch(#[from] api::patch::Error),
    #[error("unknown patch strategy '{0}'")]
    PatchStrategy(String),
    #[error("error parsing regexp: {0}")]
    Regex(String),
    #[error("{0}")]
    Selector(#[from] api::selector::Error),
    #[error("replacements must specify a source and at least one target")]
    IncompleteReplacement,
    #[error("value and resource selectors are mutually exclusive")]
    TwoSources,
    #[error("cannot specify both path and inline replacement")]
    TwoReplacements,
    #[error("unsupported replacement type encountered within replacement path: {0}")]
    ReplacementFile(&'static str),
    #[error("multiple matches for selector {0}")]
    SeveralSources(String),
    #[error("nothing selected by {0}")]
    NoSource(String),
    #[error("fieldPath `{path}` is missing for replacement source {id}")]
    NoSourceField { path: String, id: String },
    #[error("delimiter option can only be used with scalar nodes")]
    DelimiterOfCompound,
    #[error("options.index {index} is out of bounds for value {value}")]
    DelimiterIndex { index: i64, value: String },
    #[error("target must specify resources to select")]
    NoReplacementTarget,
    #[error("unable to find field {} in replacement target", api::quote::go_quote(.0))]
    NoTargetField(String),
    #[error("unable to find or create field {} in replacement target", api::quote::go_quote(.0))]
    NoCreatedField(String),
    #[error("path config error; no 'name' field in node")]
    NoNameField,
    #[error("found multiple possible referrals: {0}")]
    SeveralReferrals(String),
    #[error("found {count} resId matches for var {var} (unable to disambiguate)")]
    AmbiguousVar { count: usize, var: String },
    #[error("var '{0}' already encountered")]
    RepeatedVar(String),
    #[error("field specified in var '{0}' not found in corresponding resource")]
    NoVarField(String),
    #[error("var '{0}' cannot be mapped to a field in the set of known resources")]
    UnmappedVar(String),
    #[error("the field 'sortOptions.order' must be one of [fifo, legacy]")]
    SortOrder,
    #[error("the field 'sortOptions.legacySortOptions' is set but the selected sort order is '{0}', not 'legacy'")]
    LegacySortOptions(String),
    #[error("unable to load builtin {0}")]
    UnknownBuiltin(String),
    #[error("external plugins are not supported: '{0}' is not a built-in transformer or generator")]
    ExternalPlugin(String),
    #[error("validator shouldn't modify the resource map")]
    ModifyingValidator,
}

impl Error {
    pub(crate) fn context(self, context: impl Into<String>) -> Error {
        Error::Context { context: context.into(), source: Box::new(self) }
    }

    /// Whether a file was found but is not YAML.
    pub(crate) fn is_malformed_yaml(&self) -> bool {
        match self {
            Error::MalformedYaml { .. } => true,
            Error::Context { source, .. } => source.is_malformed_yaml(),
            _ => false,
        }
    }
}

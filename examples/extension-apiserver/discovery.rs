//! Discovery and OpenAPI of the group.

use api::{Tree, list, tree};

use crate::greetings::{API_VERSION, GROUP, KIND, RESOURCE, VERSION};

/// The document of a path.
pub(crate) fn document(path: &str) -> Option<Tree> {
    let group = format!("/apis/{GROUP}");
    let version = format!("{group}/{VERSION}");
    match path.trim_end_matches('/') {
        "/apis" => Some(tree! { "kind" => "APIGroupList", "apiVersion" => "v1", "groups" => list![api_group()] }),
        path if path == group => Some(api_group()),
        path if path == version => Some(resources()),
        "/openapi/v2" => Some(openapi_v2()),
        "/openapi/v3" => Some(index(&version)),
        path => (path.strip_prefix("/openapi/v3") == Some(&version)).then(openapi),
    }
}

fn api_group() -> Tree {
    let version = || tree! { "groupVersion" => API_VERSION, "version" => VERSION };
    tree! {
        "kind" => "APIGroup", "apiVersion" => "v1", "name" => GROUP,
        "versions" => list![version()], "preferredVersion" => version(),
    }
}

fn resources() -> Tree {
    let verbs = list!["create", "delete", "get", "list", "patch", "update", "watch"];
    let resource = tree! {
        "name" => RESOURCE, "singularName" => "greeting", "namespaced" => true, "kind" => KIND,
        "shortNames" => list!["gr"], "verbs" => verbs,
    };
    tree! {
        "kind" => "APIResourceList", "apiVersion" => "v1", "groupVersion" => API_VERSION,
        "resources" => list![resource],
    }
}

fn index(version: &str) -> Tree {
    let mut paths = Tree::map_new();
    // The document changes with the version of this program.
    let url = format!("/openapi/v3{version}?hash={}", env!("CARGO_PKG_VERSION"));
    paths.set(version.trim_start_matches('/'), tree! { "serverRelativeURL" => url });
    tree! { "paths" => paths }
}

const DEFINITION: &str = "com.example.greetings.v1.Greeting";

fn kind() -> Tree {
    tree! { "group" => GROUP, "version" => VERSION, "kind" => KIND }
}

fn schemas() -> Tree {
    let text = tree! { "type" => "string", "description" => "What to say." };
    let spec = tree! { "type" => "object", "required" => list!["text"], "properties" => tree! { "text" => text } };
    let string = || tree! { "type" => "string" };
    let schema = tree! {
        "type" => "object",
        "description" => "A greeting for the users of a namespace.",
        "properties" => tree! {
            "apiVersion" => string(), "kind" => string(), "metadata" => tree! { "type" => "object" }, "spec" => spec,
        },
        "x-kubernetes-group-version-kind" => list![kind()],
    };
    let mut schemas = Tree::map_new();
    schemas.set(DEFINITION, schema);
    schemas
}

/// The path of the resource, whose objects are created with this response.
fn paths(created: Tree) -> Tree {
    let operation = tree! {
        "operationId" => "createGreeting", "x-kubernetes-action" => "post",
        "x-kubernetes-group-version-kind" => kind(), "responses" => tree! { "201" => created },
    };
    let mut paths = Tree::map_new();
    let path = format!("/apis/{API_VERSION}/namespaces/{{namespace}}/{RESOURCE}");
    paths.set(&path, tree! { "post" => operation });
    paths
}

fn info() -> Tree {
    tree! { "title" => "Greetings", "version" => env!("CARGO_PKG_VERSION") }
}

fn openapi() -> Tree {
    tree! {
        "openapi" => "3.0.0", "info" => info(), "paths" => paths(tree! { "description" => "Created" }),
        "components" => tree! { "schemas" => schemas() },
    }
}

/// For kubectl before 1.27. Only schemas that a path refers to are merged into the document of the cluster.
fn openapi_v2() -> Tree {
    let schema = tree! { "$ref" => format!("#/definitions/{DEFINITION}") };
    tree! {
        "swagger" => "2.0", "info" => info(),
        "paths" => paths(tree! { "description" => "Created", "schema" => schema }), "definitions" => schemas(),
    }
}

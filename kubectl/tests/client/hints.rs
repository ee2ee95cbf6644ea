//! What errors say beyond upstream's: the nearest name, how to start a cluster, and which role would allow it.

use crate::support::{User, Web, discovery, json, response};

#[test]
fn the_nearest_flag_is_suggested() {
    let user = User::new();
    user.fails("get pods --namesapce=x", "hint: did you mean --namespace?");
    user.fails("create deployment a --imgae=x", "hint: did you mean --image?");
    user.fails("gett", "Did you mean this?\n\tset\n\tget\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_resource_is_suggested() {
    let server = Web::start(|head| discovery(head).unwrap_or_else(|| json("{}"))).await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    user.fails(
        "get confgmaps",
        "hint: did you mean \"configmaps\"?\nerror: the server doesn't have a resource type \"confgmaps\"",
    );
}

#[test]
fn a_missing_server_can_be_started() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let user = User::new();
    user.kubeconfig(&format!("http://127.0.0.1:{port}"), "");
    user.fails("get pods", &format!("The connection to the server 127.0.0.1:{port} was refused"));
    user.fails("get pods", "hint: `tiphys up` starts a cluster on this machine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_would_allow_it_is_named() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""}"#;
    let server = Web::start(move |head| {
        discovery(head).unwrap_or_else(|| response("403 Forbidden", "application/json", status))
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    user.fails("get pods", "Error from server (Forbidden): pods is forbidden");
    user.fails(
        "get pods",
        "hint: allowed by `kubectl create role NAME --verb=list --resource=pods` and `kubectl create rolebinding NAME \
         --role=NAME --user=eve -n default`",
    );
}

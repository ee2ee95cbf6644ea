//! Concurrent writes of one object: exactly one of them succeeds.

use api::tree;
use testkit::Cluster;

use super::{CONFIG_MAPS, config_map};

pub async fn writers_race_and_one_wins(cluster: &mut Cluster) {
    cluster.client.post(CONFIG_MAPS, &config_map("n")).await;
    let object = cluster.client.get(&format!("{CONFIG_MAPS}/n")).await.tree();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (client, mut object) = (cluster.client.clone(), object.clone());
        object.set("data", tree! { "writer" => writer.to_string() });
        tasks.spawn(async move { client.put(&format!("{CONFIG_MAPS}/n"), &object).await.code });
    }
    let mut codes = tasks.join_all().await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 409, 409, 409, 409, 409, 409, 409]);
}

pub async fn deletions_race_and_one_wins(cluster: &mut Cluster) {
    for round in 0..10 {
        cluster.client.post(CONFIG_MAPS, &config_map("n")).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = cluster.client.clone();
            tasks.spawn(async move { client.delete(&format!("{CONFIG_MAPS}/n")).await.code });
        }
        let mut codes = tasks.join_all().await;
        codes.sort_unstable();
        assert_eq!(codes, [200, 404, 404, 404], "round {round}");
    }
}

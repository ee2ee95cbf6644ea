//! The gRPC health checking protocol.

use api::Tree;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::Outcome;

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NAMES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

pub(crate) async fn check_health(action: &Tree, address: &str) -> Outcome {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_string() };
    let place = format!("{host}:{}", action.int("port").unwrap_or(0));
    let connected = match Endpoint::from_shared(format!("http://{place}")) {
        Ok(endpoint) => endpoint.connect().await,
        Err(error) => return Outcome::Unknown(error.to_string()),
    };
    let Ok(channel) = connected else {
        return Outcome::Failure(format!("error: failed to connect service at {place:?}: connection refused"));
    };
    let mut grpc = Grpc::new(channel);
    if let Err(error) = grpc.ready().await {
        return Outcome::Failure(format!("error: health rpc probe failed: {error}"));
    }
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let question = HealthCheckRequest { service: action.str("service").to_string() };
    match grpc
        .unary(tonic::Request::new(question), path, ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default())
        .await
    {
        Ok(answer) if answer.get_ref().status == SERVING => Outcome::Success,
        Ok(answer) => {
            let number = usize::try_from(answer.get_ref().status).unwrap_or(0);
            let status = NAMES.get(number).unwrap_or(&"UNKNOWN");
            Outcome::Failure(format!("service unhealthy (responded with {status:?})"))
        }
        Err(status) if status.code() == tonic::Code::Unimplemented => Outcome::Failure(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)".to_string(),
        ),
        Err(status) => Outcome::Failure(format!("error: health rpc probe failed: {}", status.message())),
    }
}

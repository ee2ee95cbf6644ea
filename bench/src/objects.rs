//! The requests that are sent: whole HTTP/1.1 requests, built once, with a placeholder for a number in the name.

use std::sync::Arc;

/// Digits of the number in a name.
const DIGITS: usize = 8;
const HOLE: &str = "########";

/// A request that is sent many times, with another number each time.
#[derive(Clone)]
pub(crate) struct Template {
    bytes: Arc<[u8]>,
    /// The positions of the number: in the path, in the body, or nowhere.
    holes: Arc<[usize]>,
}

impl Template {
    fn new(bytes: Vec<u8>) -> Template {
        let holes = memchr::memmem::find_iter(&bytes, HOLE.as_bytes()).collect();
        Template { bytes: bytes.into(), holes }
    }

    pub(crate) fn get(path: &str) -> Template {
        Template::get_as(path, "application/json")
    }

    pub(crate) fn get_as(path: &str, accept: &str) -> Template {
        Template::new(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n").into())
    }

    /// The same request of the owner of a token.
    pub(crate) fn with_token(&self, token: &str) -> Template {
        let end = memchr::memmem::find(&self.bytes, b"\r\n").unwrap_or(0) + 2;
        let header = format!("authorization: Bearer {token}\r\n");
        Template::new([&self.bytes[..end], header.as_bytes(), &self.bytes[end..]].concat())
    }

    pub(crate) fn post(path: &str, body: &str) -> Template {
        Template::with_body("POST", path, "application/json", body.as_bytes())
    }

    pub(crate) fn delete(path: &str) -> Template {
        Template::with_body("DELETE", path, "application/json", b"")
    }

    pub(crate) fn put(path: &str, body: &[u8]) -> Template {
        Template::with_body("PUT", path, "application/json", body)
    }

    pub(crate) fn merge_patch(path: &str, body: &str) -> Template {
        Template::with_body("PATCH", path, "application/merge-patch+json", body.as_bytes())
    }

    fn with_body(method: &str, path: &str, content_type: &str, body: &[u8]) -> Template {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n\
             accept: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        Template::new([head.as_bytes(), body].concat())
    }

    /// The request with a number in its holes, in a buffer that is used again.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        let digits = format!("{number:0width$}", width = DIGITS);
        for hole in self.holes.iter() {
            out[*hole..hole + DIGITS].copy_from_slice(&digits.as_bytes()[..DIGITS]);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) const SERVICE_ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
pub(crate) const SERVICE_ACCOUNT: &str = r#"{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}"#;
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// The path of the object with a number.
pub(crate) fn numbered(collection: &str, prefix: &str) -> String {
    format!("{collection}/{prefix}-{HOLE}")
}

/// A ConfigMap of about this many bytes as it is sent.
pub(crate) fn config_map(prefix: &str, bytes: usize) -> String {
    let head = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{prefix}-{HOLE}"}},"data":{{"payload":""#
    );
    let filler = "0123456789abcdef".repeat(bytes / 16 + 1);
    format!("{head}{}\"}}}}", &filler[..bytes.saturating_sub(head.len() + 3)])
}

/// How much a ConfigMap of 1 KiB grows when it is stored: identity, times and managed fields.
pub(crate) const STORED_EXTRA_BYTES: usize = 330;

/// A realistic pod: two containers with variables, probes, resources and mounts. `filler` bytes of arguments enlarge
/// it.
pub(crate) fn pod(prefix: &str, filler: usize) -> String {
    let arguments: Vec<String> = (0..filler / 50).map(|n| format!(r#""--option-{n:02}={}""#, "v".repeat(34))).collect();
    let arguments = arguments.join(",");
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{prefix}-{HOLE}","labels":{{"app":"web","tier":"front","release":"stable"}},"annotations":{{"prometheus.io/scrape":"true","prometheus.io/port":"8080"}}}},"spec":{{"volumes":[{{"name":"data","emptyDir":{{}}}},{{"name":"config","configMap":{{"name":"web"}}}}],"containers":[{},{}],"nodeName":"node-1","priority":0,"automountServiceAccountToken":false,"tolerations":[{{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}}]}}}}"#,
        container(&arguments),
        r#"{"name":"side","image":"registry.example/side:1.2.3","resources":{"limits":{"memory":"64Mi"}}}"#
    )
}

fn container(arguments: &str) -> String {
    let env: Vec<String> = (0..4).map(|n| format!(r#"{{"name":"SETTING_{n}","value":"value {n}"}}"#)).collect();
    format!(
        r#"{{"name":"web","image":"registry.example/web:1.2.3","args":[{arguments}],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{}],"resources":{{"limits":{{"cpu":"500m","memory":"128Mi"}},"requests":{{"cpu":"250m","memory":"64Mi"}}}},"volumeMounts":[{{"name":"data","mountPath":"/data"}},{{"name":"config","readOnly":true,"mountPath":"/etc/config"}}],"readinessProbe":{{"httpGet":{{"path":"/ready","port":8080}},"periodSeconds":5}}}}"#,
        env.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_every_placeholder() {
        let template = Template::post(&numbered(CONFIG_MAPS, "a"), &config_map("a", 1024));
        let mut out = Vec::new();
        template.write(42, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.matches("a-00000042").count(), 2);
        assert!(!text.contains('#'));
    }

    #[test]
    fn objects_are_json_of_the_documented_size() {
        assert_eq!(config_map("a", 1024).len(), 1024);
        for text in [config_map("a", 1024), pod("a", 0), pod("a", 1500)] {
            api::json::decode(text.as_bytes()).expect("JSON");
        }
    }
}
